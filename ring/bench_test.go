package ring_test

import (
	"fmt"
	"testing"

	"github.com/keyway-go/keyway/ring"
)

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{1, 3, 10, 100} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			table := mustNew(b, ring.Config{}, names("worker", n)...)
			keys := names("order", 1024)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, ok := table.Owner(table.Partition(keys[i%len(keys)])); !ok {
					b.Fatal("no owner")
				}
				i++
			}
		})
	}
}

// BenchmarkChange lets one member join and, in the next iteration, leave.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{3, 10, 100, 1000} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			all := names("worker", n+1)
			builder, err := ring.NewBuilder(ring.Config{})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := builder.Table(all[:n]); err != nil {
				b.Fatal(err)
			}
			i := 0
			for b.Loop() {
				i++
				if _, err := builder.Table(all[:n+i%2]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for _, n := range []int{3, 10, 100} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			all := names("worker", n)
			for b.Loop() {
				if _, err := ring.New(ring.Config{}, all); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
