package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/keytable"
)

// Item is one call of [Batcher.Do], as the handler gets it.
type Item[In, Out any] struct {
	In  In    // what the caller has passed
	Out Out   // what it gets; for the handler to set
	Err error // what it gets with that; for the handler to set
}

// Batcher runs a handler for many calls of one key at once, at the worker that owns the
// key; elsewhere the error of Do is a [*gateway.NotOwnerError], which names the owner. While one
// batch of a key runs, the calls that come for the key wait for the next one. Make a
// Batcher with [NewBatcher]; any number of goroutines may use it.
type Batcher[In, Out any] struct {
	// Size returns the size of an item, in bytes. It must be set before the first
	// Do. Nil counts those of a string or a []byte, and 0 for anything else.
	Size func(In) int

	worker  *Worker
	cfg     BatchConfig
	handler func(gateway.Execution, []*Item[In, Out]) error
	calls   sync.Pool // of *call[In, Out]
	detach  bool      // a batch goes on without its callers, for AbandonedTimeout
}

// NewBatcher returns a Batcher whose calls handler answers. handler gets the execution that holds
// the key, with one token for the whole batch, and the items in order of arrival. It sets the Out
// and Err of each item. If it returns an error, every caller gets that instead. It must not use the
// items after it has returned.
//
// The execution's context has the values of the first caller's, but belongs to nothing that the
// caller holds: neither executions nor locks. It ends with the ownership of the key, or when the
// callers of all items have left.
func NewBatcher[In, Out any](w *Worker, cfg BatchConfig, handler func(x gateway.Execution, items []*Item[In, Out]) error) (*Batcher[In, Out], error) {
	var err error
	hop.Default(&err, "worker: BatchConfig.MaxItems", &cfg.MaxItems, 256)
	hop.Default(&err, "worker: BatchConfig.MaxBytes", &cfg.MaxBytes, 1<<20)
	hop.Default(&err, "worker: BatchConfig.Linger", &cfg.Linger, 0)
	switch {
	case err != nil:
		return nil, err
	case w == nil:
		return nil, errors.New("worker: NewBatcher has no worker")
	case handler == nil:
		return nil, errors.New("worker: NewBatcher has no handler")
	}
	return &Batcher[In, Out]{worker: w, cfg: cfg, handler: handler}, nil
}

// Do passes in to the next batch of key and returns its result, the Out and Err of its [Item].
// Calls of Do and of [Worker.Do] for one key run in the order of arrival.
//
// If the error is one of [Worker.Do], or ctx's cause alone, in was not handled. The error also
// wraps [gateway.ErrMayHaveRun] if ctx ends after the batch has begun, if the handler panics (with
// a [*PanicError]), or if it returns an error after the ownership of the key was lost (with
// [gateway.ErrOwnershipLost]).
func (b *Batcher[In, Out]) Do(ctx context.Context, key string, in In) (out Out, err error) {
	item, err := b.submit(ctx, key, keyed.Asking{Call: true, Trace: b.worker.traceOfCall(ctx)}, in)
	if err != nil && !errors.Is(err, gateway.ErrMayHaveRun) {
		b.worker.counts.refused(ctx, err)
	}
	if err != nil {
		return out, err
	}
	return item.Out, item.Err
}

// The states of a call. A queued call is moved once, by its caller or its batch, whichever is
// first: to left, or by the batch to begun. The batch does the rest.
const (
	queued   int32 = iota // and may leave without having run
	left                  // not to be run
	begun                 // its batch runs
	answered              // item has the result, or failed says why there is none
)

// batchCall is one batchCall of Do, in one of the states above.
type batchCall[In, Out any] struct {
	wait    keytable.Item // what it waits with in the queue of its key
	batcher *Batcher[In, Out]
	ctx     context.Context
	share   keyed.Origin // of how it asks for the key
	timing  *timing      // likewise
	item    *Item[In, Out]
	size    int
	state   atomic.Int32
	batch   *batch        // set before it has begun
	failed  error         // why there is no result; set before it is answered, or left by its batch
	done    chan struct{} // gets one value at the end of the batch that the call leads
	alone   bool          // it was led by the call, and the key is free since
}

