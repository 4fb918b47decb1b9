package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// Two workers that share gossip but not a Redis: no key runs at both at once,
// and the second one says why it does not begin.
func TestTwoRedisUnderOneGossip(t *testing.T) {
	redistest.Require(t)
	settings := ring.Settings{Ring: ring.Config{Partitions: 64}, TTL: 2 * time.Second}
	var workers []*worker.Worker
	var seeds []string
	for i := range 2 {
		store, err := store.New(redistest.Start(t).URL(), store.Config{Settings: settings, NewCluster: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		name := fmt.Sprint("w", i+1)
		members, err := gossip.Start(t.Context(), gossip.Config{Settings: settings, Seeds: seeds, Self: ring.Member{Name: name, Role: ring.RoleWorker, Addr: name + ":80"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { members.Close() })
		seeds = []string{members.Addr()}
		w, err := worker.Start(t.Context(), worker.Config{Members: members, Store: store, NewCluster: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		workers = append(workers, w)
		if i == 0 {
			kit.Eventually(t, "the first worker serves", func() bool { return w.Serving() == 64 })
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Await(ctx); !errors.Is(err, ring.ErrSettings) || !strings.Contains(err.Error(), "store") || !strings.Contains(err.Error(), "--redis") {
			t.Errorf("the second worker: %v", err)
		}
	}
	overlaps, ran := 0, 0
	for i := range 200 {
		key := fmt.Sprint("key ", i)
		var mu sync.Mutex
		var running int
		var both sync.WaitGroup
		for _, w := range workers {
			both.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_ = w.Do(ctx, key, func(gateway.Execution) error {
					mu.Lock()
					ran++
					if running++; running > 1 {
						overlaps++
					}
					mu.Unlock()
					time.Sleep(5 * time.Millisecond)
					mu.Lock()
					running--
					mu.Unlock()
					return nil
				})
			})
		}
		both.Wait()
	}
	if overlaps > 0 || ran < 200 {
		t.Errorf("%d of 200 keys ran at both workers at once, %d executions", overlaps, ran)
	}
}
