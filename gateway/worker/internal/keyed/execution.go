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
	"github.com/keyway-go/keyway/internal/appwork"
	"github.com/keyway-go/keyway/internal/keytable"
	"github.com/keyway-go/keyway/internal/policy"
)

// Execution is a [gateway.Execution] as its worker has it.
type Execution struct {
	run  *run
	life uint64
	Key  string
}

// Public returns x as functions of callers get it.
func (x Execution) Public() gateway.Execution {
	return gateway.NewExecution(x.run, x.life, x.Key, x.run.token)
}

// Context returns the context of [gateway.Execution].
func (x Execution) Context() context.Context { return x.run.ExecutionContext(x.life, x.Key) }

// IsNone reports whether x is no execution.
func (x Execution) IsNone() bool { return x.run == nil }

// Token returns the fencing token.
func (x Execution) Token() int64 { return x.run.token }

// Partition returns the partition of the key.
func (x Execution) Partition() *Partition { return x.run.part }

// Trace returns the execution's trace, nil for none. It may be called of no execution.
func (x Execution) Trace() Trace {
	if x.run == nil {
		return nil
	}
	return x.run.trace
}

// Policy returns the policy of the request's route, nil for none.
func (x Execution) Policy() *policy.Policy { return x.run.policy }

// Nested reports whether the execution runs within another one, which continues to hold the key.
func (x Execution) Nested() bool { return x.run.outer != nil }

// Lost reports whether all that the partition had admitted was cancelled since the key was asked for.
func (x Execution) Lost() bool { return x.run.part.Cancels.Load() != x.run.cancels }

// UsesOuter reports whether a call with the execution's context has run within an execution or a lock around it.
func (x Execution) UsesOuter() bool {
	c, ok := x.Context().(*Context)
	return ok && c.usesOuter.Load()
}

// LeaveChain makes the execution one of no caller: its context never ends with theirs, and belongs
// to nothing that they hold. It must be called before its context is used.
func (x Execution) LeaveChain() { x.run.parent = &outsider{context.Background(), x.run.parent} }

// outsider is a context with the values of a caller's, except for what leads to the keys that the caller holds.
type outsider struct {
	context.Context
	caller context.Context
}

// Value implements [context.Context].
func (o *outsider) Value(key any) any {
	if _, ok := key.(alongKey); ok {
		return nil
	}
	return o.caller.Value(key)
}

// alongKey is what the keys of context values have in common that find who holds a key along a context: executions,
// and locks of package client and of fallback/lock.
type alongKey interface{ FindsHolder() }

// SetClient makes client the one whose execution it is, as detach does.
func (x Execution) SetClient(client context.Context) {
	if c, ok := x.Context().(*Context); ok {
		c.client, c.run, c.life = client, x.run, x.life
	}
}

// Take offers accept the items that wait for the key, see [keytable.Table.Take].
func (x Execution) Take(accept func(*keytable.Item) (take, more bool)) {
	x.run.part.Table.Take(x.Key, x.run.token, accept)
}

// Queued returns how many wait for the key.
func (x Execution) Queued() int { return x.run.part.Table.Queued(x.Key) }

// ExecutionContext is for [gateway.Execution]. [TokenFrom] finds the token in the context.
func (r *run) ExecutionContext(life uint64, key string) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.state.CompareAndSwap(life, life+1) && r.state.Load() != life+1 {
		return endedContext
	}
	if r.ctx == nil {
		r.ctx = &Context{admission: r.admission, key: key, born: r.part.keys.births.Add(1)}
	}
	return r.ctx
}

// Detach makes x outlive its caller, the client, until the app has answered or
// for AbandonedTimeout. It must be called before x's context is used.
func (x Execution) Detach() {
	client := x.run.parent
	x.run.parent = context.WithoutCancel(client)
	x.SetClient(client)
}

// GoesTo counts x in the record of an app, before anything of it is sent there, until its key is
// free.
func (x Execution) GoesTo(app *appwork.Record) {
	if !IsKeyless(x.Key) {
		app.Begin()
		x.run.atApp = app
	}
}

// admission is what an execution and its context have in common.
type admission struct {
	part    *Partition
	parent  context.Context
	token   int64
	cancels uint64        // part.cancels when the key was asked for
	outer   *Context      // the execution around it, if that holds the key
	began   time.Duration // since the worker's start; set if there is a timeout, or to time the execution
	timeout time.Duration // how long the execution may take; 0 for no bound
}

// run is the part of an execution that the worker keeps. Runs are pooled. state tells the
// executions that used one apart, and whether a context was asked for; mu guards ctx.
type run struct {
	admission
	policy  *policy.Policy  // of the request's route; nil for none
	trace   Trace           // nil for none
	watched bool            // Keys.Guard wants to know of the end
	atApp   *appwork.Record // that counts the execution until its key is free; nil for none

	state atomic.Uint64 // the execution's life, an even number; plus one once its context was asked for
	mu    sync.Mutex    // guards ctx, which is not touched in an even state
	ctx   *Context      // nil until it is asked for
}

