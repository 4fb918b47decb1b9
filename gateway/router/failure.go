package router

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/internal/requestlog"
	"github.com/keyway-go/keyway/gateway/router/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// failed counts and logs err, for which a request has no worker's answer, and
// returns what the client reads instead. late says that the client has sent too
// little of the body for too long.
func failed(ctx context.Context, rt *Router, partition int, method string, err error, late bool) answer {
	c, uncounted := &rt.counters, new(atomic.Int64)
	status, text, counter, warning := http.StatusBadGateway, broken, &c.broken, "the worker did not answer"
	unreachable, isUnreachable := errors.AsType[*routing.UnreachableError](err)
	switch {
	case late, errors.Is(err, errClientBody) && errors.Is(err, os.ErrDeadlineExceeded):
		status, text, counter, warning = http.StatusRequestTimeout, errClientBody.Error(), &c.badRequests, ""
	case errors.Is(err, errClientBody):
		status, text, counter, warning = http.StatusBadRequest, errClientBody.Error(), &c.badRequests, ""
	case ctx.Err() != nil:
		status, text, counter, warning = statusClientGone, "", &c.clientGone, ""
	case isUnreachable:
		status, text, counter, warning = http.StatusServiceUnavailable, unreachable.Public()+", try again", &c.unreachable, "no owner can be reached"
	case errors.Is(err, routing.ErrHoldFull), errors.Is(err, errBodiesFull):
		status, text, counter, warning = http.StatusServiceUnavailable, err.Error(), &c.holdFull, ""
	case errors.Is(err, errWorkerFull):
		status, text, counter, warning = http.StatusServiceUnavailable, errWorkerFull.Error()+", try again", uncounted, ""
	case errors.Is(err, errAbandons):
		status, text, counter, warning = http.StatusTooManyRequests, errAbandons.Error(), uncounted, ""
	case errors.Is(err, errBusy):
		status, text, counter, warning = http.StatusTooManyRequests, errBusy.Error(), uncounted, ""
	case errors.Is(err, link.ErrHeaderTooLarge):
		status, text, counter, warning = http.StatusRequestHeaderFieldsTooLarge, "router: the request's headers are too large", &c.badRequests, ""
	}
	counter.Add(1)
	requestlog.Failure(ctx, rt.log, warning, "partition", partition, "method", method, "error", err)
	a := answer{status: status, length: int64(len(text) + 1), failure: text + "\n"}
	f := link.AppendField(nil, "Content-Type", "text/plain; charset=utf-8")
	f = link.AppendField(f, "X-Content-Type-Options", "nosniff")
	switch status {
	case http.StatusRequestTimeout, http.StatusBadRequest:
		a.close = true
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		f = link.AppendField(f, "Retry-After", "1")
	}
	a.fields = f
	return a
}

// errAbandons: too much of a worker is spent on requests that clients have given
// up, and this client's are among the most.
var errAbandons = errors.New("router: too many requests that this client has given up are still worked on")

// errWorkerFull: the links to the worker carry all that it takes.
var errWorkerFull = errors.New("router: the worker is full")

// errBusy: too many requests wait at the worker.
var errBusy = errors.New("router: too many requests wait")

// broken is what a client reads where its request may have run.
const broken = "router: the request may have started, but there is no answer"

// errClientBody is wrapped by errors of reading the client's body.
var errClientBody = errors.New("router: the request's body did not arrive")

// errBodiesFull: a worker has refused a request of whose body a part was not
// kept, since Config.ReplayBytes are in use.
var errBodiesFull = errors.New("router: too many requests with bodies at once")
