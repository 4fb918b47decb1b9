package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

// A worker that cannot confirm its session admits nothing after 0.7 of the TTL,
// neither newcomers nor those who win the key's mutex then, and cancels what
// runs at 0.8. It works again once the store is back.
func TestTrapStoppedBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		store := &site.CutStore{Store: c.Store}
		w := c.StartOwner(func(cfg *worker.Config) { cfg.Store = store })
		time.Sleep(5 * time.Second)
		store.Set(true)
		cut := time.Now()

		var wg sync.WaitGroup
		entered := make(chan struct{})
		wg.Go(func() {
			err := w.Do(t.Context(), "k", func(x gateway.Execution) error {
				close(entered)
				<-x.Context().Done()
				if cause := context.Cause(x.Context()); !errors.Is(cause, gateway.ErrOwnershipLost) {
					t.Errorf("cancelled with %v", cause)
				}
				if d := time.Since(cut); d < 6*time.Second || d > 8*time.Second {
					t.Errorf("cancelled after %v, want at 0.8 of the TTL after a renewal that was up to 2s old", d)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		<-entered
		wg.Go(func() { // wins the mutex when the one above is cancelled
			if err := w.Do(t.Context(), "k", ok); !errors.Is(err, gateway.ErrUnavailable) {
				t.Errorf("the one that waited: %v", err)
			}
		})
		wg.Go(func() { // ends by itself, past the lease but before anything is cancelled
			_ = w.Do(t.Context(), "k2", func(x gateway.Execution) error {
				time.Sleep(6500 * time.Millisecond)
				return x.Context().Err()
			})
		})
		synctest.Wait()
		wg.Go(func() {
			if err := w.Do(t.Context(), "k2", ok); !errors.Is(err, gateway.ErrUnavailable) {
				t.Errorf("the one that won the mutex past the lease: %v", err)
			}
		})
		time.Sleep(4900 * time.Millisecond)
		if err := w.Do(t.Context(), "other", ok); err != nil {
			t.Errorf("inside the lease: %v", err)
		}
		time.Sleep(2200 * time.Millisecond)
		if err := w.Do(t.Context(), "other", ok); !errors.Is(err, gateway.ErrUnavailable) {
			t.Errorf("past the lease: %v", err)
		}
		if w.Ready() == nil {
			t.Error("ready without a lease")
		}
		wg.Wait()

		store.Set(false)
		for w.Do(t.Context(), "k", ok) != nil {
			time.Sleep(100 * time.Millisecond)
		}
		if d := time.Since(cut); d > 40*time.Second {
			t.Errorf("works again after %v", d)
		}
	})
}

// With ServeWithoutStore the worker goes on while its view stays the same.
func TestServeWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		store := &site.CutStore{Store: c.Store}
		w := c.StartOwner(func(cfg *worker.Config) { cfg.Store, cfg.ServeWithoutStore = store, true })
		time.Sleep(5 * time.Second)
		store.Set(true)
		for range 60 {
			time.Sleep(time.Second)
			if err := w.Do(t.Context(), "k", ok); err != nil {
				t.Fatal(err)
			}
		}
		c.Hub.Join(ring.Member{Name: "w9", Incarnation: "x", Role: ring.RoleWorker, State: ring.StateActive})
		time.Sleep(10 * time.Second)
		if err := w.Do(t.Context(), "k", ok); err == nil {
			t.Error("it serves on though the view has changed")
		}
	})
}

// The epoch moves on before a partition's sequence of tokens runs out.
func TestEpochMovesOnBeforeTheSequenceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 1).StartOwner()
		var last int64
		epochs := make(map[int64]bool)
		for i := range 1<<20 + 1<<16 {
			err := w.Do(t.Context(), "k", func(x gateway.Execution) error {
				if x.Token() <= last {
					t.Fatalf("token %d follows %d", x.Token(), last)
				}
				last = x.Token()
				epochs[x.Token()>>20] = true
				return nil
			})
			if err != nil {
				t.Fatal(i, err)
			}
			if i%(1<<16) == 0 {
				synctest.Wait() // lets the shell work, however fast this loop is
			}
		}
		if len(epochs) < 2 {
			t.Errorf("%d epochs", len(epochs))
		}
	})
}

