package keyed

import (
	"context"
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

// Join says with what other callers the execution runs. It must be called before its context is used.
func (x Execution) Join(j Joined) { x.run.joined = j }

// LeaveChain makes the execution one of no caller: its context never ends with theirs, and belongs
// to no execution of theirs. It must be called before its context is used.
func (x Execution) LeaveChain() {
	parent := context.WithoutCancel(x.run.parent)
	if Innermost(parent) != nil {
		parent = context.WithValue(parent, runContextKey{}, (*Context)(nil))
	}
	x.run.parent = parent
}

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

// Gather returns a channel that is closed when n more wait for the key, see [keytable.Table.Gather].
func (x Execution) Gather(n int) <-chan struct{} {
	return x.run.part.Table.Gather(x.Key, x.run.token, n)
}

// Queued returns how many wait for the key.
func (x Execution) Queued() int { return x.run.part.Table.Queued(x.Key) }

// ExecutionContext is for [gateway.Execution]. [TokenFrom] finds the token in the
// context.
func (r *run) ExecutionContext(life uint64, key string) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.state.CompareAndSwap(life, life+1) && r.state.Load() != life+1 {
		return endedContext
	}
	if r.ctx == nil {
		r.ctx = &Context{
			parent: r.parent, part: r.part, cancels: r.cancels, key: key, token: r.token,
			outer: r.outer, joined: r.joined, born: r.part.keys.births.Add(1),
			began: r.began, timeout: r.timeout,
		}
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

// run is the part of an execution that the worker keeps. Runs are pooled. state tells the
// executions that used one apart, and whether a context was asked for; mu guards ctx.
type run struct {
	part    *Partition
	parent  context.Context
	token   int64
	cancels uint64          // part.cancels when the key was asked for
	outer   *Context        // the execution around it, if that holds the key
	joined  Joined          // the callers that share the execution, or nil
	began   time.Duration   // since the worker's start; set if there is a timeout, or to time the execution
	timeout time.Duration   // how long the execution may take; 0 for no bound
	policy  *policy.Policy  // of the request's route; nil for none
	trace   Trace           // nil for none
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
		k.hot.looked(key, r.began)
	}
}

// reset counts an execution that has ended, and gives r back for another one.
func (r *run) reset() {
	if r.began != 0 {
		r.part.keys.Counts.ran(r)
	}
	r.atApp.End()
	r.parent, r.part, r.outer, r.joined, r.began, r.timeout, r.policy, r.trace, r.atApp = nil, nil, nil, nil, 0, 0, nil, nil, nil
	runs.Put(r)
}

var runs = sync.Pool{New: func() any { return new(run) }}

// Bound ends x when it has taken that long. It must be called before x's context
// is used.
func (x Execution) Bound(timeout time.Duration) {
	x.run.began, x.run.timeout = x.run.part.keys.Now(), timeout
}

// Carry records the baggage with which x is sent on. It must be called before x's context is used.
func (x Execution) Carry(baggage string) {
	if c, ok := x.Context().(*Context); ok {
		c.baggage = baggage
	}
}

// LetGo frees the key of an execution whose answer begins and is a stream, if its route's mode
// allows that. Only the app's answer can cause this. The execution's context continues until the
// stream ends, the client leaves or the partition is given away. LetGo returns nil if the key stays
// held.
func (x Execution) LetGo() *Stream {
	r := x.run
	if r.policy != nil && r.policy.Mode == policy.Serialize {
		return nil
	}
	c, ok := x.Context().(*Context)
	if !ok {
		return nil
	}
	c.make()
	if _, ok := r.endLife(x.life); !ok {
		return nil
	}
	p, token, outer := r.part, r.token, r.outer
	r.reset()
	s := c.stream()
	if !c.detachExecution() {
		p.freeKey(x.Key, token, outer)
	}
	return s
}
