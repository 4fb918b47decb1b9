package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/memstore"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

func ok(gateway.Execution) error { return nil }

func TestDoRunsOneAtATimeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()

		var order []int
		var tokens []int64
		var running atomic.Int32
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				err := w.Do(t.Context(), "k", func(x gateway.Execution) error {
					if running.Add(1) != 1 {
						t.Error("two executions of a key overlap")
					}
					order = append(order, i)
					tokens = append(tokens, x.Token())
					time.Sleep(time.Millisecond)
					running.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		for i := range order {
			if order[i] != i {
				t.Fatalf("order %v, want the order of arrival", order)
			}
			if i > 0 && tokens[i] <= tokens[i-1] {
				t.Fatalf("token %d follows %d", tokens[i], tokens[i-1])
			}
		}
		if epoch := keyed.TokenEpoch(tokens[0]); epoch < time.Now().Unix()-60 {
			t.Errorf("epoch %d is not of the store's clock", epoch)
		}
	})
}

func TestDoErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner(func(cfg *worker.Config) { cfg.QueuePerKey = 1 })

		if err := w.Do(t.Context(), "", ok); !errors.Is(err, gateway.ErrNoKey) {
			t.Errorf("no key: %v", err)
		}
		if err := w.Do(t.Context(), "a\x00b", ok); !errors.Is(err, gateway.ErrBadKey) {
			t.Errorf("control character: %v", err)
		}
		gone, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("reason")
		cancel(reason)
		if err := w.Do(gone, "k", ok); !errors.Is(err, reason) {
			t.Errorf("done context: %v", err)
		}
		var waiting sync.WaitGroup
		defer waiting.Wait()
		err := w.Do(t.Context(), "k", func(x gateway.Execution) error {
			if err := w.Do(x.Context(), "other", ok); err != nil {
				t.Errorf("nested call of another key: %v", err)
			}
			waiting.Go(func() { _ = w.Do(t.Context(), "k", ok) })
			synctest.Wait()
			if err := w.Do(t.Context(), "k", ok); !errors.Is(err, gateway.ErrBusy) {
				t.Errorf("full queue: %v", err)
			}
			return reason
		})
		if !errors.Is(err, reason) {
			t.Errorf("the function's error: %v", err)
		}
	})
}

func TestExecutionContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()

		var kept gateway.Execution
		var ctx context.Context
		_ = w.Do(t.Context(), "k", func(x gateway.Execution) error {
			kept, ctx = x, x.Context()
			if token, ok := worker.TokenFrom(ctx); !ok || token != x.Token() {
				t.Errorf("token in the context: %d, %v", token, ok)
			}
			if ctx.Err() != nil || x.Context() != ctx {
				t.Error("the context is not one that lives")
			}
			return nil
		})
		if ctx.Err() == nil || kept.Context().Err() == nil {
			t.Error("the context outlives its execution")
		}
		_ = w.Do(t.Context(), "k", func(x gateway.Execution) error {
			if kept.Context() == x.Context() || x.Context().Err() != nil {
				t.Error("an execution that has ended reaches another's context")
			}
			return nil
		})
	})
}

