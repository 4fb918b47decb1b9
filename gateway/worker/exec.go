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

// Execution is one admitted run of a function or handler, see [gateway.Execution].
type Execution = gateway.Execution

// execution is an Execution as the worker has it.
type execution struct {
	run  *run
	life uint64
	key  string
}

// public returns x as functions of callers get it.
func (x execution) public() Execution { return gateway.NewExecution(x.run, x.life, x.key, x.run.token) }

// Context returns the context of [gateway.Execution].
func (x execution) Context() context.Context { return x.run.ExecutionContext(x.life, x.key) }

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
			outer: r.outer, flight: r.flight, born: r.part.worker.births.Add(1),
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
	if c, ok := x.Context().(*runContext); ok {
		c.client = client
	}
}

// run is the part of an execution that the worker keeps. Runs are pooled; state
// tells the executions that used one apart.
type run struct {
	part    *partition
	parent  context.Context
	token   int64
	cancels uint64         // part.cancels when the key was asked for
	outer   *runContext    // within which the execution runs, if it does not hold the key by itself
	flight  *flight        // whose function it runs, or nil
	began   time.Duration  // since the worker's start; set if there is a timeout, or to time the execution
	timeout time.Duration  // how long the execution may take; 0 for no bound
	policy  *policy.Policy // of the request's route; nil for none
	timing  *timing        // gets the times of the execution; nil if nobody wants them

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
	w := r.part.worker
	r.began = w.now()
	if !waited {
		w.hot.looked(key, r.began)
	}
}

// reset gives r back for another execution.
func (r *run) reset() {
	r.parent, r.part, r.outer, r.flight, r.began, r.timeout, r.policy, r.timing = nil, nil, nil, nil, 0, 0, nil, nil
	runs.Put(r)
}

var runs = sync.Pool{New: func() any { return new(run) }}

// Do runs fn while it holds key: no other execution of the key runs at the
// same time, here or on another worker (see docs/guarantees.md for the
// conditions). Callers of one key run in the order in which they came. Within an
// execution, that is with its context, a call for the key that it holds runs at
// once as a part of it, with the same token. Do
// returns fn's error, or without having run it: ctx's cause, an error that
// wraps [gateway.ErrNoKey] or [gateway.ErrBadKey], [ErrBusy], [ErrWaited] or
// [ErrUnavailable], a [*DeadlockError] or a [*NotOwnerError]. While no live worker owns the key it
// waits, for at most Limits.MaxWait: then the error is an [*UnownedError].
func (w *Worker) Do(ctx context.Context, key string, fn func(Execution) error) error {
	x, err := w.admit(ctx, key, asking{call: true, timing: w.timingOfCall(ctx)})
	if err != nil {
		return w.counts.refused(ctx, err)
	}
	defer w.release(x)
	return fn(x.public())
}

// TryDo is [Worker.Do] for a caller that does not wait. Its error wraps [ErrLocked] if
// another execution holds key, or others wait for it, and [ErrUnavailable] if the worker
// admits nothing. It is a [*NotOwnerError] or [*UnownedError] if this worker does not
// serve key.
func (w *Worker) TryDo(ctx context.Context, key string, fn func(Execution) error) error {
	x, err := w.admit(ctx, key, asking{call: true, try: true, timing: w.timingOfCall(ctx)})
	if err != nil {
		return w.counts.refused(ctx, err)
	}
	defer w.release(x)
	return fn(x.public())
}

// refuseTry returns the error of a caller that would have to wait because of err.
func (w *Worker) refuseTry(p *partition, key string, err error) error {
	switch {
	case errors.Is(err, localmutex.ErrLocked):
		return &holds.Refused{Why: ErrLocked, Key: key, Text: "is held or waited for at worker " + w.name + ": wait for it, or try again"}
	case errors.Is(err, localmutex.ErrClosed):
		return p.elsewhere(key)
	case errors.Is(err, ErrUnavailable):
		return w.unconfirmed(key)
	}
	return fmt.Errorf("%w for key %q: partition %d is between two epochs; try again", ErrUnavailable, key, p.number)
}