// submit is Do for a caller that asks for key in a certain way. It returns an
// error if there is no result, and the item otherwise.
func (b *Batcher[In, Out]) submit(ctx context.Context, key string, how keyed.Asking, in In) (*Item[In, Out], error) {
	c, came := b.newCall(ctx, in), b.worker.keys.Now()
	c.share, c.timing, how.Item = how.Share, asTiming(how.Trace), &c.wait
	x, err := b.worker.keys.Admit(ctx, key, how)
	leads := !x.IsNone()
	if leads {
		if !how.Call {
			x.Bound(b.worker.timeoutOf(how.Policy))
		}
		if !x.Nested() {
			var end func()
			ctx, end = b.worker.keys.WaitAlong(ctx, key)
			defer end()
		}
		go b.run(x, c)
		select {
		case <-c.done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	switch {
	case c.state.CompareAndSwap(queued, left):
		return nil, cmp.Or(context.Cause(ctx), err)
	case c.state.Load() == left:
		return nil, cmp.Or(context.Cause(ctx), c.failed, err)
	case c.state.Load() == begun:
		c.batch.removeCaller()
		return nil, fmt.Errorf("%w: %w", context.Cause(ctx), gateway.ErrMayHaveRun)
	}
	if !leads {
		c.batch.part.Waited(c.batch.began - came)
		c.timing.waitedFor(c.batch, key, came)
	}
	c.timing.ranIn(c.batch, came)
	item, failed := c.item, c.failed
	if err == nil && (!leads || c.alone) {
		b.keep(c)
	}
	return item, failed
}

func (b *Batcher[In, Out]) newCall(ctx context.Context, in In) *batchCall[In, Out] {
	c, _ := b.calls.Get().(*batchCall[In, Out])
	if c == nil {
		c = &batchCall[In, Out]{batcher: b, done: make(chan struct{}, 1)}
		c.wait.Value = c
	}
	c.ctx, c.item, c.size = ctx, &Item[In, Out]{In: in}, b.size(in)
	return c
}

// keep keeps c for reuse. Neither its key nor a batch may refer to it any more.
func (b *Batcher[In, Out]) keep(c *batchCall[In, Out]) {
	c.ctx, c.share, c.timing, c.item, c.batch, c.failed = nil, nil, nil, nil, nil, nil
	c.state.Store(queued)
	b.calls.Put(c)
}

func (b *Batcher[In, Out]) size(in In) int {
	if b.Size != nil {
		return b.Size(in)
	}
	switch in := any(in).(type) {
	case string:
		return len(in)
	case []byte:
		return len(in)
	}
	return 0
}

// batch is what the calls of a batch share.
type batch struct {
	x       keyed.Execution
	part    *keyed.Partition
	began   time.Duration // since the worker's start, as ended
	ended   time.Duration // set before its calls are answered
	callers atomic.Int32  // that have not left, and one while the batch is put together

	detached bool // goes on without callers
}

// removeCaller takes one caller off the batch, and reports whether it was the last one.
func (b *batch) removeCaller() bool {
	if b.callers.Add(-1) > 0 {
		return false
	}
	c, ok := b.x.Context().(*keyed.Context)
	switch {
	case !ok: // it is over
	case b.detached:
		c.ClientLeft()
	default:
		c.Cancel(keyed.ErrAllLeft)
	}
	return true
}

// ranIn records the times of a request that has come at that time, and is answered by the batch.
func (t *timing) ranIn(b *batch, came time.Duration) {
	if t != nil && t.batched {
		t.wait, t.run = b.began-came, b.ended-b.began
	}
}

// waitedFor records the wait of a batch's item that has come at that time.
func (t *timing) waitedFor(b *batch, key string, came time.Duration) {
	if t != nil && t.spans != nil {
		t.spans.Add(t.ctx, spans.QueueWait, b.part.At(came), b.part.At(b.began), "", func() []attribute.KeyValue { return t.attributes(b.part, key) })
	}
}

// run runs the batch that first leads, with the key of x held, and frees that. A
// call within an execution that holds the key already has a batch to itself: other
// callers wait until that execution has ended.
func (b *Batcher[In, Out]) run(x keyed.Execution, first *batchCall[In, Out]) {
	nested := x.Nested()
	if !nested {
		x.LeaveChain()
	}
	if b.detach {
		x.GoesTo(b.worker.cfg.AtApp)
		x.SetClient(context.Background())       // whether there is one, callers says
		baggage, _ := keyed.AddHeld(nil, x.Key) // to none a key can always be added
		x.Carry(baggage)
	}
	calls := append(make([]*batchCall[In, Out], 0, 8), first)
	ba := &batch{x: x, part: x.Partition(), detached: b.detach}
	var err error
	returned := false
	defer func() {
		failed := failure(x, recover(), returned, err)
		ba.ended = b.worker.keys.Now()
		for _, c := range calls {
			if c.state.Load() != begun {
				continue
			}
			if err != nil {
				c.item.Err = err
			}
			c.failed = failed
			c.state.Store(answered)
		}
		if first.alone = len(calls) == 1; first.alone {
			b.worker.keys.Release(x)
			first.done <- struct{}{}
			return
		}
		for _, c := range calls {
			if c == first {
				c.done <- struct{}{}
			} else {
				c.wait.Finish()
			}
		}
		runtime.Gosched() // who comes back at once is in the queue before the next batch is put together
		b.worker.keys.Release(x)
	}()
	if !nested {
		runtime.Gosched() // who comes at the same time is in the queue
		calls = b.gather(x, calls)
		for end := time.Now().Add(b.cfg.Linger); b.mayGrow(x, calls) && time.Now().Before(end); calls = b.gather(x, calls) {
			time.Sleep(min(time.Until(end), lingerStep))
		}
	}
	ba.began = b.worker.keys.Now()
	if items := b.begin(ba, calls); len(items) > 0 {
		if t := timingOf(x); t.records() && len(calls) > 1 {
			linkCalls(t, calls)
		}
		b.worker.counts.batches.Observe(float64(len(items)))
		err = b.handler(x.Public(), items)
	}
	returned = true
}

// lingerStep is the time between two looks for more calls, while a batch lingers.
const lingerStep = time.Millisecond

// mayGrow reports whether a batch may take calls that have yet to come: it is not full, no other caller waits for the key,
// and the partition is served.
func (b *Batcher[In, Out]) mayGrow(x keyed.Execution, calls []*batchCall[In, Out]) bool {
	return b.cfg.Linger > 0 && len(calls) < b.cfg.MaxItems && x.Queued() == 0 && x.Partition().Open.Load()
}

// linkCalls links the span of a batch's execution to the calls that joined the first one.
func linkCalls[In, Out any](t *timing, calls []*batchCall[In, Out]) {
	size := 1
	for _, c := range calls[1:] {
		if c.state.Load() == begun {
			size++
			t.link(c.timing)
		}
	}
	t.span.SetAttributes(spans.Batch.Int(size))
}

// PanicError is the error of calls of a [Batcher] whose handler panicked, on a goroutine of its own. The callers'
// stacks do not show its origin. It is a [gateway.ErrMayHaveRun].
type PanicError struct {
	Value any    // what the handler panicked with
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

// errGoexit is what the callers of a batch get when its handler calls
// runtime.Goexit instead of returning.
var errGoexit = errors.New("worker: the handler of the batch called runtime.Goexit")

// failure returns why the calls of a batch have no result. The handler panicked with r or, if r is
// nil and it has not returned, called runtime.Goexit; or it returned err and the ownership was
// lost.
func failure(x keyed.Execution, r any, returned bool, err error) error {
	switch {
	case r != nil:
		return &PanicError{Value: r, Stack: debug.Stack()}
	case !returned:
		return fmt.Errorf("%w: %w", gateway.ErrMayHaveRun, errGoexit)
	case err != nil && x.Lost():
		return fmt.Errorf("%w: %w: %w", gateway.ErrOwnershipLost, gateway.ErrMayHaveRun, err)
	}
	return nil
}

// gather adds calls that wait for the key to those of a batch.
func (b *Batcher[In, Out]) gather(x keyed.Execution, calls []*batchCall[In, Out]) []*batchCall[In, Out] {
	bytes := 0
	for _, c := range calls {
		bytes += c.size
	}
	if len(calls) == b.cfg.MaxItems || bytes >= b.cfg.MaxBytes {
		return calls
	}
	x.Take(func(i *keytable.Item) (take, more bool) {
		c, ok := i.Value.(*batchCall[In, Out])
		if !ok || c.batcher != b || bytes+c.size > b.cfg.MaxBytes {
			return false, false
		}
		bytes += c.size
		calls = append(calls, c)
		return true, len(calls) < b.cfg.MaxItems
	})
	return calls
}

// begin begins a batch with those calls whose callers have not left, and returns their items. If the key may be another
// worker's by now, it begins with none.
func (b *Batcher[In, Out]) begin(ba *batch, calls []*batchCall[In, Out]) []*Item[In, Out] {
	items := make([]*Item[In, Out], 0, len(calls))
	ba.callers.Store(1)
	for _, c := range calls {
		if c.share != nil {
			c.share.NoteBegin()
		}
	}
	for _, c := range calls {
		c.failed = keyed.MayBegin(c.share) // before the lease is compared, since it takes time
	}
	lost := b.worker.keys.StillAdmits(ba.x)
	for _, c := range calls {
		to := begun
		if c.failed = cmp.Or(c.failed, lost); c.failed != nil || c.ctx.Err() != nil {
			to = left
		}
		c.batch = ba
		ba.callers.Add(1)
		if c.state.CompareAndSwap(queued, to) && to == begun {
			items = append(items, c.item)
		} else {
			ba.callers.Add(-1)
		}
	}
	if ba.removeCaller() {
		return nil
	}
	return items
}
