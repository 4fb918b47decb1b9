package metrics

import (
	"sync/atomic"
	"time"
)

// Distribution is what [Latencies] have counted until a moment.
type Distribution struct {
	counts [len(latencyBounds) + 1]uint64
	sum    float64 // in seconds
}

// Add adds what others have counted.
func (d *Distribution) Add(other Distribution) {
	for i, n := range other.counts {
		d.counts[i] += n
	}
	d.sum += other.sum
}

// latencyBounds are the highest values of each bucket but the last.
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

// Distribution returns what was counted.
func (l *Latencies) Distribution() Distribution {
	d := Distribution{sum: float64(l.sum.Load()) / float64(time.Second)}
	for i := range l.counts {
		d.counts[i] = l.counts[i].Load()
	}
	return d
}
