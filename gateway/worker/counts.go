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

// counts is what a worker counts beside its executions.
type counts struct {
	problems [problem.Kinds]atomic.Int64       // requests and calls that were refused, or answered in place of the app
	left     atomic.Int64                      // callers that have left while they waited
	shared   atomic.Int64                      // requests and calls that got the answer to an equal one
	batches  metrics.Sizes                     // items of each
	stored   [storeCallKinds]metrics.Latencies // calls to the store
	failed   [storeCallKinds]atomic.Int64      // of these
	sessions atomic.Int64                      // that were lost
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
