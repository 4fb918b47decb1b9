package router

import (
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/routes"
)

// bucket bounds how often something happens, by the generic cell rate algorithm: it keeps
// the time by which all that has happened would have happened at the rate. Times are
// since the router's start.
type bucket struct {
	interval, burst int64 // ns: of one, and how far ahead of now the time may be
	by              atomic.Int64
}

func newBucket(r routes.Rate) *bucket {
	interval := int64(float64(time.Second) / r.PerSecond)
	return &bucket{interval: interval, burst: interval * int64(r.Burst)}
}

// take takes one, or returns how long it takes until there is one.
func (b *bucket) take(now time.Duration) (wait time.Duration) {
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
