package routing

import (
	"context"
	"slices"
	"time"
)

// nowhere stands for the partition of requests that have none.
const nowhere = -1

// RouteAny is Route for a request that any active worker may take. They are tried in turn. If none
// takes it the request waits for as long as patience, and tries again, in growing intervals and
// whenever the view changes.
func (r *Routes) RouteAny(ctx context.Context, patience time.Duration, attempt Attempt) error {
	changed := r.members.Changed()
	done, err := r.tryAll(ctx, attempt)
	if done {
		return err
	}
	if patience <= 0 {
		return &UnreachableError{partition: nowhere, why: err}
	}
	if _, ok := r.join(nowhere); !ok {
		return ErrHoldFull
	}
	began := time.Now()
	defer r.endWait(nowhere, began)
	attempt = attempt.since(began)
	over := time.After(patience)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		select {
		case <-time.After(pause/2 + r.jitter(pause/2)):
		case <-changed:
			pause = firstPause
		case <-over:
			return &UnreachableError{partition: nowhere, why: err}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		changed = r.members.Changed()
		if done, err = r.tryAll(ctx, attempt); done {
			return err
		}
	}
}

// tryAll makes an attempt at each active worker until one is settled.
func (r *Routes) tryAll(ctx context.Context, attempt Attempt) (done bool, err error) {
	err = ErrNoWorker
	view := r.members.View()
	if view.KeyConflict != nil {
		return true, view.KeyConflict
	}
	workers := view.Workers()
	if len(workers) == 0 {
		return false, err
	}
	first := int(r.turn.Add(1) % uint64(len(workers)))
	for _, m := range slices.Concat(workers[first:], workers[:first]) {
		out := attempt(Target{Member: m})
		switch {
		case out.Verdict == Settled:
			return true, out.Err
		case ctx.Err() != nil:
			return true, context.Cause(ctx)
		}
		err = out.Err
		r.count(out.Verdict)
	}
	return false, err
}
