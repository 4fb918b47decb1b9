package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// batches is a batcher of strings whose handler writes down what it gets, answers
// each item in capitals and refuses those that begin with a !.
type batches struct {
	*worker.Batcher[string, string]
	t    *testing.T
	w    *site.Worker
	hook func(x gateway.Execution, items []*worker.Item[string, string]) error // runs first, unless it is nil

	mu  sync.Mutex
	ran []string // the items of each batch, joined by spaces
	wg  sync.WaitGroup
}

func newBatches(t *testing.T, w *site.Worker, cfg worker.BatchConfig) *batches {
	b := &batches{t: t, w: w}
	var err error
	b.Batcher, err = worker.NewBatcher(w.Worker, cfg, b.handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.wg.Wait)
	return b
}

var errRefused = errors.New("refused")

func (b *batches) handle(x gateway.Execution, items []*worker.Item[string, string]) error {
	var in []string
	for _, i := range items {
		in = append(in, i.In)
	}
	b.note(strings.Join(in, " "))
	if b.hook != nil {
		if err := b.hook(x, items); err != nil {
			return err
		}
	}
	for _, i := range items {
		if i.Out = strings.ToUpper(i.In); strings.HasPrefix(i.In, "!") {
			i.Err = fmt.Errorf("%w: %s", errRefused, i.In)
		}
	}
	return nil
}

func (b *batches) note(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ran = append(b.ran, what)
}

// saw compares what has run.
func (b *batches) saw(want ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.ran, want) {
		b.t.Errorf("ran %q, want %q", b.ran, want)
	}
}

// submit submits items for the key k, one after the other, and wants each to be
// answered with an error that passes check, or without a check with its own result.
func (b *batches) submit(ctx context.Context, check func(error) bool, items ...string) {
	for _, in := range items {
		b.wg.Go(func() {
			out, err := b.Do(ctx, "k", in)
			switch {
			case check != nil:
				if !check(err) || out != "" {
					b.t.Errorf("%s: got %q, %v", in, out, err)
				}
			case out != strings.ToUpper(in) || (err != nil) != strings.HasPrefix(in, "!"):
				b.t.Errorf("%s: got %q, %v", in, out, err)
			}
		})
		synctest.Wait()
	}
}

func is(targets ...error) func(error) bool {
	return func(err error) bool {
		return !slices.ContainsFunc(targets, func(target error) bool { return !errors.Is(err, target) })
	}
}

// hasNotRun passes errors that leave nothing open.
func hasNotRun(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) && !errors.Is(err, gateway.ErrMayHaveRun) }
}

// hold holds the key k until the function that it returns is called.
func (b *batches) hold() (free func()) {
	end := make(chan struct{})
	b.wg.Go(func() {
		if err := b.w.Do(b.t.Context(), "k", func(gateway.Execution) error { <-end; return nil }); err != nil {
			b.t.Error(err)
		}
	})
	synctest.Wait()
	return func() { close(end); synctest.Wait() }
}

func TestBatchOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, site.New(t, 1).StartReady(), worker.BatchConfig{})
		free := b.hold()
		var last int64
		b.hook = func(x gateway.Execution, _ []*worker.Item[string, string]) error {
			if token, _ := worker.TokenFrom(x.Context()); x.Key() != "k" || token != x.Token() || token <= last {
				t.Errorf("key %q, token %d after %d, %d in the context", x.Key(), x.Token(), last, token)
			}
			last = x.Token()
			return nil
		}
		b.submit(t.Context(), nil, "a", "!b", "c")
		b.wg.Go(func() { _ = b.w.Do(t.Context(), "k", func(gateway.Execution) error { b.note("Do"); return nil }) })
		synctest.Wait()
		other := newBatches(t, b.w, worker.BatchConfig{})
		b.submit(t.Context(), nil, "d", "e")
		other.submit(t.Context(), nil, "x", "y")
		b.submit(t.Context(), nil, "f")
		if n := b.w.Queued("k"); n != 9 {
			t.Errorf("%d callers wait, want 9", n)
		}
		free()
		b.wg.Wait()
		other.wg.Wait()
		b.saw("a !b c", "Do", "d e", "f")
		other.saw("x y")
	})
}

