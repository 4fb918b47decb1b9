package worker

import (
	"context"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/keytable"
)

// Share works at the worker that owns key; elsewhere its error is a [*gateway.NotOwnerError], which
// names the owner. It runs fn as [Worker.Do] does, once for equal reads. When fn has ended, all calls
// with the same key, op and T that wait for the key get its result, with shared set, up to the first
// call or request of another kind. The result was read while the key was held, and is no older than the call.
//
// A call gets no result of a function that panicked, or failed after its context had ended: it runs its own. Share
// returns the errors of Do; waiting calls count in Limits.QueuePerKey. Within an execution that holds key, fn runs at
// once and for this caller alone.
func Share[T any](ctx context.Context, w *Worker, key, op string, fn func(gateway.Execution) (T, error)) (v T, shared bool, err error) {
	a := newAlike(sharedOp[T](op))
	x, err := w.keys.Admit(ctx, key, keyed.Asking{Call: true, Item: &a.wait, Alike: true, Trace: w.traceOfCall(ctx)})
	switch {
	case err != nil:
		return v, false, w.counts.refused(ctx, err)
	case x.IsNone():
		w.counts.shared.Add(1)
		r := a.result.(sharedResult[T])
		return r.v, true, r.err
	}
	defer w.keys.Release(x)
	v, err = fn(x.Public())
	if x.Nested() || x.Queued() == 0 || x.UsesOuter() || err != nil && x.Context().Err() != nil || w.keys.StillAdmits(x) != nil {
		return v, false, err // the caller's alone: the ownership may be lost, or what an outer execution's key protects be changing
	}
	return v, a.give(x, func() any { return sharedResult[T]{v, err} }), err
}

// sharedOp is what calls of [Share] with a T have in common besides the key.
type sharedOp[T any] string

type sharedResult[T any] struct {
	v   T
	err error
}

// alike is a request or call that waits in the queue of its key and may get the result of an equal one there.
type alike struct {
	wait   keytable.Item // what it waits with
	form   any           // what equal ones have in common besides the key; comparable
	came   uint64        // when it came, of a request: among all that may share, and when those of the worker began
	began  uint64        // likewise when it began, if it leads
	result any           // of an equal one, once wait has been taken along
}

func newAlike(form any) *alike {
	a := &alike{form: form}
	a.wait.Value = a
	return a
}

// takeWaiting offers accept the waiters for the result of a, see [keytable.Table.Take].
func (a *alike) takeWaiting(x keyed.Execution, accept func(*alike) (take, more bool)) {
	x.Take(func(i *keytable.Item) (take, more bool) {
		other, ok := i.Value.(*alike)
		switch {
		case !ok:
			return false, false
		case other.form != a.form, other.came > a.began:
			return false, true
		}
		return accept(other)
	})
}

// give gives the result of a, one for each, to all that wait for it, and reports whether there were any. The execution x of a
// still holds the key, so nobody can have changed what it has read.
func (a *alike) give(x keyed.Execution, result func() any) bool {
	var taken []*alike
	a.takeWaiting(x, func(other *alike) (take, more bool) {
		other.result = result()
		taken = append(taken, other)
		return true, true
	})
	for _, other := range taken {
		other.wait.Finish()
	}
	return len(taken) > 0
}
