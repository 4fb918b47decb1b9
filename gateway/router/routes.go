package router

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/ring"
)

// maxHops is how many hints one round follows.
const maxHops = 3

var errNoWorker = errors.New("no worker is known")

// routes finds the worker that takes a request. It knows nothing of HTTP: how
// a request is sent is the caller's attempt.
type routes struct {
	members  gateway.Members
	hints    []atomic.Pointer[hint] // by partition
	held     holding
	counters *counters
}

// hint is what a worker has said about a partition's owner. It stands for as
// long as the owner is in the view, and until a hint of a higher epoch.
type hint struct {
	owner string // incarnation
	epoch int64
}

// target is the worker that an attempt is made at.
type target struct {
	ring.Member
	epoch int64 // highest one known of the partition, 0 for none
}

// verdict says what came of an attempt.
type verdict uint8

const (
	settled    verdict = iota // answered, or failed for good: nothing else to try
	notOwner                  // refused: another worker owns the partition
	notStarted                // did not reach a worker that admits it, provably
)

type outcome struct {
	verdict verdict
	hint    hint  // with notOwner; zero if the worker knows no owner
	err     error // why, unless answered
}

// attemptFunc sends the request to a worker.
type attemptFunc func(t target) outcome

// route makes attempts until one is settled, and returns that one's error. If
// nobody takes the request it waits, see [holding]; the error is then an
// *unreachableError, errHoldFull or the context's cause.
func (r *routes) route(ctx context.Context, p int, attempt attemptFunc) error {
	seen := r.look(p)
	done, err := r.round(ctx, p, attempt)
	if done {
		return err
	}
	return r.wait(ctx, p, seen, err, attempt)
}

// look is what decides where a round goes.
type look struct {
	view *ring.View
	hint *hint
}

func (r *routes) look(p int) look {
	return look{r.members.View(), r.hints[p].Load()}
}

// tried is an attempt of the present round.
type tried struct {
	incarnation string
	epoch       int64
}

// round tries the owner that was learned and the one by the ring, and follows
// hints. It reports whether the request is settled; if not, the error says why
// the last attempt failed.
func (r *routes) round(ctx context.Context, p int, attempt attemptFunc) (done bool, err error) {
	var room [maxHops + 2]tried
	past, hops := room[:0], 0
	err = errNoWorker
	for len(past) < cap(past) {
		t, ok := r.next(p, past)
		if !ok {
			return false, err
		}
		past = append(past, tried{t.Incarnation, t.epoch})
		out := attempt(t)
		if out.verdict == settled {
			return true, out.err
		}
		if ctx.Err() != nil {
			return true, context.Cause(ctx)
		}
		err = out.err
		if out.verdict == notOwner {
			r.counters.refusals.Add(1)
			if !r.learn(p, out.hint) {
				continue
			}
			if hops++; hops > maxHops {
				return false, err
			}
			r.counters.hops.Add(1)
		}
	}
	return false, err
}

// next returns the worker to try after those of past: the learned owner, which
// is worth another try once its epoch is higher than at the last one, or else
// the owner by the ring.
func (r *routes) next(p int, past []tried) (target, bool) {
	now := r.look(p)
	var epoch int64
	if now.hint != nil {
		epoch = now.hint.epoch
		m, ok := now.view.Find(now.hint.owner)
		if ok && m.Role == ring.RoleWorker && !wasTried(past, m.Incarnation, epoch) {
			return target{m, epoch}, true
		}
	}
	m, ok := now.view.Owner(p)
	if !ok || wasTried(past, m.Incarnation, 0) {
		return target{}, false
	}
	return target{m, epoch}, true
}

func wasTried(past []tried, incarnation string, since int64) bool {
	for _, t := range past {
		if t.incarnation == incarnation && t.epoch >= since {
			return true
		}
	}
	return false
}

// learn keeps a hint of a known worker that is newer than what is known, and
// reports whether it did. Requests that wait for the partition then go on.
func (r *routes) learn(p int, h hint) bool {
	m, ok := r.members.View().Find(h.owner)
	if !ok || m.Role != ring.RoleWorker {
		return false
	}
	for {
		old := r.hints[p].Load()
		if old != nil && h.epoch <= old.epoch || h.epoch <= 0 {
			return false
		}
		if r.hints[p].CompareAndSwap(old, &h) {
			r.held.wakeAll(p)
			return true
		}
	}
}

// owner returns where a request for the partition would go first.
func (r *routes) owner(p int) (target, bool) { return r.next(p, nil) }

// unreachableError says that nobody has taken a request.
type unreachableError struct {
	partition int
	owner     string // name of the last known owner; empty for none
	why       error
}

func (r *routes) unreachable(p int, why error) error {
	t, _ := r.owner(p)
	return &unreachableError{p, t.Name, why}
}

func (e *unreachableError) Error() string {
	if e.owner == "" {
		return fmt.Sprintf("router: partition %d has no owner at the moment: %v", e.partition, e.why)
	}
	return fmt.Sprintf("router: partition %d has no reachable owner at the moment, the last known is %s: %v", e.partition, e.owner, e.why)
}

func (e *unreachableError) Unwrap() error { return e.why }

var (
	errNoOwnerSaid  = errors.New("no worker says that it owns the partition")
	errNotAdmitting = errors.New("the worker admits nothing at the moment")
)

// readRefusal reads the headers by which a worker says that the request has
// not started. Apps cannot send them: their worker strips them.
func readRefusal(h http.Header) (outcome, bool) {
	switch h.Get(hop.HeaderRefused) {
	case hop.RefusedNotOwner:
		o := outcome{verdict: notOwner, err: errNoOwnerSaid}
		epoch, err := strconv.ParseInt(h.Get(gateway.HeaderEpoch), 10, 64)
		if owner := h.Get(hop.HeaderOwner); err == nil && owner != "" {
			o.hint = hint{owner: owner, epoch: epoch}
		}
		return o, true
	case hop.RefusedUnavailable:
		return outcome{verdict: notStarted, err: errNotAdmitting}, true
	}
	return outcome{}, false
}

// public is what a client may read: it names no address.
func (e *unreachableError) public() string {
	if e.owner == "" {
		return fmt.Sprintf("router: partition %d has no owner at the moment, try again", e.partition)
	}
	return fmt.Sprintf("router: partition %d has no reachable owner at the moment (last known: %s), try again", e.partition, e.owner)
}
