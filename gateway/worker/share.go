package worker

import (
	"context"
	"reflect"

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
	c := &sharedCall{op: op, result: reflect.TypeFor[T]()}
	c.wait.Value = c
	x, err := w.keys.Admit(ctx, key, keyed.Asking{Call: true, Item: &c.wait, Alike: true, Trace: w.traceOfCall(ctx)})
	switch {
	case err != nil:
		return v, false, w.counts.refused(ctx, err)
	case x.IsNone():
		w.counts.shared.Add(1)
		v, _ = c.value.(T)
		return v, true, c.err
	}
	defer w.keys.Release(x)
	v, err = fn(x.Public())
	c.value, c.err = v, err
	return v, c.give(w.keys, x), err
}

// sharedCall is a call of Share, which waits in the queue of its key and may get the result of an equal one there.
type sharedCall struct {
	wait   keytable.Item // what it waits with
	op     string
	result reflect.Type
	value  any // of an equal call, once wait has been taken along; as err
	err    error
}

// give passes the result of c to the equal calls that wait, and reports whether there were any. The execution x of c still
// holds the key, so nobody can have changed what it has read. A result is the caller's alone if the ownership may be lost. So
// it is if the function has asked for a key that its caller holds, and may be changing what that key protects.
func (c *sharedCall) give(keys *keyed.Keys, x keyed.Execution) (shared bool) {
	if x.Nested() || x.Queued() == 0 || x.UsesOuter() || c.err != nil && x.Context().Err() != nil || keys.StillAdmits(x) != nil {
		return false
	}
	var taken []*sharedCall
	x.Take(func(i *keytable.Item) (take, more bool) {
		other, ok := i.Value.(*sharedCall)
		switch {
		case !ok:
			return false, false
		case other.op != c.op, other.result != c.result:
			return false, true
		}
		other.value, other.err = c.value, c.err
		taken = append(taken, other)
		return true, true
	})
	for _, other := range taken {
		other.wait.Finish()
	}
	return len(taken) > 0
}
