package worker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
)

// errGoexit is what the callers of a shared function get when it calls
// runtime.Goexit instead of returning.
var errGoexit = errors.New("worker: the shared function called runtime.Goexit")

// flights merges equal calls that run at the same time. Unlike with a bare
// singleflight.Group each caller keeps its own context, the function's context ends
// when the last caller has left, and a panic comes back to the callers.
type flights struct {
	group singleflight.Group // by flight.call

	mu      sync.Mutex // guards running, last, and what the flights say it does
	running map[flightID]*flight
	last    uint64 // flight.call
}

// flightID is what calls have in common that are merged.
type flightID struct {
	key, op string
	result  reflect.Type
}

// flight is one run of a function for several callers. They join it until it is forgotten: before
// its key is free, or earlier if the ownership may be lost, the function asks for what its first
// caller holds, or all callers have left. The last one that leaves ends ctx.
type flight struct {
	of      *flights
	id      flightID
	call    string // unique in the process, for a key and op may have a flight while one that nobody joins any more ends
	cancels uint64 // partition.cancels when it began
	ctx     context.Context
	cancel  context.CancelFunc
	quit    chan struct{} // closed when the function has called runtime.Goexit

	callers int  // that wait; guarded by flights.mu, as the next two
	begun   bool // the function runs or has run
	apart   bool // it runs within what its first caller holds, so that its result is that one's alone
}

// join joins the flight of these calls, or begins one and reports first. It joins only a flight
// that Do could begin now: it compares the lease, and then the cancellations, as confirm does.
func (w *Worker) join(ctx context.Context, id flightID, fn func(gateway.Execution) (any, error)) (fl *flight, done <-chan singleflight.Result, first bool) {
	f, p := &w.flights, w.keys.Of(id.key)
	f.mu.Lock()
	defer f.mu.Unlock()
	fl = f.running[id]
	if fl != nil && !(w.keys.Admits(time.Now()) && p.Cancels.Load() == fl.cancels) {
		f.forgetLocked(fl)
		fl = nil
	}
	if first = fl == nil; first {
		f.last++
		fl = &flight{of: f, id: id, call: strconv.FormatUint(f.last, 36), cancels: p.Cancels.Load(), quit: make(chan struct{})}
		fl.ctx, fl.cancel = context.WithCancel(context.WithoutCancel(ctx))
		if f.running == nil {
			f.running = make(map[flightID]*flight)
		}
		f.running[id] = fl
	}
	fl.callers++
	return fl, f.group.DoChan(fl.call, func() (any, error) { return w.fly(fl, fn) }), first
}

// fly runs a flight's function with the key held. It returns a panic as an error, since
// singleflight would end the process. Before it lets a Goexit continue it closes quit, since
// singleflight would leave the callers waiting.
func (w *Worker) fly(fl *flight, fn func(gateway.Execution) (any, error)) (v any, err error) {
	f, returned := &w.flights, false
	defer func() {
		f.forget(fl)
		fl.cancel()
		if r := recover(); r != nil {
			err = &PanicError{Value: r, Stack: debug.Stack()}
		} else if !returned {
			close(fl.quit)
		}
	}()
	x, err := w.keys.Admit(fl.ctx, fl.id.key, keyed.Asking{Call: true, Trace: w.traceOfCall(fl.ctx)})
	if err != nil {
		returned = true
		return nil, w.counts.refused(fl.ctx, err)
	}
	defer w.keys.Release(x)
	defer f.forget(fl) // while the key is held: whoever comes after that may have changed what was read
	if f.beginFlight(fl) {
		x.Join(fl)
		v, err = fn(x.Public())
	} else {
		err = context.Cause(fl.ctx)
	}
	returned = true
	return v, err
}

// beginFlight records that the function runs from now on, unless all callers have left.
func (f *flights) beginFlight(fl *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.begun = fl.callers > 0
	return fl.begun
}

// await waits for the flight's result until ctx ends, or for limit if that is not 0. again says
// that a caller other than the first must call anew, since the result depends on keys that the
// first caller holds.
func (w *Worker) await(ctx context.Context, fl *flight, done <-chan singleflight.Result, limit time.Duration) (v any, shared, again bool, err error) {
	var timeout <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
		var end func()
		ctx, end = w.keys.WaitAlong(ctx, fl.id.key)
		defer end()
	}
	select {
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timeout:
		err = fmt.Errorf("%w: an equal request for key %q did not end within %v", gateway.ErrWaited, limit, fl.id.key)
	case <-fl.quit:
		return nil, false, false, fmt.Errorf("%w: %w", gateway.ErrMayHaveRun, errGoexit)
	case r := <-done:
		again = limit > 0 && w.flights.alone(fl, r.Err)
		if p, ok := r.Err.(*PanicError); ok && !again {
			p.raise()
		}
		return r.Val, r.Shared, again, r.Err
	}
	if w.flights.leaveFlight(fl) {
		err = fmt.Errorf("%w: %w", err, gateway.ErrMayHaveRun)
	}
	return nil, false, false, err
}

// alone reports whether what came of a flight that is done, with err, is its first
// caller's alone.
func (f *flights) alone(fl *flight, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, deadlock := errors.AsType[*gateway.DeadlockError](err)
	return fl.apart || !fl.begun && deadlock
}

// leaveFlight takes a caller off a flight that is not done, and reports whether the
// function may run all the same. The last one ends it.
func (f *flights) leaveFlight(fl *flight) (mayRun bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.callers--
	if fl.callers == 0 {
		f.forgetLocked(fl)
		fl.cancel()
	}
	return fl.begun || fl.callers > 0
}

// KeepApart implements [Joined].
func (fl *flight) KeepApart() {
	fl.of.mu.Lock()
	defer fl.of.mu.Unlock()
	fl.apart = true
	fl.of.forgetLocked(fl)
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
	}
}
