package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// errGoexit is what the callers of a shared function get when it calls
// runtime.Goexit instead of returning.
var errGoexit = errors.New("worker: the shared function called runtime.Goexit")

// flights merges equal calls that run at the same time. Unlike a bare
// singleflight.Group each caller keeps its own context, the call's context
// ends when the last caller has left, and a panic comes back to the callers.
type flights struct {
	group singleflight.Group

	mu      sync.Mutex // guards running and callers, and keeps them in step with group
	running map[string]*flight
}

type flight struct {
	id      string
	callers int
	cancels uint64 // partition.cancels when it began
	ctx     context.Context
	cancel  context.CancelFunc
}

// PanicError is the value with which a panic in a function passed to
// [Worker.Share] is raised again in each of its callers, since their own stacks
// do not show where it came from. Only [http.ErrAbortHandler] is raised as it is.
type PanicError struct {
	Value any    // what the function panicked with
	Stack []byte // of the goroutine that panicked
}

func (p *PanicError) Error() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }

// Unwrap returns Value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

func (p *PanicError) raise() {
	if p.Value == http.ErrAbortHandler {
		panic(http.ErrAbortHandler)
	}
	panic(p)
}

// Share is Do for equal reads: calls with the same key and op that come while
// one of them waits for the key or runs get its result instead of running
// again. What it returns was read while the key was held, and is no older than
// the call. fn's context ends when every caller's has; a panic in fn is raised
// again in each caller, as a [*PanicError]. Share returns the errors of Do;
// shared tells whether the result went to more than one caller.
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

// await waits for the flight's result, as long as ctx lets it.
func (f *flights) await(ctx context.Context, fl *flight, done <-chan singleflight.Result) (v any, shared bool, err error) {
	defer f.leave(fl)
	select {
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	case r := <-done:
		if p, ok := r.Err.(*PanicError); ok {
			p.raise()
		}
		return r.Val, r.Shared, r.Err
	}
}

// leave takes a caller off the flight. The last one ends it.
func (f *flights) leave(fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.callers--
	if fl.callers == 0 {
		f.forgetLocked(fl)
		fl.cancel()
	}
}

// forget lets the next caller begin anew.
func (f *flights) forget(fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetLocked(fl)
}

func (f *flights) forgetLocked(fl *flight) {
	if f.running[fl.id] == fl {
		delete(f.running, fl.id)
		f.group.Forget(fl.id)
	}
}

// guard runs fn on a goroutine of its own, so that neither a panic nor a
// Goexit in it reaches singleflight, which would end the process or leave the
// callers waiting.
func guard(fn func() (any, error)) (v any, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = errGoexit
		defer func() {
			if r := recover(); r != nil {
				err = &PanicError{Value: r, Stack: debug.Stack()}
			}
		}()
		v, err = fn()
	}()
	<-done
	return v, err
}
