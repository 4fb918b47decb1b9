package worker

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/internal/metrics"
)

// counts are a worker's counters, in addition to those of its executions.
type counts struct {
	problems [problem.Kinds]atomic.Int64 // requests and calls that were refused, or answered in place of the app
	left     atomic.Int64                // callers that have left while they waited
	shared   atomic.Int64                // requests and calls that got the answer to an equal one
	batches  metrics.Sizes               // items of each
}

// refused counts err, with which a caller with ctx was refused, and returns it.
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
