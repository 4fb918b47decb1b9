package worker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/site"
)

// releasedStore notes which sessions its worker has released.
type releasedStore struct {
	worker.Store
	mu       sync.Mutex
	released []string
}

func (s *releasedStore) Release(ctx context.Context, incarnation string) error {
	s.mu.Lock()
	s.released = append(s.released, incarnation)
	s.mu.Unlock()
	return s.Store.Release(ctx, incarnation)
}

func (s *releasedStore) has(incarnation string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.released, incarnation)
}

// A life that is over learns of its last execution's end, beside its successor,
// and only then releases its session.
func TestTheLifeBeforeIsReleasedWithItsLastExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 1)
		store := &releasedStore{Store: c.Store}
		w := c.StartOwner(func(cfg *worker.Config) { cfg.Store = store })
		first := w.Incarnation()
		end, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
				<-end
				return nil
			})
		}()
		synctest.Wait()
		if err := c.Store.Release(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		for w.Incarnation() == first {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if store.has(first) {
			t.Fatal("the former life is released while its execution runs")
		}
		close(end)
		<-ended
		time.Sleep(time.Second)
		if !store.has(first) {
			t.Error("the former life is not released though its last execution has ended")
		}
	})
}

// A worker that is started again in the place of a dead one takes over what that had. Another worker, which would have to
// give it back, takes nothing meanwhile.
func TestARestartedWorkerTakesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		c.Hub.Delay = 15 * time.Millisecond
		a, b := c.Start(), c.Start()
		together(t, a, b)
		has := b.Serving()
		a.Close()
		a.Member.Vanish()
		cut := &site.CutStore{Store: c.Store}
		cut.Set(true)
		next := c.StartNamed("w1", func(cfg *worker.Config) {
			cfg.Store, cfg.Previous = cut, map[string]time.Duration{a.Incarnation(): 0}
		})
		time.Sleep(time.Second) // all know that it is joining
		cut.Set(false)
		for began := time.Now(); next.Serving() < 16-has; time.Sleep(time.Millisecond) {
			if b.Serving() != has || time.Since(began) > 2*time.Second {
				t.Fatalf("after %v the other worker serves %d partitions, after %d; the new one %d", time.Since(began), b.Serving(), has, next.Serving())
			}
		}
	})
}

// hintless is a store whose hints do not arrive.
type hintless struct{ worker.Store }

func (hintless) Watch(context.Context) <-chan records.Hint { return nil }

// A worker that has released the life before it claims its partitions at once, whether or not a hint comes.
func TestAReleasedLifeIsSucceededAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		w := c.StartNamed("w", func(cfg *worker.Config) { cfg.Store = hintless{c.Store} })
		w.AwaitServing(t, 16)
		w.Close()
		w.Member.Vanish()
		died := time.Now()
		next := c.StartNamed("w", func(cfg *worker.Config) {
			cfg.Store, cfg.Previous = hintless{c.Store}, map[string]time.Duration{w.Incarnation(): 0}
		})
		next.AwaitServing(t, 16)
		if took := time.Since(died); took > 50*time.Millisecond {
			t.Errorf("served again after %v", took)
		}
	})
}
