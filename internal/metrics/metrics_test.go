package metrics_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keyway-go/keyway/internal/metrics"
)

// read returns a distribution as Prometheus gets it: how many values of each bucket
// and those below, how many in all, and their sum.
func read(t *testing.T, d metrics.Distribution) (buckets map[float64]uint64, count uint64, sum float64) {
	t.Helper()
	ch := make(chan prometheus.Metric, 1)
	metrics.SendHistogram(ch, new(metrics.Families).Histogram("h", "Help."), d)
	var m dto.Metric
	if err := (<-ch).Write(&m); err != nil {
		t.Fatal(err)
	}
	buckets = make(map[float64]uint64)
	for _, b := range m.GetHistogram().GetBucket() {
		buckets[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	return buckets, m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum()
}

// Each duration is counted in the buckets whose bound it does not exceed.
func TestLatencies(t *testing.T) {
	var empty metrics.Latencies
	buckets, count, sum := read(t, empty.Distribution())
	if len(buckets) != 16 || count != 0 || sum != 0 {
		t.Errorf("empty: %v, %d, %v", buckets, count, sum)
	}
	for _, d := range []time.Duration{-1, 0, 1, 100 * time.Microsecond, 100*time.Microsecond + 1, time.Millisecond, 40 * time.Millisecond, 10 * time.Second, 11 * time.Second, time.Hour} {
		var l metrics.Latencies
		l.Observe(d)
		buckets, count, sum := read(t, l.Distribution())
		for bound, n := range buckets {
			if in := d.Seconds() <= bound; in != (n == 1) {
				t.Errorf("%v is counted %d times in the bucket up to %v s", d, n, bound)
			}
		}
		if want := max(d, 0).Seconds(); count != 1 || math.Abs(sum-want) > 1e-9 {
			t.Errorf("%v: %d values, sum %v", d, count, sum)
		}
	}
}

// Nothing is lost of what many count at once, in whichever parts.
func TestParts(t *testing.T) {
	var n metrics.Striped
	var parts [metrics.Stripes]metrics.Latencies
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			stripe := metrics.Stripe()
			for range 1000 {
				n.Add(stripe, 1)
				parts[stripe].Observe(time.Second)
			}
		})
	}
	all.Wait()
	var d metrics.Distribution
	for i := range parts {
		d.Add(parts[i].Distribution())
	}
	if _, count, sum := read(t, d); n.Load() != 16_000 || count != 16_000 || sum != 16_000 {
		t.Errorf("%d, and %d with the sum %v; want 16000", n.Load(), count, sum)
	}
}

// A program's registry tells of the build, of Go and of the process.
func TestRegistry(t *testing.T) {
	families, err := metrics.NewRegistry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
		if f.GetName() == "keyway_build_info" && !strings.Contains(f.String(), runtime.Version()) {
			t.Errorf("%v", f)
		}
	}
	for _, want := range []string{"keyway_build_info", "go_goroutines", "process_cpu_seconds_total"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	for _, d := range []time.Duration{50 * time.Microsecond, 3 * time.Millisecond, time.Minute} {
		b.Run(fmt.Sprint(d), func(b *testing.B) {
			var l metrics.Latencies
			for b.Loop() {
				l.Observe(d)
			}
		})
	}
}
