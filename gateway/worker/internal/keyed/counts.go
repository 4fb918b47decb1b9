package keyed

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/metrics"
)

// Counts has the counters of executions.
type Counts struct {
	Waits    Stripes // of those that had to wait for their key
	Requests Stripes // executions of requests
	Calls    Stripes // executions of calls of this program, one of sampleEvery

	TimedOut, Lost, Abandoned atomic.Int64 // executions that were cancelled
}

// Stripes are durations of what happens often, in parts by the partitions' numbers.
type Stripes [metrics.Stripes]metrics.Latencies

// Observe counts a duration of something that concerns the partition of that number.
func (s *Stripes) Observe(partition int, d time.Duration) { s[partition%metrics.Stripes].Observe(d) }

// Distribution returns what was counted.
func (s *Stripes) Distribution() (d metrics.Distribution) {
	for i := range s {
		d.Add(s[i].Distribution())
	}
	return d
}

// cancelled returns the count and the name of executions that were cancelled with that cause; nil if it does not
// say so.
func (c *Counts) cancelled(cause error) (n *atomic.Int64, reason string) {
	switch cause {
	case gateway.ErrTimeout:
		return &c.TimedOut, "timeout"
	case gateway.ErrOwnershipLost:
		return &c.Lost, "ownership-lost"
	case errAbandoned, ErrAllLeft:
		return &c.Abandoned, "abandoned"
	}
	return nil, ""
}

// errAbandoned is the cause of an app execution's context when its client has left for too long.
var errAbandoned = errors.New("worker: the client has left, and the app did not finish its answer in time (Limits.AbandonedTimeout)")

// ErrAllLeft is the cause of a batch's context when the callers of all its items have left.
var ErrAllLeft = errors.New("worker: the callers of all items of the batch have left")
