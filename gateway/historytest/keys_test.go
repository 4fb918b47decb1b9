package historytest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
)

const (
	clients = 12
	keys    = 10
	events  = 30 // of workers
)

func keyName(key int) string { return fmt.Sprint("key-", key) }

// input is what a client asks for: to add one to its key's value, or to read
// it.
type input struct {
	key int
	way string // a read, or how one is added
}

const read = "Share"

// counters is the model: a counter per key.
var counters = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, keys)
		for _, op := range history {
			k := op.Input.(input).key
			parts[k] = append(parts[k], op)
		}
		return parts
	},
	Init: func() any { return int64(0) },
	Step: func(state, in, out any) (bool, any) {
		value, got := state.(int64), out.(int64)
		if in.(input).way != read {
			value++
		}
		return got == value, value
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %d", in, out) },
}

// run is a world and the history of what clients did in it.
type run struct {
	*world
	batches, items atomic.Int64

	historyMu sync.Mutex // guards what follows
	history   []porcupine.Operation
	pending   []porcupine.Operation // whose output is a *call
}

var errGivenUp = errors.New("the context ended before anything was written")

// add adds to a key's value, in an execution that holds it, and returns the new
// value. An error means that nothing was written.
func (r *run) add(x gateway.Execution, key, by int) (int64, error) {
	if before := r.tokens[key].Swap(x.Token()); before >= x.Token() {
		r.t.Errorf("%s: token %d after %d", x.Key(), x.Token(), before)
	}
	n := r.values[key].Load() + int64(by)
	if !r.work(x.Context()) {
		return 0, errGivenUp
	}
	r.values[key].Store(n)
	return n, nil
}

// work takes up to 40 ms of the bubble's time, now and then. While w.long is
// set it often takes as long as it may: until its context ends, and then what
// an execution has after that. Or it gives up then, for which it reports false.
func (w *world) work(ctx context.Context) bool {
	if rand.IntN(2) == 0 {
		runtime.Gosched()
	}
	if w.long.Load() && rand.IntN(20) == 0 {
		select {
		case <-ctx.Done():
			if rand.IntN(2) == 0 {
				return false
			}
			time.Sleep(time.Duration(rand.Int64N(int64(ttl * 14 / 100)))) // it is cancelled at 0.8, and has until 0.95
		case <-time.After(time.Duration(rand.Int64N(int64(2 * ttl)))):
		}
	} else if rand.IntN(2) == 0 {
		time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
	}
	return true
}

// ways are the calls at a worker that add one, or read. An error means that
// nothing was written, unless it is a [*pending].
var ways = map[string]func(ctx context.Context, r *run, at *node, key int) (n int64, err error){
	"Do": func(ctx context.Context, r *run, at *node, key int) (n int64, err error) {
		err = at.Do(ctx, keyName(key), func(x gateway.Execution) error {
			n, err = r.add(x, key, 1)
			return err
		})
		return n, err
	},
	"TryDo": func(ctx context.Context, r *run, at *node, key int) (n int64, err error) {
		began := time.Now()
		err = at.TryDo(ctx, keyName(key), func(x gateway.Execution) error {
			n, err = r.add(x, key, 1)
			return err
		})
		if errors.Is(err, gateway.ErrLocked) && time.Since(began) > 0 {
			r.t.Errorf("%s: TryDo waited %v", keyName(key), time.Since(began))
		}
		return n, err
	},
	"nested": func(ctx context.Context, r *run, at *node, key int) (n int64, err error) {
		err = at.Do(ctx, keyName(key), func(outer gateway.Execution) error {
			return at.Do(outer.Context(), keyName(key), func(x gateway.Execution) error {
				n, err = r.add(x, key, 1)
				return err
			})
		})
		return n, err
	},
	"Batch": func(ctx context.Context, r *run, at *node, key int) (n int64, err error) {
		c := &call{key: key}
		n, err = at.batcher.Do(ctx, keyName(key), c)
		if errors.Is(err, gateway.ErrMayHaveRun) {
			err = &pending{c, err}
		} else if wrote := c.wrote.Load(); wrote != n {
			r.t.Errorf("%s: a batch wrote %d for a call that got %d, %v", keyName(key), wrote, n, err)
		}
		return n, err
	},
	read: func(ctx context.Context, r *run, at *node, key int) (n int64, err error) {
		n, _, err = worker.Share(ctx, at.Worker.Worker, keyName(key), "read", func(x gateway.Execution) (int64, error) {
			n := r.values[key].Load()
			if !r.work(x.Context()) {
				return 0, errGivenUp
			}
			return n, nil
		})
		return n, err
	},
}

// call is one item of a batch.
type call struct {
	key   int
	wrote atomic.Int64 // the value that the batch wrote for it, once it has
}

