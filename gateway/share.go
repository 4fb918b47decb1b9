package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"

	"golang.org/x/sync/singleflight"
)

// errGoexit is what the callers of a shared function get when it calls
// runtime.Goexit instead of returning.
var errGoexit = errors.New("gateway: the shared function called runtime.Goexit")

// flights merges equal calls that run at the same time. Unlike a bare
// singleflight.Group each caller keeps its own context, the call's context
// ends when the last caller has left, and a panic comes back to the callers.
type flights struct {
	group singleflight.Group

	mu      sync.Mutex // guards running, and keeps it in step with group
	running map[string]*flight
}

type flight struct {
	callers int
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

func (f *flights) do(ctx context.Context, id string, fn func(context.Context) (any, error)) (v any, shared bool, err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, false, err
	}
	fl, done := f.join(ctx, id, fn)
	defer f.leave(id, fl)
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

func (f *flights) join(ctx context.Context, id string, fn func(context.Context) (any, error)) (*flight, <-chan singleflight.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl := f.running[id]
	if fl == nil {
		fl = new(flight)
		fl.ctx, fl.cancel = context.WithCancel(context.WithoutCancel(ctx))
		if f.running == nil {
			f.running = make(map[string]*flight)
		}
		f.running[id] = fl
	}
	fl.callers++
	return fl, f.group.DoChan(id, func() (any, error) {
		defer f.forget(id, fl)
		return guard(func() (any, error) { return fn(fl.ctx) })
	})
}

func (f *flights) leave(id string, fl *flight) {
	f.mu.Lock()
	fl.callers--
	last := fl.callers == 0
	f.mu.Unlock()
	if last {
		f.forget(id, fl)
		fl.cancel()
	}
}

// forget lets the next caller start anew.
func (f *flights) forget(id string, fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running[id] == fl {
		delete(f.running, id)
		f.group.Forget(id)
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
