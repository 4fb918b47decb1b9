package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
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
	joined  Joined          // what else runs with the execution, or nil
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

// Key returns the key, or the name of an execution that holds none.
func (c *runContext) Key() string { return c.key }

// Token returns the fencing token.
func (c *runContext) Token() int64 { return c.token }

// Partition returns the number of the key's partition.
func (c *runContext) Partition() int { return c.part.number }

// Client returns the context of the client, which the execution's own outlives.
func (c *runContext) Client() context.Context { return c.client }

// Streams reports whether the answer goes on without the key.
func (c *runContext) Streams() bool { return c.streams.Load() }

// carried returns the baggage that the request goes on with.
func (c *runContext) carried() string { return c.baggage }

// MayGoOn reports whether more may be begun for the execution.
func (c *runContext) MayGoOn() bool { return c.Err() == nil && c.part.keys.admits(time.Now()) }

// Reserve reserves up to n tokens above that of the execution: reserved of them, from first on.
func (c *runContext) Reserve(n int) (first int64, reserved int) { return c.part.reserve(n) }

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
	if end := c.part.keys.base.Add(c.began + c.timeout); !ok || end.Before(deadline) {
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
			c.stop(gateway.ErrOwnershipLost)
		case c.late():
			c.stop(gateway.ErrTimeout)
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
			c.gone = time.AfterFunc(c.part.keys.cfg.AbandonedTimeout, func() { c.cancel(errAbandoned) })
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

// running returns what is known of the execution with that token: whether its client has left, how long it runs and may
// run; 0 for no bound.
func (p *partition) running(token int64) (gone bool, ran, limit time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := p.live; c != nil; c = c.next {
		if c.token == token {
			return !c.left.IsZero(), p.keys.now() - c.began, c.timeout
		}
	}
	return false, 0, 0
}

// chain yields the contexts of the executions that ctx belongs to, the innermost
// first.
func chain(ctx context.Context) func(yield func(*runContext) bool) {
	return func(yield func(*runContext) bool) {
		for c := innermost(ctx); c != nil && yield(c); {
			c = innermost(c.parent)
		}
	}
}

// isWithin reports whether ctx belongs to an execution.
func isWithin(ctx context.Context) bool { return innermost(ctx) != nil }

// heldBy reports whether the innermost execution that ctx belongs to is one of key at this worker.
func (k *keys) heldBy(ctx context.Context, key string) bool {
	c := innermost(ctx)
	return c != nil && c.part.keys == k && c.key == key
}

// tokenAlong returns the token of the execution along ctx that holds key at this worker.
func (k *keys) tokenAlong(ctx context.Context, key string) (token int64, ok bool) {
	for c := range chain(ctx) {
		if c.part.keys == k && c.key == key && c.holds() {
			return c.token, true
		}
	}
	return 0, false
}

var endedContext = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("worker: the execution has ended"))
	return ctx
}()

// ownToken returns the token of the innermost execution that ctx belongs to, if that holds a key.
func ownToken(ctx context.Context) (token int64, ok bool) {
	c := innermost(ctx)
	if c == nil || isKeyless(c.key) {
		return 0, false
	}
	return c.token, true
}

// ErrAllLeft is the cause with which the context of a batch is cancelled when
// nobody waits for it any more.
var ErrAllLeft = errors.New("worker: the callers of all items of the batch have left")
