package worker_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/site"
)

// heapInUse returns how much of the heap is in use when what can be freed is.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // empties the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// Keys that were used leave nothing behind. Many at once are tried in localmutex,
// without goroutines, of which the runtime keeps as many as there ever were.
func TestKeysLeaveNothingBehind(t *testing.T) {
	keys := 1_000_000
	if testing.Short() || raceEnabled {
		keys = 50_000
	}
	c := site.New(t, 4096)
	w := c.StartReady()
	ctx := context.Background()
	use := func(from, to int) {
		for i := from; i < to; i++ {
			key := strconv.Itoa(i)
			err := w.Do(ctx, key, func(x gateway.Execution) error { return w.Do(x.Context(), "nested "+key, ok) })
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	use(0, 8192)
	before := heapInUse()
	use(8192, keys)
	after := heapInUse()
	const allowed = 2 << 20
	t.Logf("%d keys: %.1f MiB before, %.1f MiB after", keys, float64(before)/(1<<20), float64(after)/(1<<20))
	if after > before+allowed {
		t.Errorf("%.1f MiB more than before", float64(after-before)/(1<<20))
	}
}

// BenchmarkHeld holds a million keys at once, from as many goroutines, and tells
// what one takes: with its goroutine, and of the heap alone.
func BenchmarkHeld(b *testing.B) {
	const keys = 1_000_000
	c := site.New(b, 4096)
	w := c.StartReady(func(cfg *worker.Config) { cfg.Logger = nil })
	ctx := context.Background()
	for b.Loop() {
		heap := heapInUse()
		var users, held sync.WaitGroup
		release := make(chan struct{})
		held.Add(keys)
		for i := range keys {
			users.Go(func() {
				err := w.Do(ctx, strconv.Itoa(i), func(gateway.Execution) error { held.Done(); <-release; return nil })
				if err != nil {
					b.Error(err)
				}
			})
		}
		held.Wait()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(int64(m.HeapInuse)-heap)/keys, "B/key")
		b.ReportMetric(float64(m.StackInuse)/keys, "stack-B/key")
		close(release)
		users.Wait()
	}
}