// unconfirmed says that nothing may start without the session.
func (w *Worker) unconfirmed(key string) error {
	return fmt.Errorf("%w for key %q: the session of worker %s is not confirmed by the store", ErrUnavailable, key, w.name)
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

	collapse *collapsible // whose item it is, if that is of an equal request; or nil

	policy *policy.Policy // of the caller's route; nil for none
	client uint64         // for whom it asks, see [localmutex.Wait]; 0 for the program itself
	timing *timing        // gets the times of the request or call; nil if nobody wants them
}

// admit waits for key and returns the execution that holds it. If the holder of
// the key has taken the caller's item along, admit returns no execution once it
// is finished.
//
// The order matters: what cancels executions is read before the key is asked
// for and the lease is compared after it was granted, so neither a cancellation
// nor an expiry in between is missed, however long the process was stopped.
func (w *Worker) admit(ctx context.Context, key string, how asking) (execution, error) {
	p, name, err := w.placeOf(key, &how)
	if err != nil {
		return execution{}, err
	}
	if ctx.Err() != nil {
		return execution{}, context.Cause(ctx)
	}
	if !how.limited() {
		return w.admitTo(ctx, p, name, how)
	}
	term, err := w.pay(ctx, p, key, how)
	if err != nil {
		return execution{}, err
	}
	x, err := w.admitTo(ctx, p, name, how)
	if notRun := err != nil || how.collapse != nil && x.run == nil; notRun {
		w.rates.giveBack(how.policy, key, term)
	}
	return x, err
}

// admitTo is admit for a key that has been checked, of that partition, and where no
// rate speaks against it.
func (w *Worker) admitTo(ctx context.Context, p *partition, key string, how asking) (execution, error) {
	token, cancels, err := w.tryKey(p, key, false)
	waited := err != nil
	if waited {
		if x, nested, err := w.nest(ctx, key, how.call); nested {
			return x, err
		}
		if how.along && ctx.Value(holds.Along(key)) != nil {
			return execution{}, errAlong
		}
		token, cancels, err = w.awaitKey(ctx, p, key, how, err)
		if token == 0 {
			return execution{}, err
		}
	}
	w.won(p, token)
	r := runs.Get().(*run)
	r.part, r.parent, r.token, r.cancels = p, ctx, token, cancels
	if p.sampled(token) {
		r.look(key, waited)
	}
	if r.timing = how.timing; r.timing != nil {
		r.parent = r.timing.begin(ctx, p, key, token)
	}
	r.policy = how.policy
	return execution{run: r, life: r.state.Load(), key: key}, nil
}

// win waits for key, for something that holds it without an execution of this
// process: it returns the token, and p.cancels as it was when the key was asked for.
func (w *Worker) win(ctx context.Context, p *partition, key string, how asking) (token int64, cancels uint64, err error) {
	token, cancels, err = w.tryKey(p, key, how.shared)
	if waited := err != nil; waited {
		token, cancels, err = w.awaitKey(ctx, p, key, how, err)
	} else if p.sampled(token) {
		w.hot.looked(key, w.now())
	}
	if err == nil {
		w.won(p, token)
	}
	return token, cancels, err
}

// tryKey returns the token of key if that is free, and p.cancels as it was before.
func (w *Worker) tryKey(p *partition, key string, shared bool) (token int64, cancels uint64, err error) {
	cancels = p.cancels.Load()
	if shared {
		token, err = p.table.TryShare(key)
	} else {
		token, err = p.table.TryLock(key)
	}
	if err == nil {
		err = w.confirm(p, key, token, cancels)
	}
	return token, cancels, err
}

// awaitKey goes on where tryKey has failed with err. The token is 0 unless the caller
// holds the key.
func (w *Worker) awaitKey(ctx context.Context, p *partition, key string, how asking, err error) (token int64, cancels uint64, _ error) {
	came := w.now()
	w.hot.taken(key, came)
	if how.try {
		return 0, 0, w.refuseTry(p, key, err)
	}
	token, cancels, err = w.admitSlowly(ctx, p, key, how, err)
	took := w.now() - came
	ended := token != 0 || err != nil // by itself, and not with the execution that has taken it along
	if ended {
		w.counts.waited(p, took)
	}
	if ended || how.collapse != nil {
		how.timing.waited(p, key, took, err)
	}
	return token, cancels, err
}

