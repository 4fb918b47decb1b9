package store

import (
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/internal/test/storetest"
)

// Benchmarks of the calls that a cluster makes: heartbeats (Renew, Observe of
// nothing new), a batch of moves, and the re-assertion of every partition.
func BenchmarkStore(b *testing.B) {
	b.Run("redis", func(b *testing.B) { benchmarkStore(b, redistest.Start(b).URL()) })
	b.Run("embedded", func(b *testing.B) { benchmarkStore(b, startEmbedded(b).URL()) })
}

func benchmarkStore(b *testing.B, url string) {
	store := openStore(b, url, Config{NewCluster: true})
	gen, err := store.Generation(b.Context(), true)
	if err != nil {
		b.Fatal(err)
	}
	const ttl = time.Hour
	all := make([]records.Holding, 4096)
	for p := range all {
		all[p] = records.Holding{Partition: p, Epoch: 1}
	}
	register := func(b *testing.B, holdings []records.Holding) []records.PartitionState {
		states, err := store.Register(b.Context(), gen, records.Session{Incarnation: "incarnation-of-26-letters", Addr: "10.0.0.1:8080"}, ttl, holdings)
		if err != nil {
			b.Fatal(err)
		}
		return states
	}
	states := register(b, all)
	b.Run("Register4096", func(b *testing.B) {
		for b.Loop() {
			states = register(b, all)
		}
	})
	b.Run("Apply64", func(b *testing.B) {
		changes := make([]records.Change, 64)
		for b.Loop() {
			for i := range changes {
				changes[i] = records.Change{Op: records.OpAdvance, Partition: i, From: states[i].Record}
			}
			done, err := store.Apply(b.Context(), gen, "incarnation-of-26-letters", changes)
			if err != nil {
				b.Fatal(err)
			}
			copy(states, done)
		}
	})
	b.Run("Renew", func(b *testing.B) {
		for b.Loop() {
			if err := renew(b.Context(), store, gen, "incarnation-of-26-letters", ttl); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ObserveIdle", func(b *testing.B) { benchmarkObserve(b, store, gen, false) })
	b.Run("Observe4096", func(b *testing.B) { benchmarkObserve(b, store, gen, true) })
}

func benchmarkObserve(b *testing.B, store storetest.Store, gen string, all bool) {
	s, err := store.Observe(b.Context(), gen, "", 0, nil)
	if err != nil {
		b.Fatal(err)
	}
	since := s.Version
	if all {
		since = 0
	}
	for b.Loop() {
		if _, err := store.Observe(b.Context(), gen, "", since, nil); err != nil {
			b.Fatal(err)
		}
	}
}
