package keyed

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/appstate"
)

// maxHeld bounds how deep calls can nest.
const maxHeld = 32

// Context is an execution's context. It carries the token and the chain of keys held along it. It
// implements [context.Context]. Costly parts, a context that can be waited for and the registration
// with the partition, are made on first use. A Context runs, ends (ended), and may continue as a
// stream; mu guards the end and the nested executions, part.mu the registration.
type Context struct {
	parent     context.Context
	run        *run   // whose context it is, if the execution has a client of its own; or nil
	life       uint64 // of run
	part       *Partition
	cancels    uint64 // part.cancels when the key was asked for
	key        string
	token      int64
	baggage    string          // with which the request is sent on; "" for a call
	client     context.Context // the caller's, if the execution outlives it; never changes once c is waited for
	left       time.Duration   // when the client was found to have left, since the worker's start, 0 if it has not; guarded by part.mu
	outer      *Context        // whose key it is, if the execution runs within that one's
	joined     Joined          // the callers that share the execution, or nil
	born       uint64          // order among the contexts of the worker
	began      time.Duration   // since the worker's start; set if there is a timeout
	timeout    time.Duration   // how long the execution may take; 0 for no bound
	streams    atomic.Bool     // the answer continues as a stream
	tracked    bool            // it is in part.live; guarded by part.mu, as what follows
	prev, next *Context        // there
	away       func()          // tells the client of a tunnel to connect again; nil if there is none
	gone       *time.Timer     // ends a stream whose client has left; nil if it has not

	mu     sync.Mutex // guards what follows
	ended  bool
	within int32           // executions that run within this one and have not ended
	inner  context.Context // nil until the first wait for it
	stop   context.CancelCauseFunc
	serves interrupter // at the app; nil for none
}

// Key returns the key, or the name of an execution that holds none.
func (c *Context) Key() string { return c.key }

// Token returns the fencing token.
func (c *Context) Token() int64 { return c.token }

// Partition returns the number of the key's partition.
func (c *Context) Partition() int { return c.part.Number }

// Client returns the context of the client, which the execution's own outlives.
func (c *Context) Client() context.Context { return c.client }

// Streams reports whether the answer continues without the key.
func (c *Context) Streams() bool { return c.streams.Load() }

// Carried returns the baggage with which the request is sent on.
func (c *Context) Carried() string { return c.baggage }

// MayGoOn reports whether more may be begun for the execution.
func (c *Context) MayGoOn() bool { return c.Err() == nil && c.part.keys.Admits(time.Now()) }

// Reserve reserves up to n tokens above that of the execution: reserved of them, from first on.
func (c *Context) Reserve(n int) (first int64, reserved int) { return c.part.Reserve(n) }

// interrupter is what is ended when a context is cancelled.
type interrupter interface{ Interrupt() }

type runContextKey struct{}

// Execution returns the execution of c, which has a client of its own, and must not have ended.
func (c *Context) Execution() Execution { return Execution{run: c.run, life: c.life, Key: c.key} }

// Deadline implements [context.Context].
func (c *Context) Deadline() (time.Time, bool) {
	deadline, ok := c.parent.Deadline()
	if c.timeout == 0 || c.streams.Load() {
		return deadline, ok
	}
	if end := c.part.keys.base.Add(c.began + c.timeout); !ok || end.Before(deadline) {
		return end, true
	}
	return deadline, true
}

// Done implements [context.Context].
func (c *Context) Done() <-chan struct{} { return c.make().Done() }

// Err implements [context.Context].
func (c *Context) Err() error {
	if ctx := c.settled(); ctx != nil {
		return ctx.Err()
	}
	return c.parent.Err()
}

// Value implements [context.Context]. Package context asks for its own kind of
// context in this way, to find the cause.
func (c *Context) Value(key any) any {
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
func (c *Context) settled() context.Context {
	c.mu.Lock()
	inner, ended := c.inner, c.ended
	c.mu.Unlock()
	if inner == nil && (ended || c.part.Cancels.Load() != c.cancels || c.late()) {
		return c.make()
	}
	return inner
}

func (c *Context) make() context.Context {
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

// Cancel cancels c, and then interrupts what it serves.
func (c *Context) Cancel(cause error) {
	c.make()
	c.stop(cause)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serves != nil {
		c.serves.Interrupt()
	}
}

// Serve makes a cancellation of c interrupt e until LeaveOff is called. That is cheaper than a wait
// of e for c. c's parent must never end.
func (c *Context) Serve(e interrupter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serves = e; !c.part.track(c) {
		e.Interrupt()
	}
}

// LeaveOff ends what Serve has begun.
func (c *Context) LeaveOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serves = nil
}

// endExecution cancels c, because its execution has ended. It reports whether nested executions still run;
// the last of them releases the key.
func (c *Context) endExecution() (busy bool) {
	c.mu.Lock()
	c.ended = true
	stop, busy := c.stop, c.within > 0
	c.mu.Unlock()
	c.part.mu.Lock()
	c.part.untrackLocked(c)
	c.part.mu.Unlock()
	if stop != nil {
		stop(nil)
	}
	return busy
}

// ClientLeft records that the client has left.
func (c *Context) ClientLeft() {
	c.part.mu.Lock()
	defer c.part.mu.Unlock()
	if c.left == 0 {
		c.left = max(c.part.keys.Now(), 1)
		if c.streams.Load() {
			c.gone = time.AfterFunc(c.part.keys.cfg.AbandonedTimeout, func() { c.Cancel(errAbandoned) })
		}
	}
}

// Innermost returns the innermost execution's context that ctx belongs to, or nil.
func Innermost(ctx context.Context) *Context {
	c, _ := ctx.Value(runContextKey{}).(*Context)
	return c
}

var endedContext = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("worker: the execution has ended"))
	return ctx
}()

