package router

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/internal/requestlog"
	"github.com/keyway-go/keyway/gateway/router/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// reply is what a client reads when its request has failed.
type reply struct {
	status int
	text   string
	retry  bool // Retry-After
	close  bool // the rest of the request's body will not be read
}

// fail counts and logs err, for which there is no worker's answer, and makes the
// answer that tells the client.
func (x *upstreamRequest) fail(err error) {
	c := &x.router.counters
	r, counter, warning := reply{status: http.StatusBadGateway, text: errBroken.Error()}, &c.broken, "the worker did not answer"
	unreachable, isUnreachable := errors.AsType[*routing.UnreachableError](err)
	switch {
	case errors.Is(err, errClientBody), x.pace.late():
		r, counter, warning = reply{status: http.StatusBadRequest, text: errClientBody.Error(), close: true}, &c.badRequests, ""
		if errors.Is(err, os.ErrDeadlineExceeded) || x.pace.late() {
			r.status = http.StatusRequestTimeout
		}
	case x.ctx.Err() != nil:
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
	requestlog.Failure(x.ctx, x.router.log, warning, "partition", x.partition, "method", x.request.Method, "error", err)
	x.answer = answer{status: r.status, failed: true, close: r.close}
	if r.status == statusClientGone {
		return
	}
	x.answer.body, x.answer.length = &textBody{r.text + "\n"}, int64(len(r.text)+1)
	f := link.AppendField(nil, "Content-Type", "text/plain; charset=utf-8")
	f = link.AppendField(f, "X-Content-Type-Options", "nosniff")
	if r.retry {
		f = link.AppendField(f, "Retry-After", "1")
	}
	x.answer.fields = f
}

// textBody is the body of an answer of the router's own.
type textBody struct{ rest string }

// Next implements answerBody.
func (b *textBody) Next() ([]byte, error) {
	if b.rest == "" {
		return nil, io.EOF
	}
	piece := []byte(b.rest)
	b.rest = ""
	return piece, nil
}

// Buffered implements answerBody.
func (b *textBody) Buffered() (n int, last bool) { return len(b.rest), true }

// Trailer implements answerBody.
func (b *textBody) Trailer() link.Fields { return nil }

// Close implements [io.Closer].
func (b *textBody) Close() error { return nil }

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
