package routes

import (
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/policy"
)

// Bucket bounds the rate of events by the generic cell rate algorithm. It stores the time at which
// all events so far would have happened at exactly that rate. Times are since the router's start.
type Bucket struct {
	interval, burst int64 // ns: of one, and how far ahead of now the time may be
	by              atomic.Int64
}

// NewBucket returns a full bucket of that rate.
func NewBucket(r policy.Rate) *Bucket {
	interval := int64(float64(time.Second) / r.PerSecond)
	return &Bucket{interval: interval, burst: interval * int64(r.Burst)}
}

// Take takes one, or returns how long it takes until there is one.
func (b *Bucket) Take(now time.Duration) (wait time.Duration) {
	for {
		by := b.by.Load()
		next := max(by, int64(now)) + b.interval
		if ahead := next - int64(now) - b.burst; ahead > 0 {
			return time.Duration(ahead)
		}
		if b.by.CompareAndSwap(by, next) {
			return 0
		}
	}
}