func TestBatchBounds(t *testing.T) {
	for name, test := range map[string]struct {
		cfg   worker.BatchConfig
		items string
		want  []string
	}{
		"items":            {worker.BatchConfig{MaxItems: 2}, "a b c d e", []string{"a b", "c d", "e"}},
		"one item":         {worker.BatchConfig{MaxItems: 1}, "a b", []string{"a", "b"}},
		"bytes":            {worker.BatchConfig{MaxBytes: 4}, "aa bb cc dd e", []string{"aa bb", "cc dd", "e"}},
		"bytes to spare":   {worker.BatchConfig{MaxBytes: 4}, "aaa bb cc", []string{"aaa", "bb cc"}},
		"one is too large": {worker.BatchConfig{MaxBytes: 4}, "a bbbbbb c d", []string{"a", "bbbbbb", "c d"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBatches(t, site.New(t, 1).StartReady(), test.cfg)
				free := b.hold()
				b.submit(t.Context(), nil, strings.Fields(test.items)...)
				free()
				b.wg.Wait()
				b.saw(test.want...)
			})
		})
	}
	w := site.New(t, 1).Start()
	handler := func(gateway.Execution, []*worker.Item[int, int]) error { return nil }
	for _, cfg := range []worker.BatchConfig{{MaxItems: -1}, {MaxBytes: -1}, {Linger: -1}} {
		if _, err := worker.NewBatcher(w.Worker, cfg, handler); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
	if _, err := worker.NewBatcher(nil, worker.BatchConfig{}, handler); err == nil {
		t.Error("no error without a worker")
	}
	if _, err := worker.NewBatcher[int, int](w.Worker, worker.BatchConfig{}, nil); err == nil {
		t.Error("no error without a handler")
	}
}

// TestBatchSize: Size says how large an item is.
func TestBatchSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, site.New(t, 1).StartReady(), worker.BatchConfig{MaxBytes: 100})
		b.Size = func(in string) int { return 50 }
		free := b.hold()
		b.submit(t.Context(), nil, "a", "b", "c")
		free()
		b.wg.Wait()
		b.saw("a b", "c")
	})
}

func TestBatchRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, site.New(t, 1).StartReady(func(cfg *worker.Config) { cfg.QueuePerKey = 2 }), worker.BatchConfig{})
		if _, err := b.Do(t.Context(), "", "a"); !hasNotRun(gateway.ErrNoKey)(err) {
			t.Errorf("no key: %v", err)
		}
		free := b.hold()
		b.submit(t.Context(), nil, "a", "b")
		if _, err := b.Do(t.Context(), "k", "c"); !hasNotRun(gateway.ErrBusy)(err) {
			t.Errorf("full queue: %v", err)
		}
		free()
		b.wg.Wait()
		b.saw("a b")
	})
}

// TestBatchLeaves: whoever leaves before the batch has not run, and is told so.
func TestBatchLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, site.New(t, 1).StartReady(), worker.BatchConfig{Linger: time.Second})
		free := b.hold()
		reason := errors.New("reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		b.submit(t.Context(), nil, "a")
		b.submit(ctx, hasNotRun(reason), "b")
		b.submit(t.Context(), nil, "c")
		cancel(reason)
		synctest.Wait()
		if n := b.w.Queued("k"); n != 2 {
			t.Errorf("%d callers wait, want 2", n)
		}
		b.submit(ctx, hasNotRun(reason), "d")
		free()
		b.wg.Wait()
		b.saw("a c")

		// The one that leads the batch leaves, and one that it has taken along.
		free = b.hold()
		leader, leaderLeaves := context.WithCancelCause(t.Context())
		taken, takenLeaves := context.WithCancelCause(t.Context())
		b.submit(leader, hasNotRun(reason), "e")
		b.submit(taken, hasNotRun(reason), "f")
		b.submit(t.Context(), nil, "g")
		free() // and the batch waits for more
		leaderLeaves(reason)
		takenLeaves(reason)
		synctest.Wait()
		b.submit(t.Context(), nil, "h")
		b.wg.Wait()
		b.saw("a c", "g h")

		// All leave: nothing runs, and the key is free when the batch has waited.
		all, allLeave := context.WithCancelCause(t.Context())
		b.submit(all, hasNotRun(reason), "i", "j")
		allLeave(reason)
		b.wg.Wait()
		if err := b.w.Do(t.Context(), "k", ok); err != nil {
			t.Error(err)
		}
		b.saw("a c", "g h")
	})
}

// lateContext is a context that has ended, which nobody has been told yet.
type lateContext struct{ context.Context }

func (lateContext) Done() <-chan struct{} { return nil }

// TestBatchWithoutTheLate: an item whose context is done when the batch begins is
// left out even if its caller has not noticed yet.
func TestBatchWithoutTheLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, site.New(t, 1).StartReady(), worker.BatchConfig{})
		free := b.hold()
		ctx, cancel := context.WithCancel(t.Context())
		b.submit(t.Context(), nil, "a")
		b.submit(lateContext{ctx}, hasNotRun(context.Canceled), "b")
		b.submit(t.Context(), nil, "c")
		cancel()
		free()
		b.wg.Wait()
		b.saw("a c")
	})
}

