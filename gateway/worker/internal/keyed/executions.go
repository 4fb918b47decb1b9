package keyed

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/metrics"
)

// Counts has the counters of executions. Frequent ones are striped by the partitions' numbers.
type Counts struct {
	waits     [metrics.Stripes]metrics.Latencies           // of those that had to wait for their key
	runs      [runKinds][metrics.Stripes]metrics.Latencies // of executions
	cancelled [cancelCauses]atomic.Int64                   // executions
}

// runKind is the kind of execution whose duration is counted.
type runKind uint8

const (
	runRequest runKind = iota // each
	runCall                   // of this program, one of sampleEvery
	runKinds
)

func (k runKind) String() string { return [runKinds]string{"request", "call"}[k] }

// Waited counts a wait for a key of p.
func (c *Counts) Waited(p *Partition, d time.Duration) {
	c.waits[p.Number%metrics.Stripes].Observe(d)
}

// ran counts an execution that has begun at r.began.
func (c *Counts) ran(r *run) {
	kind := runCall
	if r.timeout != 0 {
		kind = runRequest
	}
	took := r.part.keys.Now() - r.began
	c.runs[kind][r.part.Number%metrics.Stripes].Observe(took)
	if r.trace != nil {
		r.trace.Ran(took)
	}
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

// cancelCauseOf returns what an execution was cancelled with.
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

// Waits returns how long callers have waited for their keys.
func (c *Counts) Waits() (d metrics.Distribution) {
	for i := range c.waits {
		d.Add(c.waits[i].Distribution())
	}
	return d
}

// Runs passes on how long executions have held their keys, by their kinds.
func (c *Counts) Runs(of func(kind string, d metrics.Distribution)) {
	for kind := range runKinds {
		var d metrics.Distribution
		for i := range c.runs[kind] {
			d.Add(c.runs[kind][i].Distribution())
		}
		of(kind.String(), d)
	}
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
