package lock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// State is who has the lock of a key.
type State struct {
	Held    bool
	Readers int           // who share it; 0 if it is held exclusively, or free
	Label   string        // of the holder, or of one of the readers; "" if it has none, or is another program
	Left    time.Duration // until the lock is free if nobody renews or unlocks it
	Token   int64         // the highest fencing token that a holder up to now can have; 0 if none is known
	Waiting int           // with FIFO: callers that wait, of all processes
}

// State says who has the lock of a key, in either mode.
func (l *Locker) State(ctx context.Context, key string) (State, error) {
	var s State
	err := l.repeat(ctx, func() (err error) {
		s, err = l.server.state(ctx, key)
		return err
	})
	if err != nil {
		return State{}, fmt.Errorf("lock: asking for the state of %q: %w", key, err)
	}
	return s, nil
}

// repeat makes a call that may be repeated, up to three times.
func (l *Locker) repeat(ctx context.Context, call func() error) error {
	for failures := 1; ; failures++ {
		err := call()
		if err == nil || failures == 3 || !passing(err) || l.wait(ctx, new(lockBell), l.cfg.backOff(failures)) != nil {
			return err
		}
	}
}

func (n *lockNode) state(ctx context.Context, name string) (State, error) {
	keys := []string{n.l.cfg.key("", name), n.l.cfg.key("fence:", name), n.l.cfg.key("waiting:", name)}
	values, err := n.run(ctx, nil, &scripts.state, keys, n.l.cfg.FIFO).Slice()
	if err != nil || len(values) != 6 {
		return State{}, cmp.Or(err, fmt.Errorf("%w: %v, want six values", errUnexpected, values))
	}
	numbers, err := redis.NewCmdResult(values[1:], nil).Int64Slice()
	owner, isOwner := values[0].(string)
	if err != nil || !isOwner {
		return State{}, fmt.Errorf("%w: %v, want integers after an owner", errUnexpected, values)
	}
	s := State{Held: numbers[0] == 1, Label: labelOf(owner), Token: numbers[3], Waiting: int(numbers[4])}
	if s.Held {
		s.Readers, s.Left = int(numbers[1]), time.Duration(max(numbers[2], 0))*time.Millisecond
	}
	return s, nil
}

// labelOf is the label in an owner; "" if it has none or is another program's.
func labelOf(owner string) string {
	if len(owner) <= ownerLen || owner[0] != 'w' && owner[0] != 'r' || owner[ownerLen] != ':' {
		return ""
	}
	return strings.ToValidUTF8(owner[ownerLen+1:], "?")
}

// state is that of a majority: for how long it has the lock held, and the
// highest token that any has seen.
func (q *quorum) state(ctx context.Context, name string) (State, error) {
	var mu sync.Mutex
	var held []State
	token := int64(0)
	t, err := q.poll(ctx, false, func(ctx context.Context, n *lockNode) (int64, error) {
		s, err := n.state(ctx, name)
		mu.Lock()
		defer mu.Unlock()
		token = max(token, s.Token)
		if !s.Held {
			return 0, err
		}
		held = append(held, s)
		return 1, err
	})
	mu.Lock()
	defer mu.Unlock()
	switch {
	case err != nil:
		return State{}, err
	case t.yes < q.need:
		return State{Token: token}, nil
	}
	slices.SortFunc(held, func(a, b State) int { return int(a.Left - b.Left) })
	s := held[len(held)-q.need]
	s.Token = token
	return s, nil
}
