package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime/debug"
	"sync"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
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
		fl, first := w.join(ctx, id, func(x gateway.Execution) (any, error) { return fn(x) })
		limit := w.cfg.MaxWait
		if first {
			limit = 0 // its own run of Do is bounded
		}
		result, shared, again, err := w.await(ctx, fl, limit)
		if !again {
			if shared && err == nil {
				w.counts.shared.Add(1)
			}
			v, _ = result.(T)
			return v, shared, err
		}
	}
}

// PanicError is a panic of a function that ran for several callers, on a goroutine of its own. The
// callers' stacks do not show its origin. [Share] raises it again in each caller, except
// [http.ErrAbortHandler], which is raised unwrapped. It is a [gateway.ErrMayHaveRun].
type PanicError struct {
	Value any    // what the function panicked with
	Stack []byte // of the goroutine that panicked
}

func (p *PanicError) Error() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }

// Is makes the error an [gateway.ErrMayHaveRun].
func (p *PanicError) Is(target error) bool { return target == gateway.ErrMayHaveRun }

// Unwrap returns Value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// errGoexit is what the callers of a shared function get when it calls
// runtime.Goexit instead of returning.
var errGoexit = errors.New("worker: the shared function called runtime.Goexit")

// flights merges equal calls that run at the same time. Unlike with a singleflight.Group each
// caller keeps its own context, the function's context ends when the last caller has left, and a
// panic comes back to the callers.
type flights struct {
	mu      sync.Mutex // guards running, and what the flights say it does
	running map[flightID]*flight
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
	cancels uint64 // partition.cancels when it began
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{} // closed when the function has ended, or will not run
	value   any           // set before, as err
	err     error

	callers int  // that wait; guarded by flights.mu, as the next three
	shared  bool // more than one has joined
	begun   bool // the function runs or has run
	apart   bool // it runs within what its first caller holds, so that its result is that one's alone
}

// join joins the flight of these calls, or begins one and reports first. It joins only a flight
// that Do could begin now: it compares the lease, and then the cancellations, as confirm does.
func (w *Worker) join(ctx context.Context, id flightID, fn func(gateway.Execution) (any, error)) (fl *flight, first bool) {
	f, p := &w.flights, w.keys.Of(id.key)
	f.mu.Lock()
	defer f.mu.Unlock()
	fl = f.running[id]
	if fl != nil && !(w.keys.Admits(time.Now()) && p.Cancels.Load() == fl.cancels) {
		f.forgetLocked(fl)
		fl = nil
	}
	if first = fl == nil; first {
		fl = &flight{of: f, id: id, cancels: p.Cancels.Load(), done: make(chan struct{})}
		fl.ctx, fl.cancel = context.WithCancel(context.WithoutCancel(ctx))
		if f.running == nil {
			f.running = make(map[flightID]*flight)
		}
		f.running[id] = fl
		go w.fly(fl, fn)
	}
	fl.callers++
	fl.shared = !first
	return fl, first
}

// fly runs a flight's function with the key held.
func (w *Worker) fly(fl *flight, fn func(gateway.Execution) (any, error)) {
	f := &w.flights
	fl.err = fmt.Errorf("%w: %w", gateway.ErrMayHaveRun, errGoexit) // unless the function returns
	defer func() {
		f.forget(fl)
		fl.cancel()
		if r := recover(); r != nil {
			fl.err = &PanicError{Value: r, Stack: debug.Stack()}
		}
		close(fl.done)
	}()
	x, err := w.keys.Admit(fl.ctx, fl.id.key, keyed.Asking{Call: true, Trace: w.traceOfCall(fl.ctx)})
	if err != nil {
		fl.err = w.counts.refused(fl.ctx, err)
		return
	}
	defer w.keys.Release(x)
	defer f.forget(fl) // while the key is held: whoever comes after that may have changed what was read
	if f.begin(fl) {
		x.Join(fl)
		fl.value, fl.err = fn(x.Public())
	} else {
		fl.err = context.Cause(fl.ctx)
	}
}

func (f *flights) begin(fl *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.begun = fl.callers > 0
	return fl.begun
}

// await waits for the flight's result until ctx ends, or for limit if that is not 0. The
// result may depend on keys that the first caller holds; again then tells every other caller to call
// anew.
func (w *Worker) await(ctx context.Context, fl *flight, limit time.Duration) (v any, shared, again bool, err error) {
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
		err = fmt.Errorf("%w: an equal request for key %q did not end within %v", gateway.ErrWaited, fl.id.key, limit)
	case <-fl.done:
		again = limit > 0 && w.flights.alone(fl)
		if p, ok := fl.err.(*PanicError); ok && !again {
			if p.Value == http.ErrAbortHandler {
				panic(http.ErrAbortHandler)
			}
			panic(p)
		}
		return fl.value, fl.shared, again, fl.err
	}
	if w.flights.leave(fl) {
		err = fmt.Errorf("%w: %w", err, gateway.ErrMayHaveRun)
	}
	return nil, false, false, err
}

// alone reports whether what came of a flight that is done is its first caller's alone.
func (f *flights) alone(fl *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, deadlock := errors.AsType[*gateway.DeadlockError](fl.err)
	return fl.apart || !fl.begun && (deadlock || errors.Is(fl.err, gateway.ErrNested))
}

// leave takes a caller off a flight that is not done, and reports whether the
// function may run all the same. The last one ends it.
func (f *flights) leave(fl *flight) (mayRun bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.callers--
	if fl.callers == 0 {
		f.forgetLocked(fl)
		fl.cancel()
	}
	return fl.begun || fl.callers > 0
}

// KeepApart implements [keyed.Joined].
func (fl *flight) KeepApart() {
	fl.of.mu.Lock()
	defer fl.of.mu.Unlock()
	fl.apart = true
	fl.of.forgetLocked(fl)
}

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