// A process may be stopped between winning a key's mutex and starting, and the
// lease that it finds may be another one than that under which it asked: of its
// next incarnation, or renewed after all was cancelled. What it won does not
// start then; it asks again.
func TestTrapStoppedBetweenMutexAndStart(t *testing.T) {
	for name, waits := range map[string]bool{"the key is free": false, "the key is waited for": true} {
		t.Run(name+", next incarnation", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stopWinner(t, waits)
				old := s.Incarnation()
				if err := s.store.Store.Release(t.Context(), old); err != nil {
					t.Fatal(err)
				}
				for s.Incarnation() == old || s.Ready() != nil {
					time.Sleep(100 * time.Millisecond)
				}
				s.goOn(t)
			})
		})
		t.Run(name+", cancelled and renewed", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stopWinner(t, waits)
				var cancelled context.Context
				go s.Do(t.Context(), "witness", func(x gateway.Execution) error {
					cancelled = x.Context()
					<-cancelled.Done()
					return nil
				})
				synctest.Wait()
				s.store.Set(true)
				<-cancelled.Done()
				s.store.Set(false)
				for s.Ready() != nil {
					time.Sleep(10 * time.Millisecond)
				}
				s.goOn(t)
			})
		})
	}
}

// stoppedWinner is a worker at which a caller of key "k" has won the key's
// mutex and stands still.
type stoppedWinner struct {
	*site.Worker
	store   *site.CutStore
	resume  chan struct{}
	outcome chan error
	won     int64 // the token of what the caller has won
	token   int64 // of the execution that it begins in the end
}

func stopWinner(t *testing.T, waits bool) *stoppedWinner {
	c := site.New(t, 16)
	s := &stoppedWinner{store: &site.CutStore{Store: c.Store}, resume: make(chan struct{}), outcome: make(chan error, 1)}
	s.Worker = c.Start(func(cfg *worker.Config) { cfg.Store = s.store })
	s.AwaitServing(t, 16)
	var stop atomic.Bool
	stopped := make(chan struct{})
	s.OnConfirming(func() {
		if stop.CompareAndSwap(true, false) {
			close(stopped)
			<-s.resume
		}
	})
	do := func() {
		s.outcome <- s.Do(t.Context(), "k", func(x gateway.Execution) error {
			s.token = x.Token()
			return x.Context().Err()
		})
	}
	err := s.Do(t.Context(), "k", func(x gateway.Execution) error {
		s.won = x.Token() + 1
		if waits {
			go do()
			synctest.Wait()
		}
		stop.Store(true)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !waits {
		go do()
	}
	<-stopped
	return s
}

// goOn resumes the caller, which must not start with what it had won before.
func (s *stoppedWinner) goOn(t *testing.T) {
	t.Helper()
	close(s.resume)
	if err := <-s.outcome; err != nil {
		t.Errorf("it gave up, or started and was cancelled: %v", err)
	}
	if s.token <= s.won {
		t.Errorf("it ran with token %d, which it had won before all was cancelled", s.token)
	}
}

// claimedStore shows partition 0 as that of a worker that has claimed it.
type claimedStore struct {
	worker.Store
	claimed atomic.Bool
}

func (s *claimedStore) Observe(ctx context.Context, generation, incarnation string, since int64, suspects []string) (records.Snapshot, error) {
	snapshot, err := s.Store.Observe(ctx, generation, incarnation, since, suspects)
	if s.claimed.Load() {
		theirs := records.PartitionState{Record: records.Record{Epoch: 1 << 31, Owner: "another"}}
		snapshot.Partitions = slices.Concat(snapshot.Partitions, []records.PartitionState{theirs})
	}
	return snapshot, err
}

// What runs in a partition that another worker has claimed is cancelled at once, and nothing else.
func TestTrapAnotherWorkerClaimsWhatIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.New(t, 2)
		store := &claimedStore{Store: s.Store}
		w := s.StartOwner(func(cfg *worker.Config) { cfg.Store = store })
		var wg sync.WaitGroup
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
			wg.Go(func() {
				_ = w.Do(t.Context(), key, func(x gateway.Execution) error {
					time.Sleep(5 * time.Second)
					want := error(nil)
					if s.Ring.Partition(key) == 0 {
						want = gateway.ErrOwnershipLost
					}
					if cause := context.Cause(x.Context()); cause != want {
						t.Errorf("%s, of partition %d, is cancelled with %v", key, s.Ring.Partition(key), cause)
					}
					return nil
				})
			})
		}
		store.claimed.Store(true)
		wg.Wait()
	})
}
