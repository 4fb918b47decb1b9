package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/holder"
)

// NewQuorum makes a Locker whose locks are held in a majority of several independent servers, as
// Redlock describes (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/). A
// minority may then die or be slow. It works like any other Locker, except that waiters poll and
// that FIFO is refused.
//
// A lock is granted if a majority grants it within its validity: the TTL minus Margin, counted from
// before the first call. Its token is above all that a majority has seen, which takes a second
// round of calls. A server that forgets its locks in a restart must stay away for a TTL, or use
// appendfsync always. Otherwise two clients may both find a majority.
//
// All clients must name the same servers. To change them, add or remove one, on all clients before
// the next one: majorities of lists that differ by one server still have a server in common.
func NewQuorum(clients []redis.UniversalClient, cfg Config) (*Locker, error) {
	if len(clients) == 0 {
		return nil, fmt.Errorf("%w: a quorum of no servers", errConfig)
	}
	if cfg.FIFO {
		return nil, fmt.Errorf("%w: independent servers have no common order for FIFO", errConfig)
	}
	cfg, err := cfg.withDefaults(clients...)
	if err != nil {
		return nil, err
	}
	cfg.Poll, cfg.servers = true, len(clients)
	l := newLocker(cfg)
	q := &quorum{l: l, need: cfg.servers/2 + 1}
	for _, client := range clients {
		q.nodes = append(q.nodes, newLockNode(l, client))
	}
	l.server = q
	return l, nil
}

// quorum keeps locks in the majority of independent servers. It does not change.
type quorum struct {
	l     *Locker // whose locks they are; its Close waits for all calls
	nodes []*lockNode
	need  int // a majority
}

// vote is a node's answer.
type vote struct {
	node  *lockNode
	value int64 // above 0: yes
	err   error // no answer
}

// tally is what the nodes have said so far.
type tally struct {
	votes   []vote
	yes, no int
}

// poll asks every node at once. It returns when a majority has agreed, when no majority can agree
// any more, or when ctx ends. Unless it is patient it also returns when too many calls failed, or
// when the missing answers are far behind a majority; late answers are dropped. The calls continue
// for as long as the wire allows. The error says that a majority has neither agreed nor refused.
func (q *quorum) poll(ctx context.Context, patient bool, ask asking) (t tally, err error) {
	began := time.Now()
	answers := make(chan vote, len(q.nodes))
	for _, n := range q.nodes {
		q.l.spawn(func() {
			value, err := ask(context.WithoutCancel(ctx), n)
			answers <- vote{n, value, err}
		})
	}
	patience := time.NewTimer(q.l.cfg.TTL)
	defer patience.Stop()
	refused := false // by so many that no majority can agree
	for waits := true; waits && len(t.votes) < len(q.nodes) && t.yes < q.need && !refused; {
		select {
		case v := <-answers:
			t.votes = append(t.votes, v)
			switch {
			case v.err == nil && v.value > 0:
				t.yes++
			case v.err == nil:
				t.no++
			}
			refused = t.no > len(q.nodes)-q.need
			waits = patient || t.yes+len(q.nodes)-len(t.votes) >= q.need
			if len(t.votes) == q.need && !patient {
				patience.Reset(max(20*time.Millisecond, 3*time.Since(began)))
			}
		case <-patience.C:
			waits = false
		case <-ctx.Done():
			waits = false
		}
	}
	if t.yes < q.need && !refused {
		err = q.silence(ctx, t)
	}
	return t, err
}

// silence is the error of a poll that decided nothing.
func (q *quorum) silence(ctx context.Context, t tally) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var errs []error
	for _, v := range t.votes {
		errs = append(errs, v.err)
	}
	err := fmt.Errorf("%w: %d of %d servers answered in time", ErrNoQuorum, t.yes+t.no, len(q.nodes))
	if failed := errors.Join(errs...); failed != nil {
		err = fmt.Errorf("%w: %w", err, failed)
	}
	return err
}

func (q *quorum) acquire(ctx context.Context, c *claim, first bool) (g grant, err error) {
	if !first { // the round before was released
		c.renew()
	}
	round := *c
	round.marks = new(marks)
	sent := q.l.locks.Now()
	t, _ := q.poll(ctx, false, func(ctx context.Context, n *lockNode) (int64, error) {
		g, err := n.acquire(ctx, &round, first)
		return g.token, err
	})
	majority := t.yes >= q.need
	if majority {
		for _, v := range t.votes {
			g.token = max(g.token, v.value)
		}
		// The next majority may have only one server in common with this one: all
		// of this one must know the token.
		t, _ = q.poll(ctx, false, renewing(&round, g.token+c.reserve))
	}
	switch {
	case majority && q.l.locks.Policy.Lease(sent, c.opts.TTL).Cancel.Passed(q.l.locks.Now()):
		// If servers said no in the second poll, it was because the lock had expired, not because another has it.
		err = fmt.Errorf("%w: the majority answered after the lock had expired", ErrNoQuorum)
	case t.yes < q.need:
		// If some server said no and enough of them live, there is no error: a waiter tries again soon.
		if failed := len(t.votes) - t.yes - t.no; ctx.Err() != nil || t.no == 0 || failed > len(q.nodes)-q.need {
			err = q.silence(ctx, t)
		}
	default:
		c.unsettled.Store(true) // some may not have answered
		return g, nil
	}
	q.cancel(ctx, &round, t.votes)
	return grant{}, err
}

// cancel takes back a round everywhere, and waits for those servers to answer
// that had granted it, so that the next round does not meet this one.
func (q *quorum) cancel(ctx context.Context, round *claim, votes []vote) {
	round.unsettled.Store(true)
	granted, answers := 0, make(chan struct{}, len(q.nodes))
	for _, n := range q.nodes {
		had := slices.ContainsFunc(votes, func(v vote) bool { return v.node == n && v.err == nil && v.value > 0 })
		if had {
			granted++
		}
		q.l.spawn(func() {
			if _, _ = q.releaseAt(n, round); had {
				answers <- struct{}{}
			}
		})
	}
	for range granted {
		select {
		case <-answers:
		case <-ctx.Done():
			return
		}
	}
}

// releaseAt releases at one node and returns the first outcome, which is above 0 if the claim held
// the lock there. Without an answer it continues in the background, for a TTL at most.
func (q *quorum) releaseAt(n *lockNode, c *claim) (int64, error) {
	until := time.Now().Add(c.opts.TTL)
	f, err := n.release(context.Background(), c)
	if err != nil {
		q.l.spawn(func() { _, _ = q.l.repeatRelease(n, c, until) })
		return 0, err
	}
	if f.freed {
		return 1, nil
	}
	return 0, nil
}

func (q *quorum) release(ctx context.Context, c *claim) (freeing, error) {
	t, err := q.poll(ctx, true, func(_ context.Context, n *lockNode) (int64, error) { return q.releaseAt(n, c) })
	return freeing{freed: t.yes >= q.need}, err
}

// verdict asks every node for a state, and returns that of the majority.
func (q *quorum) verdict(ctx context.Context, ask asking) (holder.Answer, error) {
	t, err := q.poll(ctx, false, ask)
	if err != nil || t.yes >= q.need {
		return holder.Held, err
	}
	verdict := int64(0)
	for _, v := range t.votes {
		verdict = min(verdict, v.value) // another's
	}
	return answer(verdict), nil
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
