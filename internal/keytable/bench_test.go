package keytable

import (
	"context"
	"sync"
	"testing"
)

// BenchmarkTable has sync.Mutex beside it. The nested module localmutex/bench compares with
// other keyed mutexes.
func BenchmarkTable(b *testing.B) {
	b.Run("sync", func(b *testing.B) {
		var mu sync.Mutex
		n := 0
		for b.Loop() {
			mu.Lock()
			n++
			mu.Unlock()
		}
	})
	b.Run("table", func(b *testing.B) {
		var t Table
		ctx := context.Background()
		b.ReportAllocs()
		for b.Loop() {
			token, _ := t.Lock(ctx, "order-4711")
			t.Unlock("order-4711", token)
		}
	})
	b.Run("table/second", func(b *testing.B) {
		var t Table
		ctx := context.Background()
		_, _ = t.Lock(ctx, "first")
		b.ReportAllocs()
		for b.Loop() {
			token, _ := t.Lock(ctx, "order-4711")
			t.Unlock("order-4711", token)
		}
	})
	for _, name := range []string{"background", "cancellable"} {
		b.Run("contended/"+name, func(b *testing.B) {
			var t Table
			b.ReportAllocs()
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				ctx := context.Background()
				if name == "cancellable" {
					var cancel context.CancelFunc
					ctx, cancel = context.WithCancel(ctx)
					defer cancel()
				}
				for pb.Next() {
					token, _ := t.Lock(ctx, "order-4711")
					t.Unlock("order-4711", token)
				}
			})
		})
	}
}
