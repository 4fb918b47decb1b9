package worker

import (
	"context"
	"github.com/keyway-go/keyway/gateway"
	"reflect"
)

// Share works at the worker that owns key; elsewhere its error is a [*gateway.NotOwnerError], which
// names the owner. It runs fn as [Worker.Do] does, once for equal reads. If a call with the same
// key, op and T arrives while another one waits for the key or runs, it gets that call's result,
// with shared set. The result was read while the key was held, and is no older than the call.
//
// fn's context has the first caller's values and ends when the contexts of all callers have ended.
// A panic in fn is raised again in each caller, as a [*PanicError]. Share returns the errors of Do.
// A caller that leaves while fn may run gets an error that wraps [gateway.ErrMayHaveRun]. Within an
// execution that holds key, fn runs at once and for this caller alone.
func Share[T any](ctx context.Context, w *Worker, key, op string, fn func(gateway.Execution) (T, error)) (v T, shared bool, err error) {
	if ctx.Err() != nil {
		return v, false, context.Cause(ctx)
	}
	if x, nested, err := w.keys.Nest(ctx, key, true); err != nil {
		return v, false, err
	} else if nested {
		defer w.keys.Release(x)
		v, err = fn(x.Public())
		return v, false, err
	}
	id := flightID{key, op, reflect.TypeFor[T]()}
	for {
		fl, done, first := w.join(ctx, id, func(x gateway.Execution) (any, error) { return fn(x) })
		limit := w.cfg.MaxWait
		if first {
			limit = 0 // its own run of Do is bounded
		}
		result, shared, again, err := w.await(ctx, fl, done, limit)
		if !again {
			if shared && err == nil {
				w.counts.shared.Add(1)
			}
			v, _ = result.(T)
			return v, shared, err
		}
	}
}