// TestBatchAbandoned: whoever leaves while the batch runs is told that it may have
// run; the others get their results, and the batch's context ends with the last.
func TestBatchAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, site.New(t, 1).StartReady(), worker.BatchConfig{})
		type valueKey struct{}
		reason := errors.New("reason")
		for name, stays := range map[string]bool{"one stays": true, "all leave": false} {
			free := b.hold()
			ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "value"))
			var cause error
			value := any(nil)
			b.hook = func(x gateway.Execution, _ []*worker.Item[string, string]) error {
				value = x.Context().Value(valueKey{})
				cancel(reason)
				time.Sleep(time.Second)
				cause = context.Cause(x.Context())
				return nil
			}
			b.submit(ctx, is(reason, gateway.ErrMayHaveRun), "a", "b")
			if stays {
				b.submit(t.Context(), nil, "c")
			}
			free()
			b.wg.Wait()
			if err := b.w.Do(t.Context(), "k", ok); err != nil { // follows the batch
				t.Error(err)
			}
			if (cause == nil) != stays {
				t.Errorf("%s: the cause of the batch's context is %v", name, cause)
			}
			if value != "value" {
				t.Errorf("%s: the context has %v of the first caller's values", name, value)
			}
		}
	})
}

// TestTrapBatchIsNobodysOwn: a batch goes on without the caller that led it, so it works within nothing that this one holds.
func TestTrapBatchIsNobodysOwn(t *testing.T) {
	eachDo(t, func(t *testing.T, w *site.Worker, do doFunc) {
		var holds atomic.Bool
		began, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		b := kit.Must(worker.NewBatcher(w.Worker, worker.BatchConfig{}, func(x gateway.Execution, items []*worker.Item[int, int]) error {
			close(began)
			<-goOn
			err := do(context.WithoutCancel(x.Context()), "other", func(gateway.Execution) error {
				if holds.Load() {
					t.Error("the batch works within what its first caller holds, beside that one")
				}
				return nil
			})
			done <- err
			return err
		}))
		err := do(t.Context(), "other", func(x gateway.Execution) error {
			holds.Store(true)
			defer holds.Store(false)
			ctx, leave := context.WithCancel(x.Context())
			go func() {
				<-began
				leave()
			}()
			if _, err := b.Do(ctx, "k", 1); !errors.Is(err, gateway.ErrMayHaveRun) {
				t.Errorf("the caller: %v", err)
			}
			close(goOn)
			for w.Queued("other") == 0 && len(done) == 0 { // the link's streams are not of the bubble, so nothing can wait for it
				runtime.Gosched()
			}
			return nil
		})
		if err := errors.Join(err, <-done); err != nil {
			t.Error(err)
		}
	})
}

// TestBatchFails: what the callers are told when the handler does not answer.
func TestBatchFails(t *testing.T) {
	reason := errors.New("reason")
	panicked := func(err error) bool {
		p, ok := errors.AsType[*worker.PanicError](err)
		return ok && errors.Is(err, gateway.ErrMayHaveRun) && errors.Is(err, reason) && strings.Contains(string(p.Stack), "TestBatchFails")
	}
	for name, test := range map[string]struct {
		hook  func(x gateway.Execution, items []*worker.Item[string, string]) error
		check func(error) bool
	}{
		"error":  {func(gateway.Execution, []*worker.Item[string, string]) error { return reason }, hasNotRun(reason)},
		"panic":  {func(gateway.Execution, []*worker.Item[string, string]) error { panic(reason) }, panicked},
		"Goexit": {func(gateway.Execution, []*worker.Item[string, string]) error { runtime.Goexit(); return nil }, is(gateway.ErrMayHaveRun)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBatches(t, site.New(t, 1).StartReady(), worker.BatchConfig{})
				b.hook = test.hook
				b.submit(t.Context(), test.check, "alone")
				free := b.hold()
				b.submit(t.Context(), test.check, "a", "!b", "c")
				free()
				b.wg.Wait()
				b.hook = nil
				b.submit(t.Context(), nil, "d")
				b.saw("alone", "a !b c", "d")
			})
		})
	}
}

// TestBatchLosesOwnership: an error of a handler whose execution was cancelled
// leaves open what has run; a result is a result.
func TestBatchLosesOwnership(t *testing.T) {
	for name, fails := range map[string]bool{"with an error": true, "with results": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := site.New(t, 1)
				store := &site.CutStore{Store: c.Store}
				b := newBatches(t, c.StartReady(func(cfg *worker.Config) { cfg.Store = store }), worker.BatchConfig{})
				reason := errors.New("reason")
				b.hook = func(x gateway.Execution, _ []*worker.Item[string, string]) error {
					store.Set(true)
					<-x.Context().Done()
					if cause := context.Cause(x.Context()); !errors.Is(cause, gateway.ErrOwnershipLost) {
						t.Errorf("cancelled with %v", cause)
					}
					store.Set(false)
					if fails {
						return reason
					}
					return nil
				}
				free := b.hold()
				check := is(gateway.ErrOwnershipLost, gateway.ErrMayHaveRun, reason)
				if !fails {
					check = nil
				}
				b.submit(t.Context(), check, "a", "b")
				free()
				b.wg.Wait()
				b.saw("a b")
			})
		})
	}
}

