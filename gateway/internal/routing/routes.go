// Package routing finds the worker that takes a request: the owner of the
// request's partition, as far as that is known. It knows nothing of HTTP: how a
// request is sent is the caller's [Attempt].
//
// [Routes.Route] goes by the ring and by what workers say of other owners
// (routes.go). While a partition has no reachable owner its requests wait
// (hold.go).
package routing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/ring"
)

// maxHops is how many hints one round follows.
const maxHops = 3

// Anywhere stands for the partition of requests that have none: any active worker may take them.
// They are tried in turn.
const Anywhere = -1

// ErrNoWorker says that the view has no worker that could own the partition.
var ErrNoWorker = errors.New("no worker is on the ring: a worker says at /readyz why; if there is none, correct Join (--join) or Redis (--store)")

// Members is what routing needs to know of the cluster.
type Members interface {
	// View returns the present view; never nil.
	View() *ring.View
	// Changed returns a channel that is closed at the next change of View.
	Changed() <-chan struct{}
}

// Routes finds the workers of requests, and remembers what workers say of owners. Make one with
// [New]. Any number of goroutines may use it: hints are replaced atomically, and holding has a
// mutex of its own.
type Routes struct {
	members Members
	hints   []atomic.Pointer[Hint] // by partition
	holding

	turn atomic.Uint64 // of the worker that is tried first for Anywhere

	Refusals atomic.Int64 // attempts so far that ended with NotOwner
	Retries  atomic.Int64 // attempts so far that ended with NotStarted
	Hops     atomic.Int64 // hints followed so far
}

// New returns the routes to partitions of the members' ring. A request that has no patience of its
// own waits for an owner for as long as patience, 0 for not at all. At most limit requests wait at
// one time.
func New(members Members, partitions int, patience time.Duration, limit int) *Routes {
	return &Routes{
		members: members,
		hints:   make([]atomic.Pointer[Hint], partitions),
		holding: holding{Patience: patience, limit: limit, jitter: rand.N[time.Duration], waitlists: make(map[int]*waitlist)},
	}
}

// Hint is what a worker has said about a partition's owner. It stands for as
// long as the owner is in the view, and until a hint of a higher epoch.
type Hint struct {
	Owner string // incarnation
	Epoch int64
}

// Target is the worker that an attempt is made at.
type Target struct {
	ring.Member
	Epoch int64     // highest one known of the partition, 0 for none
	Held  time.Time // when the request began to wait for an owner; zero if it has not waited
}

// Verdict says how an attempt ended.
type Verdict uint8

// The verdicts.
const (
	Settled    Verdict = iota // answered, or failed for good: nothing else to try
	NotOwner                  // refused: another worker owns the partition
	NotStarted                // did not reach a worker that admits it, provably
)

// Outcome is an attempt's end.
type Outcome struct {
	Verdict Verdict
	Hint    Hint  // with NotOwner; zero if the worker knows no owner
	Waited  bool  // with NotStarted: it waited its turn at the worker, until that was lost
	Err     error // why, unless answered
}

// Attempt sends the request to a worker.
type Attempt func(t Target) Outcome

// since returns attempts of a request that has waited since then.
func (a Attempt) since(held time.Time) Attempt {
	return func(t Target) Outcome {
		t.Held = held
		return a(t)
	}
}

// Route makes attempts for a request of partition p until one is settled, and returns its error. If
// no worker takes the request it waits for as long as patience; the error is then an
// *[UnreachableError], [ErrHoldFull] or the context's cause. A [ring.View.KeyConflict] is returned
// at once.
func (r *Routes) Route(ctx context.Context, p int, patience time.Duration, attempt Attempt) error {
	seen := r.lookUp(p)
	done, err := r.round(ctx, p, attempt)
	if done {
		return err
	}
	w := &waiter{routes: r, partition: p, patience: patience, pause: firstPause}
	return w.wait(ctx, seen, err, attempt)
}

// sight is what decides where a round goes.
type sight struct {
	view *ring.View
	hint *Hint
}

func (r *Routes) lookUp(p int) sight {
	s := sight{view: r.members.View()}
	if p != Anywhere {
		s.hint = r.hints[p].Load()
	}
	return s
}

