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

// failure answers a request for which no worker's answer can be had.
type failure struct {
	router    *Router
	partition int
	method    string
	ctx       context.Context // of the request
	body      *pacedBody      // nil if something else bounds the wait for it
}

// reply is what a client reads when its request has failed.
type reply struct {
	status int
	text   string
	retry  bool // Retry-After
	close  bool // the rest of the request's body will not be read
}

func (f *failure) answer(w http.ResponseWriter, err error) {
	r := f.reply(err)
	if r.retry {
		w.Header().Set("Retry-After", "1")
	}
	if r.close {
		w.Header().Set("Connection", "close")
	}
	if r.status == statusClientGone {
		w.WriteHeader(r.status)
		return
	}
	http.Error(w, r.text, r.status)
}

// reply counts and logs err and says what to answer.
func (f *failure) reply(err error) reply {
	c := &f.router.counters
	r, counter, warning := reply{status: http.StatusBadGateway, text: errBroken.Error()}, &c.broken, "the worker did not answer"
	unreachable, isUnreachable := errors.AsType[*routing.UnreachableError](err)
	switch {
	case errors.Is(err, errClientBody), f.body.late():
		r, counter, warning = reply{status: http.StatusBadRequest, text: errClientBody.Error(), close: true}, &c.badRequests, ""
		if errors.Is(err, os.ErrDeadlineExceeded) || f.body.late() {
			r.status = http.StatusRequestTimeout
		}
	case f.ctx.Err() != nil:
		r, counter, warning = reply{status: statusClientGone}, &c.clientGone, ""
	case isUnreachable:
		r, counter, warning = reply{status: http.StatusServiceUnavailable, text: unreachable.Public() + ", try again", retry: true}, &c.unreachable, "no owner can be reached"
	case errors.Is(err, routing.ErrHoldFull), errors.Is(err, errBodiesFull):
		r, counter, warning = reply{status: http.StatusServiceUnavailable, text: err.Error(), retry: true}, &c.holdFull, ""
	case errors.Is(err, errWorkerFull):
		r, counter, warning = reply{status: http.StatusServiceUnavailable, text: errWorkerFull.Error() + ", try again", retry: true}, new(atomic.Int64), ""
	case errors.Is(err, errAbandons):
		r, counter, warning = reply{status: http.StatusTooManyRequests, text: errAbandons.Error(), retry: true}, new(atomic.Int64), ""
	case errors.Is(err, errBusy):
		r, counter, warning = reply{status: http.StatusTooManyRequests, text: errBusy.Error(), retry: true}, new(atomic.Int64), ""
	case errors.Is(err, link.ErrHeaderTooLarge):
		r, counter, warning = reply{status: http.StatusRequestHeaderFieldsTooLarge, text: "router: the request's headers are too large"}, &c.badRequests, ""
	}
	counter.Add(1)
	requestlog.Failure(f.ctx, f.router.log, warning, "partition", f.partition, "method", f.method, "error", err)
	return r
}

// errAbandons: too much of a worker is spent on requests that clients have given
// up, and this client's are among the most.
var errAbandons = errors.New("router: too many requests that this client has given up are still worked on")

// errWorkerFull: the links to the worker carry all that it takes.
var errWorkerFull = errors.New("router: the worker is full")

// errBusy: too many requests wait at the worker.
var errBusy = errors.New("router: too many requests wait")

// errBroken is wrapped by the error of a request that may have started.
var errBroken = errors.New("router: the request may have started, but there is no answer")

// statusClientGone is what nginx logs for a client that did not wait.
const statusClientGone = 499

// errClientBody is wrapped by errors of reading the client's body.
var errClientBody = errors.New("router: the request's body did not arrive")

// errBodiesFull: a worker has refused a request of whose body a part was not
// kept, since Config.ReplayBytes are in use.
var errBodiesFull = errors.New("router: too many requests with bodies at once")
