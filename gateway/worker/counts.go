package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/ring/handoff"
)

// counts is what a worker counts. What executions count often is in parts, by their
// partitions' numbers.
type counts struct {
	waits     [metrics.Stripes]metrics.Latencies           // of those that had to wait for their key
	runs      [runKinds][metrics.Stripes]metrics.Latencies // of executions
	problems  [problem.Kinds]atomic.Int64                  // requests and calls that were refused, or answered in place of the app
	left      atomic.Int64                                 // callers that have left while they waited
	cancelled [cancelCauses]atomic.Int64                   // executions
	shared    atomic.Int64                                 // requests and calls that got the answer to an equal one
	batches   metrics.Sizes                                // items of each
	stored    [storeCallKinds]metrics.Latencies            // calls to the store
	failed    [storeCallKinds]atomic.Int64                 // of these
	sessions  atomic.Int64                                 // that were lost
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
func (c *counts) waited(p *partition, d time.Duration) {
	c.waits[p.number%metrics.Stripes].Observe(d)
}

// ran counts an execution that has begun at r.began.
func (c *counts) ran(r *run) {
	kind := runCall
	if r.timeout != 0 {
		kind = runRequest
	}
	took := r.part.worker.now() - r.began
	c.runs[kind][r.part.number%metrics.Stripes].Observe(took)
	r.timing.ran(took)
}

// refused counts err, for which a caller with ctx was not admitted, and returns it.
func (c *counts) refused(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		c.left.Add(1)
	} else {
		c.problems[problemOf(err).Kind].Add(1)
	}
	return err
}

// own counts an answer of the worker's own, and returns it.
func (c *counts) own(k problem.Kind) problem.Problem {
	c.problems[k].Add(1)
	return problem.Of(k)
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
	case ErrTimeout:
		return cancelTimeout, true
	case ErrOwnershipLost:
		return cancelOwnership, true
	case errAbandoned, errAllLeft:
		return cancelAbandoned, true
	}
	return 0, false
}

// end counts an execution that has ended, if it was cancelled with one of the causes.
func (c *counts) end(err error) {
	if cause, cancelled := cancelCauseOf(err); cancelled {
		c.cancelled[cause].Add(1)
	}
}

// storeCall is a kind of call to the store.
type storeCall uint8

const (
	callGeneration storeCall = iota
	callRegister
	callRenew
	callObserve
	callApply
	callClear
	callClearLocks
	callWriteLocks
	callRelease
	storeCallKinds
)

func (c storeCall) String() string {
	return [storeCallKinds]string{"generation", "register", "renew", "observe", "apply", "clear", "clear_locks", "write_locks", "release"}[c]
}

// called counts a call to the store that has taken so long. That nothing was applied
// since the data or the session are others is an answer, and no failure.
func (c *counts) called(call storeCall, took time.Duration, err error) {
	c.stored[call].Observe(took)
	if err != nil && !errors.Is(err, handoff.ErrGeneration) && !errors.Is(err, handoff.ErrSessionGone) {
		c.failed[call].Add(1)
	}
}
