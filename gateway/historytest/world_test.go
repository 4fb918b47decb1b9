package historytest

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/site"
)

const (
	partitions = 16
	ttl        = 10 * time.Second // the default
)

// bubble runs f in a bubble of synctest, on one processor: two of them crash
// the race detector there (seen with Go 1.26.8).
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, f)
}

// world is a cluster of workers that come and go, and the resource that their
// executions read and write.
type world struct {
	*site.Site
	t       *testing.T
	clock   atomic.Int64 // orders calls and returns: a bubble's time stands still between them
	long    atomic.Bool  // many executions take as long as they may
	started func(*node)  // is told of each worker before it serves

	mu    sync.Mutex // guards what follows
	here  []*node    // the one that has been there for the longest first
	named int

	// Each of these is guarded by its key, or so it should be. They are atomic
	// because a worker that took over from a dead one knows of its last writes by
	// time alone.
	values []atomic.Int64
	tokens []atomic.Int64
}

func newWorld(t *testing.T, keys int) *world {
	t.Helper()
	return &world{Site: site.New(t, partitions), t: t, values: make([]atomic.Int64, keys), tokens: make([]atomic.Int64, keys)}
}

// node is a worker with its place among the members.
type node struct {
	*site.Worker
	batcher *worker.Batcher[*call, int64]
	store   *farStore
}

// start adds a worker and waits until it serves.
func (w *world) start() *node {
	w.mu.Lock()
	w.named++
	name := fmt.Sprintf("w%d", w.named)
	w.mu.Unlock()
	n := &node{store: &farStore{Store: w.Store}}
	n.Worker = w.StartNamed(name, func(cfg *worker.Config) { cfg.Store, cfg.Logger = n.store, slog.New(slog.DiscardHandler) })
	if w.started != nil {
		w.started(n)
	}
	n.AwaitServing(w.t, 1)
	w.mu.Lock()
	w.here = append(w.here, n)
	w.mu.Unlock()
	return n
}

func (w *world) nodes() []*node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.here)
}

func (w *world) remove(n *node) {
	w.mu.Lock()
	w.here = slices.DeleteFunc(w.here, func(other *node) bool { return other == n })
	w.mu.Unlock()
}

// stop drains a worker and ends it.
func (w *world) stop(n *node) {
	if err := n.Drain(w.t.Context()); err != nil {
		w.t.Error(err)
	}
	w.remove(n)
	if err := n.Close(); err != nil {
		w.t.Error(err)
	}
	n.Member.Vanish()
}

// crash ends a worker that hands nothing over.
func (w *world) crash(n *node) {
	w.remove(n)
	n.store.cut.Store(1)
	if err := n.Close(); err != nil {
		w.t.Error(err)
	}
	n.Member.Vanish()
}

// live lets workers come and go, so many times.
func (w *world) live(random *rand.Rand, times int) {
	events := make(map[string]int)
	for range times {
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		w.long.Store(random.IntN(2) == 0)
		time.Sleep(200 * time.Millisecond) // some of them begin
		nodes := w.nodes()
		victim := nodes[random.IntN(len(nodes))]
		event := []string{"move", "move", "crash", "cut"}[random.IntN(4)]
		events[event]++
		switch event {
		case "move":
			w.start()
			w.stop(victim)
		case "crash":
			w.crash(victim)
			w.start()
		case "cut":
			victim.store.cut.Store(1)
			time.Sleep(time.Duration(random.Int64N(int64(2 * ttl))))
			victim.store.cut.Store(0)
		}
		w.long.Store(false)
	}
	w.t.Logf("what happened to workers: %v", events)
}
