package historytest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/ring"
)

const (
	partitions = 16
	clients    = 6
	keys       = 10
	operations = 1500 // of a client
)

// input is what a client asks for: to add one to its key's value, or to read
// it.
type input struct {
	key   int
	write bool
}

// model is a counter per key. A write whose outcome is unknown (-1) may have
// taken effect or not.
var model = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, keys)
		for _, op := range history {
			k := op.Input.(input).key
			parts[k] = append(parts[k], op)
		}
		return parts
	},
	Init: func() []any { return []any{int64(0)} },
	Step: func(state, in, out any) []any {
		value, got := state.(int64), out.(int64)
		switch {
		case !in.(input).write:
			if got == value {
				return []any{value}
			}
		case got < 0:
			return []any{value, value + 1}
		case got == value+1:
			return []any{got}
		}
		return nil
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %d", in, out) },
}

// world is the resource that workers write to, and the cluster of them.
type world struct {
	t     *testing.T
	hub   *hub.Hub
	store *store.Memory
	clock atomic.Int64 // orders calls and returns: a bubble's time stands still between them

	mu      sync.Mutex // guards what follows
	workers []*worker.Worker
	members []*hub.Handle
	named   int
	history []porcupine.Operation

	values [keys]int64 // each guarded by the key, or so it should be
}

func (w *world) start() {
	w.mu.Lock()
	w.named++
	name := fmt.Sprintf("w%d", w.named)
	w.mu.Unlock()
	member, err := w.hub.Join(ring.Member{Name: name, Role: ring.RoleWorker, State: ring.StateJoining, Addr: name + ":80"})
	if err != nil {
		w.t.Fatal(err)
	}
	worker, err := worker.Start(w.t.Context(), worker.Config{
		Members: member, Store: w.store, NewCluster: true,
		Logger: slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for worker.Serving() == 0 {
		time.Sleep(10 * time.Millisecond) // of the bubble's clock
	}
	w.mu.Lock()
	w.workers, w.members = append(w.workers, worker), append(w.members, member)
	w.mu.Unlock()
}

// stop drains the worker that has been there for the longest.
func (w *world) stop() {
	w.mu.Lock()
	worker, member := w.workers[0], w.members[0]
	w.mu.Unlock()
	if err := worker.Drain(w.t.Context()); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	w.workers, w.members = w.workers[1:], w.members[1:]
	w.mu.Unlock()
	if err := errors.Join(worker.Close(), member.Vanish()); err != nil {
		w.t.Error(err)
	}
}

// at calls f with each worker in turn until one takes the call.
func (w *world) at(ctx context.Context, f func(*worker.Worker) error) error {
	for {
		w.mu.Lock()
		workers := append([]*worker.Worker(nil), w.workers...)
		w.mu.Unlock()
		for _, owner := range workers {
			err := f(owner)
			_, elsewhere := errors.AsType[*worker.NotOwnerError](err)
			if !elsewhere && !errors.Is(err, worker.ErrUnavailable) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// work takes up to 20 ms of the bubble's time, now and then.
func work() {
	if rand.IntN(4) == 0 {
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
	}
}

func (w *world) write(ctx context.Context, key int) (n int64, err error) {
	n = -1
	err = w.at(ctx, func(owner *worker.Worker) error {
		return owner.Do(ctx, fmt.Sprint("key-", key), func(worker.Execution) error {
			n = w.values[key] + 1
			work()
			w.values[key] = n
			return nil
		})
	})
	return n, err
}

func (w *world) read(ctx context.Context, key int) (n int64, err error) {
	err = w.at(ctx, func(owner *worker.Worker) error {
		v, _, err := owner.Share(ctx, fmt.Sprint("key-", key), "read", func(worker.Execution) (any, error) {
			n := w.values[key]
			work()
			return n, nil
		})
		if err == nil {
			n = v.(int64)
		}
		return err
	})
	return n, err
}

// client writes and reads. It cancels some of its calls: a read that was
// cancelled says nothing, a write has happened or not.
func (w *world) client(id int, random *rand.Rand) {
	for range operations {
		in := input{key: random.IntN(keys), write: random.IntN(2) == 0}
		if random.IntN(2) == 0 {
			in.key = 0
		}
		ctx, cancel := context.WithCancel(w.t.Context())
		if random.IntN(8) == 0 {
			time.AfterFunc(time.Duration(random.IntN(20))*time.Millisecond, cancel)
		}
		op := porcupine.Operation{ClientId: id, Input: in, Call: w.clock.Add(1)}
		var n int64
		var err error
		if in.write {
			n, err = w.write(ctx, in.key)
		} else {
			n, err = w.read(ctx, in.key)
		}
		op.Return, op.Output = w.clock.Add(1), n
		if err != nil && ctx.Err() == nil {
			w.t.Errorf("%+v: %v", in, err)
		}
		cancel()
		if err != nil && !in.write {
			continue
		}
		w.mu.Lock()
		w.history = append(w.history, op)
		w.mu.Unlock()
	}
}

// Reads that are shared and writes that are not, of a few keys, while workers
// come and go and callers leave, are as if each had happened at one moment
// between its call and its return.
func TestDoAndShare(t *testing.T) { synctest.Test(t, testDoAndShare) }

func testDoAndShare(t *testing.T) {
	settings := ring.Settings{Ring: ring.Config{Partitions: partitions}}
	h, err := hub.New(settings)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, hub: h, store: store.NewMemory(store.MemoryConfig{Settings: settings, NewCluster: true})}
	w.start()
	w.start()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	var calls, moves sync.WaitGroup
	done := make(chan struct{})
	moves.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				t.Logf("%d workers came and went", n)
				return
			default:
				w.start()
				w.stop()
			}
		}
	})
	for id := range clients {
		calls.Go(func() { w.client(id, rand.New(rand.NewPCG(seed, uint64(id)))) })
	}
	calls.Wait()
	close(done)
	moves.Wait()
	for len(w.workers) > 0 {
		w.stop()
	}

	result := porcupine.CheckOperations(model.ToModel(), w.history)
	if !result {
		t.Fatalf("a history of %d operations is not linearizable", len(w.history))
	}
	t.Logf("%d operations of %d keys are linearizable", len(w.history), keys)
}
