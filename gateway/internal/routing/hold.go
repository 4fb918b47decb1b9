package routing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrHoldFull says that there was no room for another request to wait.
var ErrHoldFull = errors.New("router: too many requests wait for an owner")

// How often the prober of a partition asks for its owner.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// admittedAfter is how long an attempt may last without a refusal until the other waiters assume
// that the partition has an owner: refusals come at once, answers take as long as the handler.
const admittedAfter = 10 * time.Millisecond

// holding is the requests that wait while their partition has no reachable
// owner, on a waitlist for each such partition. One waiter of a list, the prober,
// looks for an owner: when the view changes and in growing intervals. The others
// sleep until the prober gets through or the owner is learned from another
// request, so that a crowd costs a worker no more than one request.
type holding struct {
	Patience time.Duration // for requests that have none of their own; 0: they do not wait
	limit    int           // on waiters

	jitter func(time.Duration) time.Duration // a random part of a pause

	// Waited is called at the end of each wait, if it is not nil. It is set before the
	// first call of Route.
	Waited func(time.Duration)

	Held    atomic.Int64 // waiters so far
	Holding atomic.Int64 // waiters now

	mu        sync.Mutex
	waitlists map[int]*waitlist // by partition; those with waiters
}

type waitlist struct {
	prober   chan struct{} // holds one element while there is a prober
	waiters  int           // guarded by holding.mu
	reopened chan struct{} // closed to let everybody try again; guarded by holding.mu
}

func (h *holding) join(p int) (*waitlist, bool) {
	if h.Holding.Add(1) > int64(h.limit) {
		h.Holding.Add(-1)
		return nil, false
	}
	h.Held.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.waitlists[p]
	if l == nil {
		l = &waitlist{prober: make(chan struct{}, 1), reopened: make(chan struct{})}
		h.waitlists[p] = l
	}
	l.waiters++
	return l, true
}

// endWait ends a wait that has begun at that time.
func (h *holding) endWait(p int, began time.Time) {
	h.Holding.Add(-1)
	if h.Waited != nil {
		h.Waited(time.Since(began))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.waitlists[p]
	if l.waiters--; l.waiters == 0 {
		delete(h.waitlists, p)
	}
}

func (h *holding) wakeAll(p int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.waitlists[p]; l != nil {
		close(l.reopened)
		l.reopened = make(chan struct{})
	}
}

// waiter is a request without an owner.
type waiter struct {
	routes    *Routes
	partition int
	patience  time.Duration
	list      *waitlist
	probes    bool          // is its prober
	pause     time.Duration // until it probes again
}

// wait makes rounds until the request is settled or its patience ends. If it ends during a round,
// and something has changed meanwhile, one more follows. Waiting for its turn at an owner does not
// use up its patience. seen is the basis of the last round, and why its error.
func (w *waiter) wait(ctx context.Context, seen sight, why error, attempt Attempt) error {
	r, p := w.routes, w.partition
	if w.patience <= 0 {
		return r.unreachable(p, why)
	}
	var ok bool
	if w.list, ok = r.join(p); !ok {
		return ErrHoldFull
	}
	began := time.Now()
	defer r.endWait(p, began)
	until := began.Add(w.patience)
	held := attempt.since(began)
	attempt = func(t Target) Outcome {
		sent := time.Now()
		out := held(t)
		if out.Waited {
			until = until.Add(time.Since(sent))
		}
		return out
	}
	defer func() {
		if w.probes {
			<-w.list.prober // another waiter may
		}
	}()
	for over := false; ; {
		last := over
		if over = !w.sleep(ctx, until, seen); over {
			switch {
			case ctx.Err() != nil:
				return fmt.Errorf("%w: %v", context.Cause(ctx), r.unreachable(p, why))
			case last || r.lookUp(p) == seen:
				return r.unreachable(p, why)
			}
		}
		seen = r.lookUp(p)
		done, err := w.round(ctx, attempt)
		if done {
			return err
		}
		why = err
	}
}

// sleep returns true when a round may have a better end than the last one,
// which went by seen, and false when ctx is done or the time has come.
func (w *waiter) sleep(ctx context.Context, until time.Time, seen sight) bool {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	w.routes.mu.Lock()
	reopened := w.list.reopened
	w.routes.mu.Unlock()
	changed := w.routes.members.Changed()
	if w.routes.lookUp(w.partition) != seen {
		w.pause = firstPause
		return ctx.Err() == nil
	}
	if !w.probes {
		select {
		case <-reopened:
			return ctx.Err() == nil
		case w.list.prober <- struct{}{}:
			w.probes = true
		case <-ctx.Done():
			return false
		}
	}
	select {
	case <-time.After(w.pause/2 + w.routes.jitter(w.pause/2)):
		w.pause = min(2*w.pause, lastPause)
	case <-changed:
		w.pause = firstPause
	case <-reopened:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// round makes a round; if the prober's is settled, or not refused for a while,
// everybody wakes and another one may become the prober.
func (w *waiter) round(ctx context.Context, attempt Attempt) (done bool, err error) {
	r, p := w.routes, w.partition
	if !w.probes {
		return r.round(ctx, p, attempt)
	}
	through := sync.OnceFunc(func() {
		r.wakeAll(p)
		<-w.list.prober
	})
	timer := time.AfterFunc(admittedAfter, through)
	done, err = r.round(ctx, p, attempt)
	if !timer.Stop() || done && ctx.Err() == nil {
		through()
		w.probes = false
	}
	return done, err
}
