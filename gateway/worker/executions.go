package worker

import (
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/metrics"
)

// keyCounts is what executions count. What they count often is in parts, by their
// partitions' numbers.
type keyCounts struct {
	waits     [metrics.Stripes]metrics.Latencies           // of those that had to wait for their key
	runs      [runKinds][metrics.Stripes]metrics.Latencies // of executions
	cancelled [cancelCauses]atomic.Int64                   // executions
}

// runKind tells whose runs are counted.
type runKind uint8

const (
	runRequest runKind = iota // each
	runCall                   // of this program, one of sampleEvery
	runKinds
)

func (k runKind) String() string { return [runKinds]string{"request", "call"}[k] }

// waited counts a wait for a key of p.
func (c *keyCounts) waited(p *partition, d time.Duration) {
	c.waits[p.number%metrics.Stripes].Observe(d)
}

// ran counts an execution that has begun at r.began.
func (c *keyCounts) ran(r *run) {
	kind := runCall
	if r.timeout != 0 {
		kind = runRequest
	}
	took := r.part.keys.now() - r.began
	c.runs[kind][r.part.number%metrics.Stripes].Observe(took)
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

// end counts an execution that has ended, if it was cancelled with one of the causes.
func (c *keyCounts) end(err error) {
	if cause, cancelled := cancelCauseOf(err); cancelled {
		c.cancelled[cause].Add(1)
	}
}

// waitsOf returns how long callers have waited for their keys.
func (c *keyCounts) waitsOf() (d metrics.Distribution) {
	for i := range c.waits {
		d.Add(c.waits[i].Distribution())
	}
	return d
}

// runsOf returns how long executions of a kind have held their keys.
func (c *keyCounts) runsOf(kind runKind) (d metrics.Distribution) {
	for i := range c.runs[kind] {
		d.Add(c.runs[kind][i].Distribution())
	}
	return d
}

// cancellations returns how many executions were cancelled with a cause.
func (c *keyCounts) cancellations(cause cancelCause) int64 { return c.cancelled[cause].Load() }
