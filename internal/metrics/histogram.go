package metrics

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Distribution is what a histogram has counted until a moment.
type Distribution struct {
	bounds []float64 // highest value of each bucket but the last
	counts []uint64
	sum    float64
}

// Add adds what another histogram of the same kind has counted.
func (d *Distribution) Add(other Distribution) {
	if d.counts == nil {
		*d = other
		return
	}
	for i, n := range other.counts {
		d.counts[i] += n
	}
	d.sum += other.sum
}

// latencyBounds are the bounds of Latencies.
var latencyBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Latencies counts durations in buckets from 100 µs to 10 s. Any number of goroutines
// may use it. The zero value is empty.
type Latencies struct {
	counts [len(latencyBounds) + 1]atomic.Uint64
	sum    atomic.Uint64 // ns; it may wrap, which looks like a restart
}

// Observe counts a duration.
func (l *Latencies) Observe(d time.Duration) {
	i := 0
	for i < len(latencyBounds) && d > latencyBounds[i] {
		i++
	}
	l.counts[i].Add(1)
	l.sum.Add(uint64(max(d, 0)))
}

// Distribution returns what was counted, in seconds.
func (l *Latencies) Distribution() Distribution {
	d := Distribution{sum: float64(l.sum.Load()) / float64(time.Second)}
	for _, b := range latencyBounds {
		d.bounds = append(d.bounds, b.Seconds())
	}
	for i := range l.counts {
		d.counts = append(d.counts, l.counts[i].Load())
	}
	return d
}

// sizeBuckets is how many bounds Sizes has: 1, 2, 4 and so on up to 1024.
const sizeBuckets = 11

// Sizes counts numbers in buckets of powers of two, up to 1024. Any number of
// goroutines may use it. The zero value is empty.
type Sizes struct {
	counts [sizeBuckets + 1]atomic.Uint64
	sum    atomic.Uint64
}

// Observe counts a number of 1 or more.
func (s *Sizes) Observe(n int) {
	s.counts[min(bits.Len(uint(n-1)), sizeBuckets)].Add(1)
	s.sum.Add(uint64(n))
}

// Distribution returns what was counted.
func (s *Sizes) Distribution() Distribution {
	d := Distribution{sum: float64(s.sum.Load())}
	for i := range s.counts {
		d.counts = append(d.counts, s.counts[i].Load())
		if i < sizeBuckets {
			d.bounds = append(d.bounds, float64(int(1)<<i))
		}
	}
	return d
}