// TokenFrom returns the token of the innermost execution that ctx belongs to, if that holds a key.
func TokenFrom(ctx context.Context) (token int64, ok bool) {
	c := Innermost(ctx)
	if c == nil || IsKeyless(c.key) {
		return 0, false
	}
	return c.token, true
}

// enter begins an execution within that of c, unless it has ended.
func (c *Context) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended && c.within == 0 {
		return false
	}
	c.within++
	return true
}

// leaveNested ends an execution within that of c. The last one frees the key, if the
// execution of c has ended before.
func (c *Context) leaveNested() {
	c.mu.Lock()
	c.within--
	last := c.ended && c.within == 0
	c.mu.Unlock()
	if last {
		c.part.freeKey(c.key, c.token, c.outer)
	}
}

// holds reports whether c's key is still held.
func (c *Context) holds() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.ended || c.within > 0
}

// keepApart keeps apart what runs along ctx, up to the execution
// of c, with other callers: they use what their first callers hold, in the midst of what these do.
func keepApart(ctx context.Context, c *Context) {
	for inner := Innermost(ctx); inner != c; inner = Innermost(inner.parent) {
		if inner.joined != nil {
			inner.joined.KeepApart()
		}
	}
}

// chainOf names the keys that are held along ctx, from the outermost on.
func chainOf(ctx context.Context) string {
	var keys []string
	for c := Innermost(ctx); c != nil && len(keys) < maxHeld; c = Innermost(c.parent) {
		keys = append(keys, strconv.Quote(c.key))
	}
	slices.Reverse(keys)
	return strings.Join(keys, ", ")
}

// late reports whether the execution of c has taken as long as it may.
func (c *Context) late() bool { return c.timeout != 0 && c.part.keys.Now() >= c.began+c.timeout }

// cause returns why the execution of c was cancelled, if it was; perhaps that it has ended.
func (c *Context) cause() error {
	c.mu.Lock()
	inner := c.inner
	c.mu.Unlock()
	if inner == nil {
		return nil
	}
	return context.Cause(inner)
}

// cancelled returns the name of why the execution of c was cancelled, "" if it was not. c may be nil.
func (c *Context) cancelled() string {
	if c == nil {
		return ""
	}
	if cause, ok := cancelCauseOf(c.cause()); ok {
		return cause.String()
	}
	return ""
}

// noteEnd counts an execution that was cancelled, once it has ended, and logs it if that was by
// its timeout.
func (c *Context) noteEnd() {
	k, cause := c.part.keys, c.cause()
	if why, cancelled := cancelCauseOf(cause); cancelled {
		k.Counts.cancelled[why].Add(1)
	}
	if cause != gateway.ErrTimeout {
		return
	}
	k.cfg.Log.Warn("an execution was cancelled: it exceeded its time limit (Limits.Timeout, --timeout)",
		"key", c.key, "partition", c.part.Number, "token", c.token, "timeout", c.timeout, "ran", k.Now()-c.began)
}

// detachExecution records that the execution of c has ended while its context continues. It reports whether
// nested executions still run; the last of them releases the key.
func (c *Context) detachExecution() (busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.within > 0
}

// stream makes c the context of a stream, which is bound neither by a timeout nor by
// its key's lease.
func (c *Context) stream() *Stream {
	s, p := &Stream{run: c}, c.part
	c.streams.Store(true)
	p.mu.Lock()
	p.untrackLocked(c)
	stays := p.Open.Load() // which is said before endStreams looks
	if stays && p.streams == nil {
		p.streams = make(map[*Context]struct{})
	}
	if stays {
		p.streams[c] = struct{}{}
	}
	p.mu.Unlock()
	if !stays {
		c.Cancel(appstate.ErrStreamEnds)
	}
	if c.client != nil {
		s.unhook = context.AfterFunc(c.client, func() { c.Cancel(errClientLeft) })
	}
	return s
}
