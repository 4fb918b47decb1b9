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
	Waits     Stripes                    // of those that had to wait for their key
	Requests  Stripes                    // executions of requests
	Calls     Stripes                    // executions of calls of this program, one of sampleEvery
	cancelled [cancelCauses]atomic.Int64 // executions
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

// cancelCause is why an execution was cancelled.
type cancelCause uint8

const (
	cancelTimeout cancelCause = iota
	cancelOwnership
	cancelAbandoned
	cancelCauses
)

func (c cancelCause) String() string {
	return [cancelCauses]string{"timeout", "ownership-lost", "abandoned"}[c]
}

func cancelCauseOf(err error) (c cancelCause, cancelled bool) {
	switch err {
	case gateway.ErrTimeout:
		return cancelTimeout, true
	case gateway.ErrOwnershipLost:
		return cancelOwnership, true
	case errAbandoned, ErrAllLeft:
		return cancelAbandoned, true
	}
	return 0, false
}

// Cancellations passes on how many executions were cancelled, and why.
func (c *Counts) Cancellations(of func(reason string, n int64)) {
	for cause := range cancelCauses {
		of(cause.String(), c.cancelled[cause].Load())
	}
}

// errAbandoned is the cause of an app execution's context when its client has left for too long.
var errAbandoned = errors.New("worker: the client has left, and the app did not finish its answer in time (Limits.AbandonedTimeout)")

// ErrAllLeft is the cause of a batch's context when the callers of all its items have left.
var ErrAllLeft = errors.New("worker: the callers of all items of the batch have left")