// A planned move delays nobody but the key that runs.
func TestPlannedMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 64
		c := site.New(t, partitions)
		a := c.StartOwner()

		// Every partition has a key that runs while it may move.
		held := make(chan struct{})
		var wg sync.WaitGroup
		var last [partitions]atomic.Int64
		for p := range partitions {
			wg.Go(func() {
				if err := a.Do(t.Context(), keyIn(c.Ring, p), func(x gateway.Execution) error {
					last[p].Store(x.Token())
					<-held
					if err := x.Context().Err(); err != nil {
						t.Errorf("partition %d: cancelled: %v", p, err)
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()

		b := c.Start()
		for b.Serving() < partitions/3 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		moved := 0
		for p := range partitions {
			key := keyIn(c.Ring, p)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			err := b.Do(ctx, key, ok)
			cancel()
			if notOwner, is := errors.AsType[*gateway.NotOwnerError](err); is {
				if notOwner.Owner != a.Incarnation() || notOwner.Addr != "w1:80" || notOwner.Epoch == 0 {
					t.Errorf("partition %d: %v", p, notOwner)
				}
				continue
			}
			moved++
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("partition %d: %v, want a wait for the key that still runs", p, err)
			}
		}
		if moved != b.Serving() || moved < partitions/3 {
			t.Errorf("%d partitions moved, b serves %d", moved, b.Serving())
		}
		close(held)
		wg.Wait()
		for p := range partitions {
			err := b.Do(t.Context(), keyIn(c.Ring, p), func(x gateway.Execution) error {
				if x.Token() <= last[p].Load() {
					t.Errorf("partition %d: token %d follows %d", p, x.Token(), last[p].Load())
				}
				return nil
			})
			if _, is := errors.AsType[*gateway.NotOwnerError](err); err != nil && !is {
				t.Errorf("partition %d: %v", p, err)
			}
		}
	})
}

// keyIn returns a key of partition p.
func keyIn(cfg ring.Config, p int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("key-%d", i); cfg.Partition(key) == p {
			return key
		}
	}
}

func TestDrainHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 64
		c := site.New(t, partitions)
		a, b := c.Start(), c.Start()
		for a.Serving()+b.Serving() < partitions || b.Serving() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		if err := a.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("draining took %v", took)
		}
		b.AwaitServing(t, partitions)
		a.Close()
		if err := a.Do(t.Context(), "k", ok); err == nil {
			t.Error("a closed worker admits")
		}
		// The last worker has nobody to hand over to.
		if err := b.Drain(ctx); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDrainWaitsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		a := c.StartOwner()
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = a.Do(t.Context(), "k", func(gateway.Execution) error { <-release; return nil })
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := a.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain: %v, want a deadline, since a handler runs", err)
		}
		snapshot, err := c.Store.Observe(t.Context(), kit.Must(c.Store.Generation(t.Context(), true)), "", 0, nil)
		if err != nil || len(snapshot.Sessions) != 1 {
			t.Errorf("the session was released while a handler runs: %+v, %v", snapshot.Sessions, err)
		}
		close(release)
		wg.Wait()
	})
}

// A worker that is closed ends a drain without a deadline, which a handler would keep waiting.
func TestCloseEndsDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := site.New(t, 16).StartOwner()
		held, release, drained := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go a.Do(t.Context(), "k", func(gateway.Execution) error { close(held); <-release; return nil })
		<-held
		go func() { drained <- a.Drain(t.Context()) }()
		synctest.Wait()
		a.Close()
		synctest.Wait()
		select {
		case err := <-drained:
			if err == nil || !strings.Contains(err.Error(), "closed") {
				t.Errorf("the drain ended with %v", err)
			}
		default:
			t.Error("the drain goes on")
		}
		close(release)
	})
}

func TestCrashIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 64
		c := site.New(t, partitions)
		a, b := c.Start(), c.Start()
		for a.Serving()+b.Serving() < partitions || b.Serving() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		began := time.Now()
		a.Close()
		a.Member.Vanish()
		b.AwaitServing(t, partitions)
		if took := time.Since(began); took < 7*time.Second || took > 11*time.Second {
			t.Errorf("taken over after %v, want about the TTL of 10s", took)
		}
	})
}

// A store that loses a part of its data, and a worker that dies before anybody
// has seen it: every partition is served again two TTLs later.
func TestTrapStoreLosesAKey(t *testing.T) {
	for _, key := range memstore.Keys() {
		t.Run(key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const partitions = 64
				c := site.New(t, partitions)
				a, b := c.Start(), c.Start()
				for a.Serving()+b.Serving() < partitions || b.Serving() == 0 {
					time.Sleep(10 * time.Millisecond)
				}
				c.Store.(*memstore.Store).LoseKey(key)
				a.Close()
				a.Member.Vanish()
				time.Sleep(21 * time.Second)
				if n := b.Serving(); n != partitions {
					t.Errorf("%d of %d partitions are served two TTLs later", n, partitions)
				}
			})
		})
	}
}

// A worker that dies after the store's clock was set back by an hour is taken
// over two TTLs later.
func TestTrapStoreClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 64
		c := site.New(t, partitions)
		var back atomic.Int64
		c.Store = memstore.New(memstore.Config{Settings: c.Settings, NewCluster: true, Clock: func() time.Time {
			return time.Now().Round(0).Add(-time.Duration(back.Load()))
		}})
		a, b := c.Start(), c.Start()
		for a.Serving()+b.Serving() < partitions || b.Serving() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		back.Store(int64(time.Hour))
		a.Close()
		a.Member.Vanish()
		time.Sleep(21 * time.Second)
		if n := b.Serving(); n != partitions {
			t.Errorf("%d of %d partitions are served two TTLs later", n, partitions)
		}
	})
}

