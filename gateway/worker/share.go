package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
)

// Share runs fn as Do does, once for equal reads: calls with the same key and op
// that come while one of them waits for the key or runs get its result instead.
// What Share returns was read while the key was held, and is no older than the
// call. fn's context ends when every caller's has; a panic in fn is raised again
// in each caller, as a [*PanicError]. Share returns the errors of Do; shared tells
// whether the result went to more than one caller.
func (w *Worker) Share(ctx context.Context, key, op string, fn func(Execution) (any, error)) (v any, shared bool, err error) {
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	if w.holds(ctx, key) {
		return nil, false, fmt.Errorf("%w: %q", ErrNested, key)
	}
	for {
		fl, done, first := w.join(ctx, key, op, fn)
		v, shared, err = w.flights.await(ctx, fl, done)
		if first || !errors.Is(err, ErrNested) {
			return v, shared, err
		}
		// The keys that are held along the first caller's context are not this
		// caller's.
	}
}

// join joins the flight of these calls, or begins one, for which it reports
// first. It joins none that Do would not begin now: the lease is compared, and
// then what cancels, as in confirm.
func (w *Worker) join(ctx context.Context, key, op string, fn func(Execution) (any, error)) (fl *flight, done <-chan singleflight.Result, first bool) {
	f, p := &w.flights, &w.parts[w.settings.Ring.Partition(key)]
	id := op + "\x00" + key
	f.mu.Lock()
	defer f.mu.Unlock()
	fl = f.running[id]
	if fl != nil && !(w.admits(time.Now()) && p.cancels.Load() == fl.cancels) {
		f.forgetLocked(fl)
		fl = nil
	}
	if first = fl == nil; first {
		fl = &flight{id: id, cancels: p.cancels.Load()}
		fl.ctx, fl.cancel = context.WithCancel(context.WithoutCancel(ctx))
		if f.running == nil {
			f.running = make(map[string]*flight)
		}
		f.running[id] = fl
	}
	fl.callers++
	return fl, f.group.DoChan(id, func() (any, error) {
		defer f.forget(fl)
		return guard(func() (v any, err error) {
			err = w.Do(fl.ctx, key, func(x Execution) error {
				defer f.forget(fl) // while the key is held: whoever comes after that may have changed what was read
				v, err = fn(x)
				return err
			})
			return v, err
		})
	}), first
}