// endLife ends the execution of that life, unless it has ended, which it reports. It
// returns the execution's context, if it has one, for the caller to endLife.
func (r *run) endLife(life uint64) (ctx *Context, ok bool) {
	if r.state.Load() == life && r.state.CompareAndSwap(life, life+2) {
		return nil, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.state.CompareAndSwap(life+1, life+2) {
		return nil, false
	}
	ctx, r.ctx = r.ctx, nil
	return ctx, true
}

// noteStart has the time taken that the execution of r holds its key, and counts the key unless
// that was done when it had to wait.
func (r *run) noteStart(key string, waited bool) {
	k := r.part.keys
	r.began = k.Now()
	if !waited {
		k.hot.add(key, sampleEvery, r.began)
	}
}

// reset counts the execution of key, which has ended, tells its guard, and gives r back for another one.
func (r *run) reset(key string) {
	if r.watched {
		r.part.keys.Guard.End(KeyOf(key))
	}
	if r.began != 0 {
		r.part.keys.Counts.ran(r)
	}
	r.atApp.End()
	r.admission, r.policy, r.trace, r.watched, r.atApp = admission{}, nil, nil, false, nil
	runs.Put(r)
}

var runs = sync.Pool{New: func() any { return new(run) }}

// Bound ends x when it has taken that long. It counts x as a request. It must be called before x's
// context is used.
func (x Execution) Bound(timeout time.Duration) {
	r := x.run
	r.began, r.timeout = r.part.keys.Now(), timeout
	t := r.tally()
	if t.counts[countRequests].Add(1); t != &r.part.tally {
		r.part.tally.counts[countUnkeyed].Add(1)
	}
}

// Carry records the baggage with which x is sent on. It must be called before x's context is used.
func (x Execution) Carry(baggage string) {
	if c, ok := x.Context().(*Context); ok {
		c.baggage = baggage
	}
}

// ran counts an execution that has begun at r.began.
func (c *Counts) ran(r *run) {
	took := r.part.keys.Now() - r.began
	if t := r.tally(); r.timeout != 0 {
		c.Requests.Observe(r.part.Number, took)
		t.counts[countRan].Add(int64(took))
	} else {
		c.Calls.Observe(r.part.Number, took)
		t.counts[countSamples].Add(1)
		t.counts[countSampled].Add(int64(took))
	}
	if r.trace != nil {
		r.trace.Ran(took)
	}
}

// freeKey frees key when an execution and its nested executions have ended. If the execution is itself
// nested, the outer one continues to hold key.
func (p *Partition) freeKey(key string, token int64, outer *Context) {
	if outer != nil {
		outer.leaveNested()
		return
	}
	p.Unlock(key, token)
}

// maxHeld bounds how deep calls can nest.
const maxHeld = 32

// Context is an execution's context. It carries the token and the chain of keys held along it. It
// implements [context.Context]. Costly parts, a context that can be waited for and the registration
// with the partition, are made on first use. A Context runs, ends (ended), and may continue as a
// stream; mu guards the end and the nested executions, part.mu the registration.
type Context struct {
	admission
	run       *run   // whose context it is, if the execution has a client of its own; or nil
	life      uint64 // of run
	key       string
	baggage   string          // with which the request is sent on; "" for a call
	client    context.Context // the caller's, if the execution outlives it; never changes once c is waited for
	left      time.Duration   // when the client was found to have left, since the worker's start, 0 if it has not; guarded by part.mu
	born      uint64          // order among the contexts of the worker
	streams   atomic.Bool     // the answer continues as a stream
	usesOuter atomic.Bool     // see Execution.UsesOuter
	unhook    func() bool     // ends a stream's watch of its client; nil for none
	gone      *time.Timer     // ends a stream whose client has left, nil if it has not; guarded by part.mu

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

func (runContextKey) FindsHolder() {}

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
	if _, ok := key.(alongKey); ok {
		holder := c.parent.Value(key)
		if holder != nil {
			c.usesOuter.Store(true)
		}
		return holder
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

// endExecution cancels c, because its execution has ended, unless it continues as a stream. It reports whether nested
// executions still run; the last of them releases the key.
func (c *Context) endExecution() (busy bool) {
	c.mu.Lock()
	c.ended = true
	stop, busy := c.stop, c.within > 0
	c.mu.Unlock()
	if c.streams.Load() {
		return busy
	}
	c.part.mu.Lock()
	delete(c.part.live, c)
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

func (c *Context) holds() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.ended || c.within > 0
}

func chainOf(ctx context.Context) string {
	var keys []string
	for c := Innermost(ctx); c != nil && len(keys) < maxHeld; c = Innermost(c.parent) {
		keys = append(keys, strconv.Quote(c.key))
	}
	slices.Reverse(keys)
	return strings.Join(keys, ", ")
}

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

// noteEnd counts an execution that was cancelled, once it has ended, and logs it if that was by
// its timeout. It returns the name of why it was cancelled, "" if it was not.
func (c *Context) noteEnd() (reason string) {
	k, cause := c.part.keys, c.cause()
	n, reason := k.Counts.cancelled(cause)
	if n != nil {
		n.Add(1)
	}
	if cause == gateway.ErrTimeout {
		k.cfg.Log.Warn("an execution was cancelled: it exceeded its time limit (Limits.Timeout, --timeout)",
			"key", c.key, "partition", c.part.Number, "token", c.token, "timeout", c.timeout, "ran", k.Now()-c.began)
	}
	return reason
}

// HeldBy reports whether the innermost execution that ctx belongs to is one of key at this worker.
func (k *Keys) HeldBy(ctx context.Context, key string) bool {
	c := Innermost(ctx)
	return c != nil && c.part.keys == k && c.key == key
}

// Along reports whether an execution along ctx holds key at this worker.
func (k *Keys) Along(ctx context.Context, key string) bool {
	for c := Innermost(ctx); c != nil; c = Innermost(c.parent) {
		if c.part.keys == k && c.key == key && c.holds() {
			return true
		}
	}
	return false
}
