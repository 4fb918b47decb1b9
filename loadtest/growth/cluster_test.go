package growth

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

// growth is what a simulated cluster asked of its store.
type growth struct {
	served time.Duration // from the start of all workers until all partitions were served
	start  calls         // until then
	idle   calls         // while nothing changed, for idleTime
	join   calls         // since one more worker started, until 2 TTL later
	joined time.Duration // from its start to the last move
}

// calls are numbers of calls of a store, and the partitions that they moved.
type calls struct{ looks, renewals, others, moves int }

// all returns the number of all calls.
func (c calls) all() int { return c.looks + c.renewals + c.others }

// idleTime is how long [grow] counts the calls of idle workers: two session TTLs.
const idleTime = 20 * time.Second

// grow starts n workers at once over an empty store, and one more in the end, in virtual time. The workers,
// their ring and the machine are real, and the session TTL and the partitions are the default. The store and the
// membership are in memory.
func grow(t *testing.T, n int) (g growth) {
	synctest.Test(t, func(t *testing.T) {
		c := site.NewWith(t, ring.Settings{}.WithDefaults())
		c.Hub.Delay = 100 * time.Millisecond // as gossip gathers news
		store := &countedStore{Store: c.Store}
		c.Store = store
		quiet := func(cfg *worker.Config) { cfg.Logger, cfg.NewCluster = nil, false }
		workers := make([]*site.Worker, n)
		began := time.Now()
		for i := range workers {
			workers[i] = c.Start(quiet)
		}
		time.Sleep(c.Settings.TTL) // the quarantine
		for served := 0; served != c.Ring.Partitions; {
			time.Sleep(100 * time.Millisecond)
			served = 0
			for _, w := range workers {
				served += max(w.Serving(), 0)
			}
		}
		g.served, g.start = time.Since(began), store.take()
		time.Sleep(c.Settings.TTL) // the moves are over
		store.take()
		time.Sleep(idleTime)
		g.idle = store.take()
		began = time.Now()
		c.Start(quiet)
		time.Sleep(2 * c.Settings.TTL)
		g.join, g.joined = store.take(), store.moved.Sub(began)
	})
	return g
}

// countedStore counts the calls of its workers.
type countedStore struct {
	worker.Store
	mu    sync.Mutex // guards what follows
	calls calls
	moved time.Time // when the latest move was asked for
}

// take returns the calls since the latest take.
func (s *countedStore) take() (c calls) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, s.calls = s.calls, c
	return c
}

func (s *countedStore) count(kind *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*kind++
}

func (s *countedStore) Observe(ctx context.Context, generation, incarnation string, since int64, suspects []string) (records.Snapshot, error) {
	s.count(&s.calls.looks)
	return s.Store.Observe(ctx, generation, incarnation, since, suspects)
}

func (s *countedStore) Renew(ctx context.Context, generation, incarnation string, ttl time.Duration) (records.Snapshot, error) {
	s.count(&s.calls.renewals)
	return s.Store.Renew(ctx, generation, incarnation, ttl)
}

func (s *countedStore) Apply(ctx context.Context, generation, incarnation string, changes []records.Change) ([]records.PartitionState, error) {
	s.mu.Lock()
	s.calls.others++
	for _, c := range changes {
		if c.Op == records.OpMove {
			s.calls.moves++
			s.moved = time.Now()
		}
	}
	s.mu.Unlock()
	return s.Store.Apply(ctx, generation, incarnation, changes)
}

func (s *countedStore) Register(ctx context.Context, generation string, session records.Session, ttl time.Duration, holdings []records.Holding) ([]records.PartitionState, error) {
	s.count(&s.calls.others)
	return s.Store.Register(ctx, generation, session, ttl, holdings)
}

func (s *countedStore) Generation(ctx context.Context, begin bool) (string, error) {
	s.count(&s.calls.others)
	return s.Store.Generation(ctx, begin)
}