// won does what there is to do when a key is held from now on.
func (w *Worker) won(p *partition, token int64) {
	if !w.slow.on.Load() {
		w.slow.begin()
	}
	p.minted(token)
}

// errCancelled: all that the partition had admitted was cancelled while a key
// of it was asked for.
var errCancelled = errors.New("worker: cancelled while the key was asked for")

// confirm compares the lease, and then what cancels, once key was granted. It
// frees key again if either says no. In this order, because the lease may be
// that of the worker's next incarnation: it came after the cancellation of all
// that the one before had admitted.
func (w *Worker) confirm(p *partition, key string, token int64, cancels uint64) (err error) {
	admits := w.admits(time.Now())
	if w.confirming != nil {
		w.confirming()
	}
	switch {
	case !admits:
		err = ErrUnavailable
	case p.cancels.Load() != cancels:
		err = errCancelled
	default:
		return nil
	}
	p.unlock(key, token)
	return err
}

// errLinkFull: the link that a request came over carries many that wait.
var errLinkFull = fmt.Errorf("%w: half of what its link carries", ErrBusy)

// admitSlowly goes on where the key was not granted at once, or could not be
// confirmed, with err. The token is 0 unless the caller holds the key.
func (w *Worker) admitSlowly(ctx context.Context, p *partition, key string, how asking, err error) (token int64, cancels uint64, _ error) {
	if how.share != nil {
		if !how.share.BeginWait() {
			return 0, 0, errLinkFull
		}
		defer how.share.EndWait()
	}
	if c := innermost(ctx); c != nil {
		var end func()
		ctx, end = w.graph.wait(ctx, c, w, key)
		defer end()
	}
	wait, limit, waited := how.wait(), time.Now().Add(w.maxWait(how)), false
	for ; ; waited = true {
		switch {
		case errors.Is(err, localmutex.ErrClosed):
			waited = true
			if err := p.awaitOwnership(ctx, key, how, limit); err != nil {
				return 0, 0, err
			}
		case errors.Is(err, ErrUnavailable), !w.admits(time.Now()):
			return 0, 0, w.unconfirmed(key)
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
				return 0, 0, cmp.Or(context.Cause(ctx), fmt.Errorf("%w for key %q: %w", ErrUnavailable, key, err))
			}
		}
		if token != 0 {
			err = w.confirm(p, key, token, cancels)
		}
		switch {
		case err == nil:
			return token, cancels, nil
		case errors.Is(err, localmutex.ErrQueueFull):
			return 0, 0, fmt.Errorf("%w for key %q: %w", ErrBusy, key, err)
		case ctx.Err() != nil:
			return 0, 0, context.Cause(ctx)
		case errors.Is(err, localmutex.ErrWaited):
			return 0, 0, &holds.Refused{Why: ErrWaited, Key: key, Text: fmt.Sprintf("was not free within %v at worker %s, and %d others wait for it: try again later", w.maxWait(how), w.name, p.table.Queued(key))}
		case errors.Is(err, ErrUnavailable):
			return 0, 0, w.unconfirmed(key)
		case !errors.Is(err, localmutex.ErrClosed) && !errors.Is(err, errCancelled):
			return 0, 0, err
		}
	}
}

// release ends x and frees its key, once: it may be called again.
func (w *Worker) release(x execution) {
	r := x.run
	ctx, ok := r.end(x.life)
	if !ok {
		return
	}
	p, token, outer, timing := r.part, r.token, r.outer, r.timing
	if r.began != 0 {
		w.counts.ran(r)
	}
	r.reset()
	if ctx == nil || !ctx.end() {
		p.free(x.key, token, outer)
	}
	if ctx != nil {
		ctx.noteEnd()
	}
	if timing != nil {
		timing.end(ctx)
	}
}
