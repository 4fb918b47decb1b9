package router

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/requestlog"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// failed counts and logs err, for which a request has no worker's answer, and
// returns what the client reads instead, which takes content as accept says. late
// says that the client has sent too little of the body for too long.
func failed(ctx context.Context, rt *Router, partition int, method string, accept []string, err error, late bool) answer {
	var kind problem.Kind
	warning, gone := "", false
	rate, isRate := errors.AsType[*rateError](err)
	switch {
	case late, errors.Is(err, errClientBody) && errors.Is(err, os.ErrDeadlineExceeded):
		kind = problem.BodyTooSlow
	case errors.Is(err, errBodyTooLarge):
		kind = problem.BodyTooLarge
	case errors.Is(err, errClientBody):
		kind = problem.BodyBroken
	case ctx.Err() != nil:
		gone = true
	case errors.Is(err, errBodiesFull):
		kind = problem.BodiesFull
		if _, disk := errors.AsType[*fs.PathError](err); disk {
			warning = "a request's body cannot be written to a temporary file"
		}
	case isRate:
		kind = problem.RouteRate
	case errors.Is(err, errNoUpstream):
		kind, warning = problem.NoUpstream, "the server for requests without a key cannot be reached"
	case errors.Is(err, errOnwardFull):
		kind, warning = problem.OnwardFull, "a request is refused that needs a connection to a worker or an app for itself"
	case errors.Is(err, errAbandons):
		kind = problem.GivenUp
	default:
		kind, warning = unansweredKind(err)
	}
	requestlog.Failure(ctx, rt.log, warning, "partition", partition, "method", method, "error", err)
	if gone {
		rt.counters.clientGone.Add(1)
		return answer{status: statusClientGone, problem: "client-gone"}
	}
	rt.counters.refused(kind)
	own := problem.Of(kind)
	if isRate && kind == problem.RouteRate {
		own.RetryAfter = int((rate.after + time.Second - 1) / time.Second)
	}
	return ownAnswer(own, accept)
}

// unansweredKind returns what a client reads where err is why no worker has answered, and what is
// logged as a warning, "" for none.
func unansweredKind(err error) (kind problem.Kind, warning string) {
	_, isUnreachable := errors.AsType[*routing.UnreachableError](err)
	switch {
	case isUnreachable:
		return problem.NoOwner, "no owner can be reached"
	case errors.Is(err, ring.ErrSettings):
		return problem.StandsAside, "this router sends no requests"
	case errors.Is(err, routing.ErrHoldFull):
		return problem.HoldFull, ""
	case errors.Is(err, errWorkerFull):
		return problem.WorkerFull, "the connections to a worker are full"
	case errors.Is(err, errBusy):
		return problem.TooManyWait, ""
	case errors.Is(err, link.ErrHeaderTooLarge):
		return problem.HeadTooLarge, ""
	}
	return problem.MayHaveRun, "the worker did not answer"
}

// ownAnswer returns the router's own answer to a request with these values of the
// field Accept. One to a body that did not arrive, or is not taken, ends the connection.
func ownAnswer(p problem.Problem, accept []string) answer {
	contentType, body := p.Body(accept)
	a := answer{status: p.Status(), length: int64(len(body)), failure: body, problem: p.Kind.String()}
	a.close = p.Kind == problem.BodyTooSlow || p.Kind == problem.BodyBroken || p.Kind == problem.BodyTooLarge
	for name, value := range p.Fields(contentType) {
		a.fields = link.AppendField(a.fields, name, value)
	}
	return a
}

// errAbandons: too much of a worker is spent on requests that clients have given
// up, and this client's are among the most.
var errAbandons = errors.New("router: too many requests that this client has given up are still worked on")

// errWorkerFull: the links to the worker carry all that it takes.
var errWorkerFull = errors.New("router: the worker is full")

// errBusy: too many requests wait at the worker.
var errBusy = errors.New("router: too many requests wait")

// errClientBody is wrapped by errors of reading the client's body.
var errClientBody = errors.New("router: the request's body did not arrive")

// errBodyTooLarge: the body is longer than its route allows.
var errBodyTooLarge = errors.New("router: the request's body is too large")

// errBodiesFull: there is no room for a body, neither in memory nor in a temporary
// file; or a worker has refused a request of whose streamed body a part was not kept.
var errBodiesFull = errors.New("router: too many requests with bodies at once")
