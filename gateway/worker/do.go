package worker

import (
	"context"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
)

// Do runs fn while it holds key: no other execution of the key runs at the same time, here or on
// another worker (see docs/guarantees.md for the conditions). Callers of one key run in the order
// of arrival. Within an execution (that is, with its context), a call for the key that it holds
// runs at once as a part of it, with the same token.
//
// Do returns fn's error. If fn has not run, the error is ctx's cause, a [*gateway.DeadlockError], a
// [*gateway.NotOwnerError], or wraps [gateway.ErrNoKey], [gateway.ErrBadKey], [gateway.ErrBusy],
// [gateway.ErrWaited] or [gateway.ErrUnavailable]. While no live worker owns the key Do waits, for
// at most Limits.MaxWait; then the error is an [*gateway.UnownedError].
func (w *Worker) Do(ctx context.Context, key string, fn func(gateway.Execution) error) error {
	x, err := w.keys.Admit(ctx, key, keyed.Asking{Call: true, Trace: w.traceOfCall(ctx)})
	if err != nil {
		return w.counts.refused(ctx, err)
	}
	defer w.keys.Release(x)
	return fn(x.Public())
}

// TryDo is [Worker.Do] for a caller that does not wait. Its error wraps [gateway.ErrLocked] if
// another execution holds key, or others wait for it, and [gateway.ErrUnavailable] if the worker
// admits nothing. It is a [*gateway.NotOwnerError] or [*gateway.UnownedError] if this worker does not
// serve key.
func (w *Worker) TryDo(ctx context.Context, key string, fn func(gateway.Execution) error) error {
	x, err := w.keys.Admit(ctx, key, keyed.Asking{Call: true, Try: true, Trace: w.traceOfCall(ctx)})
	if err != nil {
		return w.counts.refused(ctx, err)
	}
	defer w.keys.Release(x)
	return fn(x.Public())
}

// TokenFrom returns the fencing token of the innermost execution that ctx
// belongs to, if that holds a key.
func TokenFrom(ctx context.Context) (token int64, ok bool) { return keyed.TokenFrom(ctx) }

// Baggage returns baggage, the values of the header of that name, with the keys added that are held
// along ctx's executions. A request that carries it fails with status 508 if it comes back to one
// of these keys.
func Baggage(ctx context.Context, baggage []string) []string { return keyed.Baggage(ctx, baggage) }
