package lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/localmutex/locking"
)

// State is who has the lock of a key.
type State struct {
	Held    bool
	Readers int           // who share it; 0 if it is held exclusively, or free
	Label   string        // of the holder, or of one of the readers; "" if it has none, or is another program
	Left    time.Duration // until the lock is free if nobody renews or unlocks it
	Token   int64         // the highest fencing token that a holder up to now can have; 0 if none is known

	// Waiting is the number of waiting callers: with FIFO those of all processes, otherwise those
	// of this Locker that queue for the key.
	Waiting int
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
	if !l.cfg.FIFO {
		s.Waiting = l.queued(key)
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

// queued is how many callers of this process queue for a key.
func (l *Locker) queued(key string) int {
	s := l.turns.Inspect(key)
	if s.Token != 0 && !slices.ContainsFunc(l.all(), func(h *heldClaim) bool { return h.has(s.Token) }) {
		return s.Waiters + 1 // and one that contends
	}
	return s.Waiters
}

// has reports whether a caller works with the hold in that turn.
func (h *heldClaim) has(turn int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.turn == turn
}

// lockLongestReason is how long what is said to ForceUnlock may be, in bytes.
const lockLongestReason = 256

// ForceUnlock frees the lock of a key, regardless of holder, mode and program, and returns the
// State it had. It is for an operator who knows that the holder is gone, or that its work does not
// matter. A holder that is alive learns of it at its next renewal. Until then two may hold the
// lock, which only fencing tokens make harmless. The holder's Context ends with the cause
// ErrForced, which contains by and why; both are required, with at most 256 bytes each.
//
// Each call that frees a lock, or may have, is an event Forced, which is logged
// as a warning. After an error it is unknown whether the lock was freed.
func (l *Locker) ForceUnlock(ctx context.Context, key, by, why string) (State, error) {
	for what, text := range map[string]string{"by": by, "why": why} {
		if text == "" || len(text) > lockLongestReason {
			return State{}, fmt.Errorf("%w: ForceUnlock of %q: %s has %d bytes, want 1 to %d", locking.ErrOption, key, what, len(text), lockLongestReason)
		}
	}
	if !l.enter() {
		return State{}, ErrClosed
	}
	defer l.leaveCall()
	before, err := l.State(ctx, key)
	if err != nil {
		return State{}, err
	}
	id, n := rand.Text(), int64(0)
	err = l.repeat(ctx, func() (err error) {
		n, err = l.server.force(ctx, key, id, fmt.Sprintf("by %q: %q", by, why))
		return err
	})
	if err != nil {
		err = fmt.Errorf("lock: releasing %q by force: %w", key, err)
	}
	if err != nil || n > 0 {
		of := ask{names: []string{key}, read: before.Readers > 0, opts: locking.Options{Label: before.Label}}
		l.emit(ctx, forced, of, Event{By: by, Why: why, Err: err})
	}
	for _, h := range l.all() { // our own need not wait
		if slices.Contains(h.names, key) {
			h.mu.Lock()
			t := h.tenure
			h.mu.Unlock()
			l.spawn(func() {
				_ = l.repeat(context.Background(), func() error {
					return t.alone(context.Background(), func() error { return h.extend(context.Background(), 0) })
				})
			})
		}
	}
	return before, err
}

func (n *lockNode) state(ctx context.Context, name string) (State, error) {
	keys := []string{n.cfg.key("", name), n.cfg.key("fence:", name), n.cfg.key("waiting:", name)}
	values, err := n.run(ctx, nil, &scripts.state, scriptArgs(keys, n.cfg.FIFO)).Slice()
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

func (n *lockNode) force(ctx context.Context, name, id, why string) (int64, error) {
	keys := []string{n.cfg.key("", name), n.cfg.key("forced:", name), n.cfg.key("bell:", name), n.cfg.key("queue:", name)}
	return n.run(ctx, nil, &scripts.force, scriptArgs(keys, why, n.publish, "#"+id)).Int64()
}

// lockOrderLasts is for how long what a Locker says of FIFO counts. It says so
// again at an acquisition after lockOrderEvery, or lockOrderSoon if others
// disagreed or no answer came.
const (
	lockOrderLasts = 2 * time.Minute
	lockOrderEvery = 30 * time.Second
	lockOrderSoon  = time.Second
)

// agree returns ErrOrder if the Lockers of this prefix disagree about FIFO, which a
// quorum refuses. It asks the server from time to time.
func (l *Locker) agree(ctx context.Context) error {
	if l.node == nil {
		return nil
	}
	due := l.orderDue.Load()
	if now := time.Now(); now.UnixNano() >= due && l.orderDue.CompareAndSwap(due, now.Add(lockOrderEvery).UnixNano()) {
		same, err := l.node.agrees(ctx)
		if err == nil {
			l.disagrees.Store(!same)
		}
		if err != nil || !same {
			l.orderDue.Store(now.Add(lockOrderSoon).UnixNano())
		}
	}
	if !l.disagrees.Load() {
		return nil
	}
	return fmt.Errorf("%w: prefix %q, and FIFO is %t here: give all lockers of the prefix the same FIFO, or another Prefix; the setting of others counts for %v after their latest lock",
		ErrOrder, l.cfg.Prefix, l.cfg.FIFO, lockOrderLasts)
}

// agrees says whether no other Locker says another order of granting.
func (n *lockNode) agrees(ctx context.Context) (bool, error) {
	said := "any"
	if n.cfg.FIFO {
		said = "fifo"
	}
	key := n.cfg.Prefix + "order"
	if n.cfg.NoPrefix {
		key = n.cfg.Prefix + "key:order"
	}
	return n.run(ctx, nil, &scripts.order, scriptArgs([]string{key}, said, lockOrderLasts.Milliseconds())).Bool()
}

// force frees a lock wherever it is held; a majority must have answered.
func (q *quorum) force(ctx context.Context, name, id, why string) (int64, error) {
	_, yes, err := q.poll(ctx, true, func(ctx context.Context, n *lockNode) (int64, error) { return n.force(ctx, name, id, why) })
	return int64(yes), err
}

// state is that of a majority: for how long it has the lock held, and the
// highest token that any has seen.
func (q *quorum) state(ctx context.Context, name string) (State, error) {
	var mu sync.Mutex
	var held []State
	token := int64(0)
	_, yes, err := q.poll(ctx, false, func(ctx context.Context, n *lockNode) (int64, error) {
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
	case yes < q.need:
		return State{Token: token}, nil
	}
	slices.SortFunc(held, func(a, b State) int { return int(a.Left - b.Left) })
	s := held[len(held)-q.need]
	s.Token = token
	return s, nil
}