// round tries the owner that was learned and the one by the ring, and follows
// hints. It reports whether the request is settled, which it also is if this process must
// send none; if not, the error says why the last attempt failed.
func (r *Routes) round(ctx context.Context, p int, attempt Attempt) (done bool, err error) {
	if p == Anywhere {
		return r.tryAll(ctx, attempt)
	}
	var room [maxHops + 2]Hint // by which its attempts went
	past, hops := room[:0], 0
	err = ErrNoWorker
	for len(past) < cap(past) {
		if err := r.members.View().KeyConflict; err != nil {
			return true, err
		}
		t, ok := r.next(p, past)
		if !ok {
			return false, err
		}
		past = append(past, Hint{t.Incarnation, t.Epoch})
		out := attempt(t)
		if out.Verdict == Settled {
			return true, out.Err
		}
		if ctx.Err() != nil {
			return true, context.Cause(ctx)
		}
		err = out.Err
		r.count(out.Verdict)
		if out.Verdict == NotOwner {
			if !r.learn(p, out.Hint) {
				continue
			}
			if hops++; hops > maxHops {
				return false, err
			}
			r.Hops.Add(1)
		}
	}
	return false, err
}

// tryAll is round for Anywhere: it makes an attempt at each active worker.
func (r *Routes) tryAll(ctx context.Context, attempt Attempt) (done bool, err error) {
	view := r.members.View()
	if view.KeyConflict != nil {
		return true, view.KeyConflict
	}
	err = ErrNoWorker
	workers, first := view.Workers(), r.turn.Add(1)
	for i := range uint64(len(workers)) {
		out := attempt(Target{Member: workers[(first+i)%uint64(len(workers))]})
		switch {
		case out.Verdict == Settled:
			return true, out.Err
		case ctx.Err() != nil:
			return true, context.Cause(ctx)
		}
		err = out.Err
		r.count(out.Verdict)
	}
	return false, err
}

func (r *Routes) count(v Verdict) {
	switch v {
	case NotOwner:
		r.Refusals.Add(1)
	case NotStarted:
		r.Retries.Add(1)
	}
}

// next returns the worker to try after those of past: the learned owner, which
// is worth another try once its epoch is higher than at the last one, or else
// the owner by the ring.
func (r *Routes) next(p int, past []Hint) (Target, bool) {
	now := r.lookUp(p)
	var epoch int64
	if now.hint != nil {
		epoch = now.hint.Epoch
		m, ok := now.view.Find(now.hint.Owner)
		if ok && m.Role == ring.RoleWorker && !wasTried(past, m.Incarnation, epoch) {
			return Target{Member: m, Epoch: epoch}, true
		}
	}
	m, ok := now.view.Owner(p)
	if !ok || wasTried(past, m.Incarnation, 0) {
		return Target{}, false
	}
	return Target{Member: m, Epoch: epoch}, true
}

func wasTried(past []Hint, incarnation string, since int64) bool {
	return slices.ContainsFunc(past, func(h Hint) bool { return h.Owner == incarnation && h.Epoch >= since })
}

// learn keeps a hint of a known worker if it is newer than the present knowledge, and reports
// whether it did. Requests that wait for the partition then continue.
func (r *Routes) learn(p int, h Hint) bool {
	m, ok := r.members.View().Find(h.Owner)
	if !ok || m.Role != ring.RoleWorker {
		return false
	}
	for {
		old := r.hints[p].Load()
		if old != nil && h.Epoch <= old.Epoch || h.Epoch <= 0 {
			return false
		}
		if r.hints[p].CompareAndSwap(old, &h) {
			r.wakeAll(p)
			return true
		}
	}
}

// Owner returns where a request for the partition would go first.
func (r *Routes) Owner(p int) (Target, bool) { return r.next(p, nil) }

// UnreachableError says that no worker has taken a request.
type UnreachableError struct {
	partition int
	owner     string // name of the last known owner; empty for none
	why       error
}

func (r *Routes) unreachable(p int, why error) error {
	var owner string
	if p != Anywhere {
		t, _ := r.Owner(p)
		owner = t.Name
	}
	return &UnreachableError{p, owner, why}
}

func (e *UnreachableError) Unwrap() error { return e.why }

func (e *UnreachableError) Error() string {
	if e.partition == Anywhere {
		return fmt.Sprintf("router: no worker can be reached at the moment: %v", e.why)
	}
	if e.owner == "" {
		return fmt.Sprintf("router: partition %d has no owner at the moment: %v", e.partition, e.why)
	}
	return fmt.Sprintf("router: partition %d has no reachable owner at the moment (last known: %s): %v", e.partition, e.owner, e.why)
}
