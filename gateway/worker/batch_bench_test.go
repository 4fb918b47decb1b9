package worker_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/site"
)

// BenchmarkBatch has callers of one key, each of which comes back when it has its
// result. One operation is one item.
func BenchmarkBatch(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			benchmarkBatch(b, callers, nil)
		})
	}
}

func benchmarkBatch(b *testing.B, callers int, work func()) {
	w := benchmarkWorker(b)
	var batches atomic.Int64
	batcher, err := worker.NewBatcher(w.Worker, worker.BatchConfig{}, func(_ gateway.Execution, items []*worker.Item[int, int]) error {
		batches.Add(1)
		for _, i := range items {
			i.Out = i.In
		}
		if work != nil {
			work()
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	each(b, callers, func(ctx context.Context, i int) error {
		out, err := batcher.Do(ctx, "stock-42", i)
		if err == nil && out != i {
			err = fmt.Errorf("got %d for %d", out, i)
		}
		return err
	})
	b.ReportMetric(float64(b.N)/float64(batches.Load()), "items/batch")
}

func benchmarkWorker(b *testing.B) *site.Worker {
	w := site.New(b, 16).StartOwner(func(cfg *worker.Config) { cfg.Logger = nil })
	return w
}

// each has callers do b.N calls together.
func each(b *testing.B, callers int, do func(context.Context, int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				if err := do(b.Context(), int(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkHotKey has 64 callers of one key whose work takes 1 ms, however many
// it is for: what Do does, what Batch does, and how many times as much.
func BenchmarkHotKey(b *testing.B) {
	work := func() { time.Sleep(time.Millisecond) }
	var alone, batched time.Duration
	b.Run("Do", func(b *testing.B) {
		w := benchmarkWorker(b)
		b.ResetTimer()
		each(b, 64, func(ctx context.Context, _ int) error {
			return w.Do(ctx, "stock-42", func(gateway.Execution) error { work(); return nil })
		})
		alone = b.Elapsed() / time.Duration(b.N)
	})
	b.Run("Batch", func(b *testing.B) {
		benchmarkBatch(b, 64, work)
		batched = b.Elapsed() / time.Duration(b.N)
		if alone > 0 {
			b.ReportMetric(float64(alone)/float64(batched), "times-Do")
		}
	})
}
