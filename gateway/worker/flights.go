package worker

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"

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
