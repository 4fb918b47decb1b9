package worker_test

import (
	"context"
	"flag"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/workertest"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/records"
)

var simulated = flag.Int("simulated", 30, "how many workers TestIdleWorkersInVirtualTime runs")

// countedStore counts the calls of its workers.
type countedStore struct {
	worker.Store
	looks, renewals, others atomic.Int64
}

func (s *countedStore) Observe(ctx context.Context, generation, incarnation string, since int64, suspects []string) (records.Snapshot, error) {
	s.looks.Add(1)
	return s.Store.Observe(ctx, generation, incarnation, since, suspects)
}

func (s *countedStore) Renew(ctx context.Context, generation, incarnation string, ttl time.Duration) (records.Snapshot, error) {
	s.renewals.Add(1)
	return s.Store.Renew(ctx, generation, incarnation, ttl)
}

func (s *countedStore) Apply(ctx context.Context, generation, incarnation string, changes []records.Change) ([]records.PartitionState, error) {
	s.others.Add(1)
	return s.Store.Apply(ctx, generation, incarnation, changes)
}

func (s *countedStore) Register(ctx context.Context, generation string, session records.Session, ttl time.Duration, holdings []records.Holding) ([]records.PartitionState, error) {
	s.others.Add(1)
	return s.Store.Register(ctx, generation, session, ttl, holdings)
}

func (s *countedStore) Generation(ctx context.Context) (string, error) {
	s.others.Add(1)
	return s.Store.Generation(ctx)
}

// TestIdleWorkersInVirtualTime: what an idle worker asks of the store does not depend on how many
// others there are. The workers, their ring and the machine are real; the store and the membership are
// in memory, and time is a bubble's.
func TestIdleWorkersInVirtualTime(t *testing.T) {
	few := idleCalls(t, 3)
	many := idleCalls(t, *simulated)
	if few != many {
		t.Errorf("per worker and second %+v of 3 workers, %+v of %d", few, many, *simulated)
	}
}

// callRate is how often a worker calls its store, in a second.
type callRate struct{ looks, renewals, others float64 }

func idleCalls(t *testing.T, n int) (rate callRate) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := workertest.NewWith(t, ring.Settings{TTL: ring.Settings{}.WithDefaults().TTL, Ring: ring.Config{Partitions: 4096}})
		c.Hub.Delay = 100 * time.Millisecond // as gossip gathers news
		store := &countedStore{Store: c.Store}
		c.Store = store
		workers := make([]*workertest.Worker, n)
		for i := range workers {
			workers[i] = c.Start(func(cfg *worker.Config) { cfg.Logger = nil })
		}
		for served := 0; served != c.Ring.Partitions; {
			time.Sleep(100 * time.Millisecond)
			served = 0
			for _, w := range workers {
				served += max(w.Serving(), 0)
			}
		}
		settled := time.Since(began)
		time.Sleep(2 * c.Settings.TTL) // the moves are over
		looks, renewals, others := store.looks.Load(), store.renewals.Load(), store.others.Load()
		const long = time.Minute
		time.Sleep(long)
		per := func(now *atomic.Int64, before int64) float64 {
			return float64(now.Load()-before) / long.Seconds() / float64(n)
		}
		rate = callRate{per(&store.looks, looks), per(&store.renewals, renewals), per(&store.others, others)}
		t.Logf("%d workers: all served after %v; per worker and second %.2f looks, %.2f renewals, %.2f other calls", n, settled, rate.looks, rate.renewals, rate.others)
	})
	return rate
}