// pending is the error of a call that may have run, or may run yet.
type pending struct {
	*call
	error
}

func (p *pending) Unwrap() error { return p.error }

// batch adds one for each of the items.
func (r *run) batch(x gateway.Execution, items []*worker.Item[*call, int64]) error {
	r.batches.Add(1)
	r.items.Add(int64(len(items)))
	last, err := r.add(x, items[0].In.key, len(items))
	if err != nil {
		return err
	}
	for i, item := range items {
		item.Out = last - int64(len(items)-1-i)
		if !item.In.wrote.CompareAndSwap(0, item.Out) {
			r.t.Errorf("%s: a call is in two batches", x.Key())
		}
	}
	return nil
}

// at calls one worker after the other until one takes the call.
func (r *run) at(ctx context.Context, in input) (int64, error) {
	for {
		for _, n := range r.nodes() {
			v, err := ways[in.way](ctx, r, n, in.key)
			_, elsewhere := errors.AsType[*gateway.NotOwnerError](err)
			if !elsewhere && !errors.Is(err, gateway.ErrUnavailable) {
				return v, err
			}
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// expected are the errors of calls whose callers have not left.
var expected = []error{errGivenUp, gateway.ErrOwnershipLost, gateway.ErrLocked, gateway.ErrWaited}

// client adds and reads, and cancels some of its calls.
func (r *run) client(id int, random *rand.Rand, offered []string, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(random.IntN(3)*random.IntN(150)) * time.Millisecond):
		}
		in := input{key: random.IntN(keys), way: offered[random.IntN(len(offered))]}
		if random.IntN(2) == 0 {
			in.key = 0
		}
		ctx, cancel := context.WithCancel(r.t.Context())
		if random.IntN(8) == 0 {
			time.AfterFunc(time.Duration(random.IntN(20))*time.Millisecond, cancel)
		}
		op := porcupine.Operation{ClientId: id, Input: in, Call: r.clock.Add(1)}
		n, err := r.at(ctx, in)
		op.Return, op.Output = r.clock.Add(1), n
		if err != nil && ctx.Err() == nil && !slices.ContainsFunc(expected, func(e error) bool { return errors.Is(err, e) }) {
			r.t.Errorf("%+v: %v", in, err)
		}
		cancel()
		p, unknown := errors.AsType[*pending](err)
		r.historyMu.Lock()
		switch {
		case unknown:
			op.Output = p.call
			r.pending = append(r.pending, op)
		case err == nil:
			r.history = append(r.history, op)
		}
		r.historyMu.Unlock()
	}
}

// Calls of a few keys, by all ways, while workers come, leave, crash and lose
// their store and callers leave, are as if each had happened at one moment
// between its call and its return, and those that failed had not happened.
func TestKeys(t *testing.T) {
	for _, offered := range [][]string{{"Do", read}, {"Do", "TryDo", "nested", "Batch", read}, {"Batch"}} {
		t.Run(fmt.Sprint(offered), func(t *testing.T) {
			bubble(t, func(t *testing.T) { testKeys(t, offered) })
		})
	}
}

func testKeys(t *testing.T, offered []string) {
	r := &run{world: newWorld(t, keys)}
	r.started = func(n *node) {
		var err error
		if n.batcher, err = worker.NewBatcher(n.Worker.Worker, worker.BatchConfig{MaxItems: 4}, r.batch); err != nil {
			t.Error(err)
		}
	}
	r.start()
	r.start()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	var calls sync.WaitGroup
	done := make(chan struct{})
	for id := range clients {
		calls.Go(func() { r.client(id, rand.New(rand.NewPCG(seed, uint64(id))), offered, done) })
	}
	r.live(rand.New(rand.NewPCG(seed, clients)), events)
	close(done)
	calls.Wait()
	for _, n := range r.nodes() {
		r.stop(n)
	}

	t.Logf("%d calls in %d batches, %d given up", r.items.Load(), r.batches.Load(), len(r.pending))
	r.check()
}

// check waits for what may yet run, and checks the history.
func (r *run) check() {
	t := r.t
	time.Sleep(3 * ttl) // until the last one whose callers have left is over
	for _, op := range r.pending {
		op.Return = r.clock.Load()
		if n := op.Output.(*call).wrote.Load(); n != 0 {
			op.Output = n
			r.history = append(r.history, op)
		}
	}
	switch porcupine.CheckOperationsTimeout(counters, r.history, time.Minute) {
	case porcupine.Ok:
		t.Logf("%d operations are linearizable", len(r.history))
	case porcupine.Unknown:
		t.Fatalf("whether a history of %d operations is linearizable was not found out in a minute", len(r.history))
	default:
		t.Fatalf("a history of %d operations is not linearizable", len(r.history))
	}
}
