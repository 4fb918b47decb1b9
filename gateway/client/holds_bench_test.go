package client_test

import (
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// BenchmarkHold is a key held over TCP at a worker of the same process, and one held
// at the process's own worker; DoAll holds two at once. Of the contended one, eight callers for each processor want the key.
func BenchmarkHold(b *testing.B) {
	c := site.New(b, 16)
	w := c.StartReady()
	h := w.Handler(nil)
	w.Listen(b, h)
	for _, way := range []string{"remote", "local"} {
		cfg := client.Config{Members: w.Member}
		if way == "local" {
			cfg.Local = w.Local(h)
		}
		client := kit.Must(client.New(cfg))
		b.Cleanup(func() { client.Close() })
		b.Run(way, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := client.Do(b.Context(), "k", func(gateway.Execution) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(way+" contended", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := client.Do(b.Context(), "k", func(gateway.Execution) error { return nil }); err != nil {
						b.Error(err)
					}
				}
			})
		})
		b.Run(way+" DoAll", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := client.DoAll(b.Context(), []string{"a", "b"}, func(gateway.Execution) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
