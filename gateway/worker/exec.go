package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/policy"
	"github.com/keyway-go/keyway/localmutex"
)

// execution is a [gateway.Execution] as its worker has it.
type execution struct {
	run  *run
	life uint64
	key  string
}

// public returns x as functions of callers get it.
func (x execution) public() gateway.Execution {
	return gateway.NewExecution(x.run, x.life, x.key, x.run.token)
}

// Context returns the context of [gateway.Execution].
func (x execution) Context() context.Context { return x.run.ExecutionContext(x.life, x.key) }

// isNone reports whether x is no execution.
func (x execution) isNone() bool { return x.run == nil }

// token returns the fencing token.
func (x execution) token() int64 { return x.run.token }

// partition returns the partition of the key.
func (x execution) partition() *partition { return x.run.part }

// trace returns what is told of the execution, nil for nothing.
func (x execution) trace() Trace { return x.run.trace }

// policy returns the policy of the request's route, nil for none.
func (x execution) policy() *policy.Policy { return x.run.policy }

// nested reports whether the execution runs within another one, which goes on to hold the key.
func (x execution) nested() bool { return x.run.outer != nil }

// lost reports whether all that the partition had admitted was cancelled since the key was asked for.
func (x execution) lost() bool { return x.run.part.cancels.Load() != x.run.cancels }

// join says with what other callers the execution runs. It must be called before its context is used.
func (x execution) join(j Joined) { x.run.joined = j }

// leaveChain makes the execution one of no caller: its context never ends with theirs, and belongs to no execution of
// theirs. It must be called before its context is used.
func (x execution) leaveChain() { x.run.parent = withoutExecutions(x.run.parent) }

// setClient makes client the one whose execution it is, as detach does.
func (x execution) setClient(client context.Context) {
	if c, ok := x.Context().(*runContext); ok {
		c.client = client
	}
}

// take offers accept the items of those that wait for the key, see [localmutex.Table.Take].
func (x execution) take(accept func(*localmutex.Item) (take, more bool)) {
	x.run.part.table.Take(x.key, x.run.token, accept)
}

// gather returns a channel that is closed when n more wait for the key, see [localmutex.Table.Gather].
func (x execution) gather(n int) <-chan struct{} {
	return x.run.part.table.Gather(x.key, x.run.token, n)
}

// queued returns how many wait for the key.
func (x execution) queued() int { return x.run.part.table.Queued(x.key) }

// ExecutionContext implements [gateway.Holder]. [TokenFrom] finds the token in the
// context.
func (r *run) ExecutionContext(life uint64, key string) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ask(life) {
		return endedContext
	}
	if r.ctx == nil {
		r.ctx = &runContext{
			parent: r.parent, run: r, life: life, part: r.part, cancels: r.cancels, key: key, token: r.token,
			outer: r.outer, joined: r.joined, born: r.part.keys.births.Add(1),
			began: r.began, timeout: r.timeout,
		}
	}
	return r.ctx
}

// detach makes x outlive its caller, the client, until the app has answered or
// for AbandonedTimeout. It must be called before x's context is used.
func (x execution) detach() {
	client := x.run.parent
	x.run.parent = context.WithoutCancel(client)
	x.setClient(client)
}

// run is the part of an execution that the worker keeps. Runs are pooled; state
// tells the executions that used one apart.
type run struct {
	part    *partition
	parent  context.Context
	token   int64
	cancels uint64         // part.cancels when the key was asked for
	outer   *runContext    // within which the execution runs, if it does not hold the key by itself
	joined  Joined         // what else runs with it, or nil
	began   time.Duration  // since the worker's start; set if there is a timeout, or to time the execution
	timeout time.Duration  // how long the execution may take; 0 for no bound
	policy  *policy.Policy // of the request's route; nil for none
	trace   Trace          // nil if nobody wants it

	state atomic.Uint64 // the execution's life, an even number; plus one once its context was asked for
	mu    sync.Mutex    // guards ctx, which is not touched in an even state
	ctx   *runContext   // nil until it is asked for
}