// TestBatchDrain: Drain waits for a batch that has begun, and what waits is sent away.
func TestBatchDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, site.New(t, 1).StartReady(), worker.BatchConfig{})
		end := make(chan struct{})
		b.hook = func(gateway.Execution, []*worker.Item[string, string]) error { <-end; return nil }
		free := b.hold()
		ctx, cancel := context.WithCancel(t.Context())
		b.submit(ctx, is(gateway.ErrMayHaveRun, context.Canceled), "a")
		b.submit(t.Context(), nil, "b")
		free()
		cancel() // the one that leads it
		b.submit(t.Context(), hasNotRun(gateway.ErrUnavailable), "c")
		drained := make(chan error, 1)
		go func() { drained <- b.w.Drain(t.Context()) }()
		select {
		case err := <-drained:
			t.Errorf("Drain has not waited for the batch: %v", err)
		case <-time.After(time.Minute):
		}
		close(end)
		if err := <-drained; err != nil {
			t.Error(err)
		}
		b.wg.Wait()
		b.saw("a b")
	})
}

// TestBatchLingers: a batch waits for more for as long as that can bring any.
func TestBatchLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, site.New(t, 1).StartReady(), worker.BatchConfig{MaxItems: 3, Linger: time.Second})
		began := time.Now()
		took := func(want time.Duration) {
			t.Helper()
			b.wg.Wait()
			if d := time.Since(began); d < want || d > want+time.Millisecond {
				t.Errorf("the batch took %v, want %v", d, want)
			}
			began = time.Now()
		}
		b.submit(t.Context(), nil, "a", "b")
		took(time.Second)
		b.submit(t.Context(), nil, "c", "d", "e")
		took(0)
		b.submit(t.Context(), nil, "f")
		time.Sleep(300 * time.Millisecond)
		b.wg.Go(func() { _ = b.w.Do(t.Context(), "k", ok) })
		took(300 * time.Millisecond)
		b.submit(t.Context(), hasNotRun(gateway.ErrUnavailable), "g")
		b.w.Close()
		took(0)
		b.saw("a b", "c d e", "f")
	})
}

// TestBatchUnderLoad: with callers that come, leave and come back each item has
// exactly one result, and what is said not to have run has not.
func TestBatchUnderLoad(t *testing.T) {
	w := site.New(t, 4).StartReady()
	var mu sync.Mutex
	ran := map[int]int{} // how often
	inside := map[string]bool{}
	batcher, err := worker.NewBatcher(w.Worker, worker.BatchConfig{MaxItems: 16}, func(x gateway.Execution, items []*worker.Item[int, int]) error {
		mu.Lock()
		if inside[x.Key()] {
			t.Error("two batches of a key overlap")
		}
		inside[x.Key()] = true
		for _, i := range items {
			ran[i.In]++
			i.Out = -i.In
		}
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
		inside[x.Key()] = false
		mu.Unlock()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 1))
			for n := range 200 {
				in := g*1000 + n + 1
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(4) == 0 {
					wg.Go(cancel)
				}
				out, err := batcher.Do(ctx, fmt.Sprint(random.IntN(3)), in)
				cancel()
				mu.Lock()
				times := ran[in]
				mu.Unlock()
				switch {
				case err == nil && (times != 1 || out != -in):
					t.Errorf("item %d: ran %d times, got %d", in, times, out)
				case err != nil && !errors.Is(err, context.Canceled):
					t.Errorf("item %d: %v", in, err)
				}
				if err != nil && !errors.Is(err, gateway.ErrMayHaveRun) && times != 0 {
					t.Errorf("item %d ran, although its caller was told that it has not", in)
				}
			}
		})
	}
	wg.Wait()
	if n := w.Queued("0") + w.Queued("1") + w.Queued("2"); n != 0 {
		t.Errorf("%d callers are left in the queues", n)
	}
}

// A batch that waits for items begins when its worker's lease is over, if not before: with the end of its partition. Another
// worker may have the key a moment later.
func TestTrapABatchThatHasWaitedComparesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.New(t, 1)
		store := &site.CutStore{Store: s.Store}
		b := newBatches(t, s.StartOwner(func(cfg *worker.Config) { cfg.Store = store }), worker.BatchConfig{Linger: time.Minute})
		time.Sleep(5 * time.Second)
		store.Set(true)
		b.submit(t.Context(), hasNotRun(gateway.ErrUnavailable), "a")
		time.Sleep(time.Minute)
		b.saw()
	})
}