// A worker is ready when it serves what the ring gives it, not when it has a
// session: after a crash that is when the dead one's partitions are free.
func TestReadyMeansServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 64
		c := site.New(t, partitions)
		a := c.Start()
		if err := a.Await(t.Context()); err != nil || a.Ready() != nil || a.Serving() != partitions {
			t.Errorf("the first: %v, %v, serving %d", err, a.Ready(), a.Serving())
		}
		b := c.Start()
		if err := b.Await(t.Context()); err != nil || b.Ready() != nil {
			t.Errorf("the second: %v, %v", err, b.Ready())
		}
		if a.Serving()+b.Serving() != partitions || b.Serving() == 0 {
			t.Errorf("the second is ready with %d partitions, the first has %d of %d", b.Serving(), a.Serving(), partitions)
		}

		a.Close()
		b.Close()
		a.Member.Vanish()
		b.Member.Vanish()
		d := c.Start()
		soon, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := d.Await(soon); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "serves 0 of the 64 partitions that the ring gives it: a worker that this one does not see had some of them") {
			t.Errorf("before the dead ones' session has ended: %v", err)
		}
		if d.Ready() == nil {
			t.Error("ready before the dead ones' session has ended")
		}
		if err := d.Await(t.Context()); err != nil || d.Ready() != nil || d.Serving() != partitions {
			t.Errorf("after a crash: %v, %v, serving %d", err, d.Ready(), d.Serving())
		}
	})
}

// A worker to which the ring gives nothing is ready at once.
func TestReadyWithNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 1)
		workers := []*site.Worker{c.Start(), c.Start(), c.Start()}
		for _, w := range workers {
			if err := w.Await(t.Context()); err != nil || w.Ready() != nil {
				t.Errorf("%v, %v", err, w.Ready())
			}
		}
	})
}

func BenchmarkDo(b *testing.B) {
	w := site.New(b, 4096).StartOwner(func(cfg *worker.Config) { cfg.Logger = nil })
	ctx := b.Context()
	b.Run("one key", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := w.Do(ctx, "order-42", ok); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("background", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := w.Do(context.Background(), "order-42", ok); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("context asked for", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := w.Do(ctx, "order-42", func(x gateway.Execution) error { return x.Context().Err() }); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// One worker of three that dies again and again, 10 s after each start or 10 s
// after it serves something, costs the cluster little: it is off the ring for
// most of the time.
func TestTrapCrashLoop(t *testing.T) {
	// On two processors, the many timers break the race detector now and then (golang/go#78156).
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, loop := range []struct {
		name          string
		proof         bool    // of the process before, as by --lock-file
		serves        bool    // before it dies
		served, share float64 // of partitions, at least; of the time that it serves, at most
	}{
		{"at its start", false, false, 0.99, 0.05},
		{"at its start, with proof", true, false, 0.99, 0.05},
		{"when it serves", false, true, 0.95, 0.15},
		{"when it serves, with proof", true, true, 0.99, 0.15},
	} {
		t.Run(loop.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const partitions, step, samples = 64, 100 * time.Millisecond, 20 * 60 * 10
				c := site.New(t, partitions)
				a, b := c.Start(), c.Start()
				for a.Serving()+b.Serving() < partitions || b.Serving() == 0 {
					time.Sleep(step)
				}
				previous := make(map[string]time.Duration)
				looping := c.StartNamed("looping")
				served, serving, life := 0, 0, time.Duration(0)
				for range samples {
					time.Sleep(step)
					served += a.Serving() + b.Serving() + looping.Serving()
					if looping.Serving() > 0 {
						serving++
					}
					if !loop.serves || looping.Serving() > 0 {
						life += step
					}
					if life < 10*time.Second {
						continue
					}
					life = 0
					looping.Close()
					looping.Member.Vanish()
					if loop.proof {
						previous[looping.Incarnation()] = 0
					}
					looping = c.StartNamed("looping", func(cfg *worker.Config) { cfg.Previous = previous })
				}
				if share := float64(served) / (samples * partitions); share < loop.served {
					t.Errorf("%.1f %% of partitions were served on average, want at least %.0f %%", 100*share, 100*loop.served)
				}
				if share := float64(serving) / samples; share > loop.share {
					t.Errorf("the worker served for %.1f %% of the time, want at most %.0f %%", 100*share, 100*loop.share)
				}
			})
		})
	}
}

// A worker whose name keeps dying waits for nobody where nobody else serves.
func TestTheOnlyWorkerDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		for range 6 {
			w := c.StartNamed("only")
			time.Sleep(time.Second)
			w.Close()
			w.Member.Vanish()
		}
		w := c.StartNamed("only")
		time.Sleep(25 * time.Second)
		if n := w.Serving(); n != 16 {
			t.Errorf("%d of 16 partitions are served 25 s after the last death", n)
		}
	})
}
