package send

import (
	"context"
	"errors"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// ErrAbandons means that too much of a worker is spent on requests that clients have given
// up, and this client's are among the most.
var ErrAbandons = errors.New("too many requests that this client cancelled still run")

// ErrWorkerFull means that the link to the worker carries all that it takes.
var ErrWorkerFull = errors.New("the worker is full")

// ErrBusy means that too many requests wait at the worker.
var ErrBusy = errors.New("too many requests wait")

// ErrClientBody is wrapped by errors of reading the client's body.
var ErrClientBody = errors.New("the request's body did not arrive")

// ErrBodyTooLarge means that the body is longer than its route allows.
var ErrBodyTooLarge = errors.New("the request's body is too large")

// ErrBodiesFull means that there is no room for a body, neither in memory nor in a temporary
// file; or a worker has refused a request of whose streamed body a part was not kept.
var ErrBodiesFull = errors.New("too many requests with bodies at once")

// ErrNoUpstream means that the server for requests without a key takes none.
var ErrNoUpstream = errors.New("the server for this request cannot be reached")

// ErrClientLeft is the cause of a request's context when its client leaves.
var ErrClientLeft = errors.New("the client has closed the connection")

// StatusClientGone is what nginx logs for a client that did not wait.
const StatusClientGone = 499

// KindOf returns the answer for a client whose request failed with err, and the text of a warning
// to log, "" for none.
func KindOf(err error) (kind problem.Kind, warning string) {
	_, isUnreachable := errors.AsType[*routing.UnreachableError](err)
	switch {
	case isUnreachable:
		return problem.NoOwner, "no owner can be reached"
	case errors.Is(err, ring.ErrSettings):
		return problem.StandsAside, "this router sends no requests"
	case errors.Is(err, routing.ErrHoldFull):
		return problem.HoldFull, ""
	case errors.Is(err, ErrWorkerFull):
		return problem.WorkerFull, "the connections to a worker are full"
	case errors.Is(err, ErrBusy):
		return problem.TooManyWait, ""
	case errors.Is(err, link.ErrHeaderTooLarge):
		return problem.HeadTooLarge, ""
	}
	return problem.MayHaveRun, "the worker did not answer"
}

func attemptFailure(out routing.Outcome) string {
	switch {
	case out.Verdict == routing.NotOwner:
		return "not-owner"
	case out.Verdict == routing.NotStarted:
		return "not-started"
	}
	return FailureOf(out.Err)
}

// FailureOf says how a request has failed that has no worker's answer.
func FailureOf(err error) string {
	_, unreachable := errors.AsType[*routing.UnreachableError](err)
	switch {
	case errors.Is(err, ErrClientBody):
		return "body-broken"
	case errors.Is(err, gateway.ErrMayHaveRun):
		return "may-have-run"
	case unreachable, errors.Is(err, ErrNoUpstream), errors.Is(err, ring.ErrSettings):
		return "unavailable"
	case errors.Is(err, ErrBusy), errors.Is(err, ErrWorkerFull), errors.Is(err, ErrBodiesFull), errors.Is(err, ErrAbandons), errors.Is(err, routing.ErrHoldFull):
		return "busy"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled), errors.Is(err, ErrClientLeft):
		return "client-gone"
	}
	return "_OTHER"
}
