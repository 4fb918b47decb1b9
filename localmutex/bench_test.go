package localmutex

import (
	"context"
	"sync"
	"testing"
)

func BenchmarkMutex(b *testing.B) {
	b.Run("sync", func(b *testing.B) {
		var mu sync.Mutex
		for b.Loop() {
			mu.Lock()
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
		t.Lock(ctx, "first")
		b.ReportAllocs()
		for b.Loop() {
			token, _ := t.Lock(ctx, "order-4711")
			t.Unlock("order-4711", token)
		}
	})
	b.Run("mutex", func(b *testing.B) {
		var m Mutex
		ctx := context.Background()
		b.ReportAllocs()
		for b.Loop() {
			m.Lock(ctx, "order-4711")
			m.Unlock("order-4711")
		}
	})
	for _, name := range []string{"background", "cancellable"} {
		b.Run("contended/"+name, func(b *testing.B) {
			var t Table
			ctx := context.Background()
			if name == "cancellable" {
				ctx = b.Context()
			}
			b.ReportAllocs()
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					token, _ := t.Lock(ctx, "order-4711")
					t.Unlock("order-4711", token)
				}
			})
		})
	}
}
