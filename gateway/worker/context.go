package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// runContext is an execution's context. It carries the token and the chain of
// keys that are held along it. What costs something, a context that can be
// waited for and its registration with the partition, is made when first asked
// for. It implements [context.Context].
type runContext struct {
	parent  context.Context
	run     *run   // whose context it is
	life    uint64 // of run
	part    *partition
	cancels uint64 // part.cancels when the key was asked for
	key     string
	token   int64
	baggage string          // that the request goes on with; "" for a call
	client  context.Context // the caller's, if the execution outlives it; never changes once c is waited for
	left    time.Time       // when the client was found to have left; guarded by part.mu
	outer   *runContext     // whose key it is, if the execution runs within that one's
	flight  *flight         // whose function the execution runs, or nil
	born    uint64          // order among the contexts of the worker
	began   time.Duration   // since the worker's start; set if there is a timeout
	timeout time.Duration   // how long the execution may take; 0 for no bound
	streams atomic.Bool     // the answer goes on as a stream

	tracked    bool        // it is in part.live; guarded by part.mu, as what follows
	prev, next *runContext // there
	away       func()      // tells the client of a tunnel to connect again; nil if there is none
	gone       *time.Timer // ends a stream whose client has left; nil if it has not

	mu     sync.Mutex // guards what follows
	ended  bool
	within int             // executions that run within this one and have not ended
	inner  context.Context // nil until somebody waits for it
	stop   context.CancelCauseFunc
	serves interrupter // at the app; nil for none
}

// interrupter is what is ended when a context is cancelled.
type interrupter interface{ Interrupt() }

type runContextKey struct{}

// execution returns the execution of c, which must not have ended.
func (c *runContext) execution() execution { return execution{run: c.run, life: c.life, key: c.key} }

func (c *runContext) Deadline() (time.Time, bool) {
	deadline, ok := c.parent.Deadline()
	if c.timeout == 0 || c.streams.Load() {
		return deadline, ok
	}
	if end := c.part.worker.base.Add(c.began + c.timeout); !ok || end.Before(deadline) {
		return end, true
	}
	return deadline, true
}

func (c *runContext) Done() <-chan struct{} { return c.make().Done() }

func (c *runContext) Err() error {
	if ctx := c.settled(); ctx != nil {
		return ctx.Err()
	}
	return c.parent.Err()
}

// Value implements [context.Context]. Package context asks for its own kind of
// context in this way, to find the cause.
func (c *runContext) Value(key any) any {
	if key == (runContextKey{}) {
		return c
	}
	if ctx := c.settled(); ctx != nil {
		return ctx.Value(key)
	}
	return c.parent.Value(key)
}

// settled returns the inner context, nil if there is none and c is not
// cancelled for a reason of its own.
func (c *runContext) settled() context.Context {
	c.mu.Lock()
	inner, ended := c.inner, c.ended
	c.mu.Unlock()
	if inner == nil && (ended || c.part.cancels.Load() != c.cancels || c.late()) {
		return c.make()
	}
	return inner
}

// make returns the inner context.
func (c *runContext) make() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.stop = context.WithCancelCause(c.parent)
		switch {
		case c.ended:
			c.stop(nil)
		case !c.part.track(c):
			c.stop(ErrOwnershipLost)
		case c.late():
			c.stop(ErrTimeout)
		}
	}
	return c.inner
}

// cancel cancels c, and then interrupts what it serves.
func (c *runContext) cancel(cause error) {
	c.make()
	c.stop(cause)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serves != nil {
		c.serves.Interrupt()
	}
}

// Serve has e interrupted when c is cancelled, until LeaveOff is called, as if e
// waited for c, which costs more. c's parent must be one that never ends.
func (c *runContext) Serve(e interrupter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serves = e; !c.part.track(c) {
		e.Interrupt()
	}
}

// LeaveOff ends what Serve has begun.
func (c *runContext) LeaveOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serves = nil
}

// end cancels c, because its execution has ended. It reports whether others run
// within it yet, of which the last one frees the key.
func (c *runContext) end() (busy bool) {
	c.mu.Lock()
	c.ended = true
	stop, busy := c.stop, c.within > 0
	c.mu.Unlock()
	c.part.untrack(c)
	if stop != nil {
		stop(nil)
	}
	return busy
}

// ClientLeft notes that the client has left.
func (c *runContext) ClientLeft() {
	c.part.mu.Lock()
	defer c.part.mu.Unlock()
	if c.left.IsZero() {
		c.left = time.Now()
		if c.streams.Load() {
			c.gone = time.AfterFunc(c.part.worker.cfg.AbandonedTimeout, func() { c.cancel(errAbandoned) })
		}
	}
}

// detachedContext has the values of another context, and no execution.
type detachedContext struct{ context.Context }

// Value implements [context.Context].
func (c detachedContext) Value(key any) any {
	if key == (runContextKey{}) {
		return nil
	}
	return c.Context.Value(key)
}

// withoutExecutions returns a context with the values of ctx that never ends and
// belongs to no execution.
func withoutExecutions(ctx context.Context) context.Context {
	rest := context.WithoutCancel(ctx)
	if ctx.Value(runContextKey{}) == nil {
		return rest
	}
	return detachedContext{rest}
}

// innermost returns the innermost execution's context that ctx belongs to, or nil.
func innermost(ctx context.Context) *runContext {
	c, _ := ctx.Value(runContextKey{}).(*runContext)
	return c
}

var endedContext = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("worker: the execution has ended"))
	return ctx
}()

// TokenFrom returns the fencing token of the innermost execution that ctx
// belongs to, if that holds a key.
func TokenFrom(ctx context.Context) (token int64, ok bool) {
	c := innermost(ctx)
	if c == nil || isKeyless(c.key) {
		return 0, false
	}
	return c.token, true
}
