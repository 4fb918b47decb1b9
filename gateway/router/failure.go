package router

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/requestlog"
	"github.com/keyway-go/keyway/gateway/router/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// failed counts and logs err, for which a request has no worker's answer, and
// returns what the client reads instead, which takes content as accept says. late
// says that the client has sent too little of the body for too long.
func failed(ctx context.Context, rt *Router, partition int, method string, accept []string, err error, late bool) answer {
	c, uncounted := &rt.counters, new(atomic.Int64)
	kind, counter, warning, gone := problem.MayHaveRun, &c.broken, "the worker did not answer", false
	_, isUnreachable := errors.AsType[*routing.UnreachableError](err)
	rate, isRate := errors.AsType[*rateError](err)
	switch {
	case late, errors.Is(err, errClientBody) && errors.Is(err, os.ErrDeadlineExceeded):
		kind, counter, warning = problem.BodyTooSlow, &c.badRequests, ""
	case errors.Is(err, errBodyTooLarge):
		kind, counter, warning = problem.BodyTooLarge, &c.badRequests, ""
	case errors.Is(err, errClientBody):
		kind, counter, warning = problem.BodyBroken, &c.badRequests, ""
	case ctx.Err() != nil:
		gone, counter, warning = true, &c.clientGone, ""
	case isUnreachable:
		kind, counter, warning = problem.NoOwner, &c.unreachable, "no owner can be reached"
	case errors.Is(err, routing.ErrHoldFull):
		kind, counter, warning = problem.HoldFull, &c.holdFull, ""
	case errors.Is(err, errBodiesFull):
		kind, counter, warning = problem.BodiesFull, &c.holdFull, ""
		if _, disk := errors.AsType[*fs.PathError](err); disk {
			warning = "a request's body cannot be written to a temporary file"
		}
	case isRate:
		kind, counter, warning = problem.RouteRate, uncounted, ""
	case errors.Is(err, errNoUpstream):
		kind, counter, warning = problem.NoUpstream, &c.unreachable, "the server for requests without a key cannot be reached"
	case errors.Is(err, errWorkerFull):
		kind, counter, warning = problem.WorkerFull, uncounted, ""
	case errors.Is(err, errAbandons):
		kind, counter, warning = problem.GivenUp, uncounted, ""
	case errors.Is(err, errBusy):
		kind, counter, warning = problem.TooManyWait, uncounted, ""
	case errors.Is(err, link.ErrHeaderTooLarge):
		kind, counter, warning = problem.HeadTooLarge, &c.badRequests, ""
	}
	counter.Add(1)
	requestlog.Failure(ctx, rt.log, warning, "partition", partition, "method", method, "error", err)
	if gone {
		return answer{status: statusClientGone}
	}
	own := problem.Of(kind)
	if isRate && kind == problem.RouteRate {
		own.RetryAfter = rate.retryAfter()
	}
	return ownAnswer(own, accept)
}

// ownAnswer returns the router's own answer to a request with these values of the
// field Accept. One to a body that did not arrive, or is not taken, ends the connection.
func ownAnswer(p problem.Problem, accept []string) answer {
	contentType, body := p.Body(accept)
	a := answer{status: p.Status(), length: int64(len(body)), failure: body}
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