// ask reports whether the execution of that life goes on, in which case its
// context will be ended with it. It needs r.mu.
func (r *run) ask(life uint64) bool {
	return r.state.CompareAndSwap(life, life+1) || r.state.Load() == life+1
}

// end ends the execution of that life, unless it has ended, which it reports. It
// returns the execution's context, if it has one, for the caller to end.
func (r *run) end(life uint64) (ctx *runContext, ok bool) {
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

// look has the time taken that the execution of r holds its key, and counts the key unless
// that was done when it had to wait.
func (r *run) look(key string, waited bool) {
	k := r.part.keys
	r.began = k.now()
	if !waited {
		k.hot.looked(key, r.began)
	}
}

// reset gives r back for another execution.
func (r *run) reset() {
	r.parent, r.part, r.outer, r.joined, r.began, r.timeout, r.policy, r.trace = nil, nil, nil, nil, 0, 0, nil, nil
	runs.Put(r)
}

var runs = sync.Pool{New: func() any { return new(run) }}

// refuseTry returns the error of a caller that would have to wait because of err.
func (k *keys) refuseTry(p *partition, key string, err error) error {
	switch {
	case errors.Is(err, localmutex.ErrLocked):
		return &holds.Refused{Why: gateway.ErrLocked, Key: key, Text: "is held or waited for at worker " + k.cfg.Name + ": wait for it, or try again"}
	case errors.Is(err, localmutex.ErrClosed):
		return p.elsewhere(key)
	case errors.Is(err, gateway.ErrUnavailable):
		return k.unconfirmed(key)
	}
	return fmt.Errorf("%w for key %q: partition %d is between two epochs; try again", gateway.ErrUnavailable, key, p.number)
}

// unconfirmed says that nothing may start without the session.
func (k *keys) unconfirmed(key string) error {
	return fmt.Errorf("%w for key %q: the session of worker %s is not confirmed by the store", gateway.ErrUnavailable, key, k.cfg.Name)
}

// Trace is told what becomes of a request or call.
type Trace interface {
	// Waited notes a wait for key that has ended now, with err if the key was not had.
	Waited(p *partition, key string, took time.Duration, err error)
	// Begin notes that an execution begins, and returns the caller's ctx for it.
	Begin(ctx context.Context, p *partition, key string, token int64) context.Context
	// Ran notes for how long the execution has held the key.
	Ran(took time.Duration)
	// End notes its end, and why it was cancelled; "" if it was not.
	End(cancelled string)
}

// Joined is what several callers share who run as one execution.
type Joined interface {
	// KeepApart says that an execution begins within theirs, so that what they share is of the first one alone.
	KeepApart()
}

// waits is a request's origin, which bounds how many of its requests wait for their
// keys, and knows of each that waits that it has not begun.
// [link.ServerRequest] implements it.
type waits interface {
	BeginWait() bool
	NoteBegin()
	Begin() error
	EndWait()
}

// asking is how a caller asks for a key.
type asking struct {
	call    bool             // a call of this program, which cannot be sent elsewhere; not a request
	try     bool             // without waiting
	along   bool             // not if ctx descends from a hold that is not of this worker: errAlong
	shared  bool             // together with others, see [localmutex.Wait]
	maxWait time.Duration    // of a caller without a policy: how long it may wait, at most Limits.MaxWait; 0 for that long
	epoch   int64            // the highest that the caller knows for the key's partition, or 0
	share   waits            // where the request comes from; nil for no bound but the worker's own
	item    *localmutex.Item // what the holder of the key may take along, or nil

	alike bool // the item is of a request that may get the answer to an equal one

	policy *policy.Policy // of the caller's route; nil for none
	client uint64         // for whom it asks, see [localmutex.Wait]; 0 for the program itself
	trace  Trace          // is told what becomes of it; nil for none
}

// admit waits for key and returns the execution that holds it. If the holder of
// the key has taken the caller's item along, admit returns no execution once it
// is finished.
//
// The order matters: what cancels executions is read before the key is asked
// for and the lease is compared after it was granted, so neither a cancellation
// nor an expiry in between is missed, however long the process was stopped.
func (k *keys) admit(ctx context.Context, key string, how asking) (execution, error) {
	p, name, err := k.placeOf(key, &how)
	if err != nil {
		return execution{}, err
	}
	if ctx.Err() != nil {
		return execution{}, context.Cause(ctx)
	}
	if !how.limited() {
		return k.admitTo(ctx, p, name, how)
	}
	term, err := k.pay(ctx, p, key, how)
	if err != nil {
		return execution{}, err
	}
	x, err := k.admitTo(ctx, p, name, how)
	if notRun := err != nil || how.alike && x.run == nil; notRun {
		k.rates.giveBack(how.policy, key, term)
	}
	return x, err
}

// admitTo is admit for a key that has been checked, of that partition, and where no
// rate speaks against it.
func (k *keys) admitTo(ctx context.Context, p *partition, key string, how asking) (execution, error) {
	token, cancels, err := k.tryKey(p, key, false)
	waited := err != nil
	if waited {
		if x, nested, err := k.nest(ctx, key, how.call); nested {
			return x, err
		}
		if how.along && ctx.Value(holds.Along(key)) != nil {
			return execution{}, errAlong
		}
		token, cancels, err = k.awaitKey(ctx, p, key, how, err)
		if token == 0 {
			return execution{}, err
		}
	}
	k.won(p, token)
	r := runs.Get().(*run)
	r.part, r.parent, r.token, r.cancels = p, ctx, token, cancels
	if p.sampled(token) {
		r.look(key, waited)
	}
	if r.trace = how.trace; r.trace != nil {
		r.parent = r.trace.Begin(ctx, p, key, token)
	}
	r.policy = how.policy
	return execution{run: r, life: r.state.Load(), key: key}, nil
}

// win waits for key, for something that holds it without an execution of this
// process: it returns the token, and p.cancels as it was when the key was asked for.
func (k *keys) win(ctx context.Context, p *partition, key string, how asking) (token int64, cancels uint64, err error) {
	token, cancels, err = k.tryKey(p, key, how.shared)
	if waited := err != nil; waited {
		token, cancels, err = k.awaitKey(ctx, p, key, how, err)
	} else if p.sampled(token) {
		k.hot.looked(key, k.now())
	}
	if err == nil {
		k.won(p, token)
	}
	return token, cancels, err
}

// tryKey returns the token of key if that is free, and p.cancels as it was before.
func (k *keys) tryKey(p *partition, key string, shared bool) (token int64, cancels uint64, err error) {
	cancels = p.cancels.Load()
	if shared {
		token, err = p.table.TryShare(key)
	} else {
		token, err = p.table.TryLock(key)
	}
	if err == nil {
		err = k.confirm(p, key, token, cancels)
	}
	return token, cancels, err
}

// awaitKey goes on where tryKey has failed with err. The token is 0 unless the caller
// holds the key.
func (k *keys) awaitKey(ctx context.Context, p *partition, key string, how asking, err error) (token int64, cancels uint64, _ error) {
	came := k.now()
	k.hot.taken(key, came)
	if how.try {
		return 0, 0, k.refuseTry(p, key, err)
	}
	token, cancels, err = k.admitSlowly(ctx, p, key, how, err)
	took := k.now() - came
	ended := token != 0 || err != nil // by itself, and not with the execution that has taken it along
	if ended {
		k.counts.waited(p, took)
	}
	if how.trace != nil && (ended || how.alike) {
		how.trace.Waited(p, key, took, err)
	}
	return token, cancels, err
}

// won does what there is to do when a key is held from now on.
func (k *keys) won(p *partition, token int64) {
	if !k.slow.on.Load() {
		k.slow.begin()
	}
	p.minted(token)
}

// errAlong: the caller asked not to wait where a hold elsewhere has the key.
var errAlong = errors.New("worker: the key is held along the context")

// errCancelled: all that the partition had admitted was cancelled while a key
// of it was asked for.
var errCancelled = errors.New("worker: cancelled while the key was asked for")

// confirm compares the lease, and then what cancels, once key was granted. It
// frees key again if either says no. In this order, because the lease may be
// that of the worker's next incarnation: it came after the cancellation of all
// that the one before had admitted.
func (k *keys) confirm(p *partition, key string, token int64, cancels uint64) (err error) {
	admits := k.admits(time.Now())
	if k.confirming != nil {
		k.confirming()
	}
	switch {
	case !admits:
		err = gateway.ErrUnavailable
	case p.cancels.Load() != cancels:
		err = errCancelled
	default:
		return nil
	}
	p.unlock(key, token)
	return err
}

// errLinkFull: the link that a request came over carries many that wait.
var errLinkFull = fmt.Errorf("%w: half of what its link carries", gateway.ErrBusy)

// admitSlowly goes on where the key was not granted at once, or could not be
// confirmed, with err. The token is 0 unless the caller holds the key.
func (k *keys) admitSlowly(ctx context.Context, p *partition, key string, how asking, err error) (token int64, cancels uint64, _ error) {
	if how.share != nil {
		if !how.share.BeginWait() {
			return 0, 0, errLinkFull
		}
		defer how.share.EndWait()
	}
	ctx, end := k.waitAlong(ctx, key)
	defer end()
	wait, limit, waited := how.wait(), time.Now().Add(k.maxWait(how)), false
	for ; ; waited = true {
		switch {
		case errors.Is(err, localmutex.ErrClosed):
			waited = true
			if err := p.awaitOwnership(ctx, key, how, limit); err != nil {
				return 0, 0, err
			}
		case errors.Is(err, gateway.ErrUnavailable), !k.admits(time.Now()):
			return 0, 0, k.unconfirmed(key)
		}
		if waited {
			wait.MaxWait = max(time.Until(limit), 1)
		}
		cancels = p.cancels.Load()
		if how.item != nil {
			how.item.Wait = wait
			token, err = p.table.LockItem(ctx, key, how.item)
		} else {
			token, err = p.table.LockWait(ctx, key, wait)
		}
		if token != 0 && how.share != nil {
			if err := how.share.Begin(); err != nil { // before the lease is compared, since it takes time
				p.unlock(key, token)
				return 0, 0, cmp.Or(context.Cause(ctx), fmt.Errorf("%w for key %q: %w", gateway.ErrUnavailable, key, err))
			}
		}
		if token != 0 {
			err = k.confirm(p, key, token, cancels)
		}
		switch {
		case err == nil:
			return token, cancels, nil
		case errors.Is(err, localmutex.ErrQueueFull):
			return 0, 0, fmt.Errorf("%w for key %q: %w", gateway.ErrBusy, key, err)
		case ctx.Err() != nil:
			return 0, 0, context.Cause(ctx)
		case errors.Is(err, localmutex.ErrWaited):
			return 0, 0, &holds.Refused{Why: gateway.ErrWaited, Key: key, Text: fmt.Sprintf("was not free within %v at worker %s, and %d others wait for it: try again later", k.maxWait(how), k.cfg.Name, p.table.Queued(key))}
		case errors.Is(err, gateway.ErrUnavailable):
			return 0, 0, k.unconfirmed(key)
		case !errors.Is(err, localmutex.ErrClosed) && !errors.Is(err, errCancelled):
			return 0, 0, err
		}
	}
}

// release ends x and frees its key, once: it may be called again.
func (k *keys) release(x execution) {
	r := x.run
	ctx, ok := r.end(x.life)
	if !ok {
		return
	}
	p, token, outer, trace := r.part, r.token, r.outer, r.trace
	if r.began != 0 {
		k.counts.ran(r)
	}
	r.reset()
	if ctx == nil || !ctx.end() {
		p.free(x.key, token, outer)
	}
	if ctx != nil {
		ctx.noteEnd()
	}
	if trace != nil {
		trace.End(ctx.cancelled())
	}
}
