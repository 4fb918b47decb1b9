package router

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/requestlog"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// failed counts and logs err, which kept the request from getting a worker's answer. It returns the
// answer for the client, in a content type that its Accept allows.
func (x *upstreamRequest) failed(err error) *answer {
	ctx, rt := x.Ctx, x.router
	var kind problem.Kind
	warning, gone := "", false
	rate, isRate := errors.AsType[*rateError](err)
	switch {
	case x.pace != nil && x.pace.Late(), errors.Is(err, send.ErrClientBody) && errors.Is(err, os.ErrDeadlineExceeded):
		kind = problem.BodyTooSlow
	case errors.Is(err, send.ErrBodyTooLarge):
		kind = problem.BodyTooLarge
	case errors.Is(err, send.ErrClientBody):
		kind = problem.BodyBroken
	case ctx.Err() != nil:
		gone = true
	case errors.Is(err, send.ErrBodiesFull):
		kind = problem.BodiesFull
		if _, disk := errors.AsType[*fs.PathError](err); disk {
			warning = "a request's body cannot be written to a temporary file"
		}
	case isRate:
		kind = problem.RouteRate
	case errors.Is(err, send.ErrNoUpstream):
		kind, warning = problem.NoUpstream, "the server for requests without a key cannot be reached"
	case errors.Is(err, errOnwardFull):
		kind, warning = problem.OnwardFull, "a request is refused that needs a connection to a worker or an app for itself"
	case errors.Is(err, send.ErrAbandons):
		kind = problem.GivenUp
	default:
		kind, warning = send.KindOf(err)
	}
	requestlog.Failure(ctx, rt.log, warning, "partition", x.Partition, "method", x.Request.Method, "error", err)
	if gone {
		rt.counters.clientGone.Add(1)
		x.problem = "client-gone"
		return &answer{Answer: send.Answer{Status: send.StatusClientGone}}
	}
	own := problem.Of(kind)
	if isRate && kind == problem.RouteRate {
		own.RetryAfter = int((rate.after + time.Second - 1) / time.Second)
	}
	return x.own(own)
}

// own returns the router's own answer, and counts it. One to a body that did not arrive, or is not
// taken, ends the connection.
func (x *upstreamRequest) own(p problem.Problem) *answer {
	x.router.counters.problems[p.Kind].Add(1)
	x.problem = p.Kind.String()
	contentType, body := p.Body(x.KeyHeader("Accept"))
	a := &answer{Answer: send.Answer{Status: p.Status(), Length: int64(len(body))}, failure: body}
	a.close = p.Kind == problem.BodyTooSlow || p.Kind == problem.BodyBroken || p.Kind == problem.BodyTooLarge
	for name, value := range p.Fields(contentType) {
		a.Fields = link.AppendField(a.Fields, name, value)
	}
	return a
}
