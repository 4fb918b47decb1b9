package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/keyway-go/keyway/internal/link"
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
	r, counter, level := reply{status: http.StatusBadGateway, text: errBroken.Error()}, &c.broken, slog.LevelWarn
	unreachable, isUnreachable := errors.AsType[*unreachableError](err)
	switch {
	case errors.Is(err, errClientBody), f.body.late():
		r, counter, level = reply{status: http.StatusBadRequest, text: errClientBody.Error(), close: true}, &c.badRequests, slog.LevelDebug
		if errors.Is(err, os.ErrDeadlineExceeded) || f.body.late() {
			r.status = http.StatusRequestTimeout
		}
	case f.ctx.Err() != nil:
		r, counter, level = reply{status: statusClientGone}, &c.clientGone, slog.LevelDebug
	case isUnreachable:
		r, counter = reply{status: http.StatusServiceUnavailable, text: unreachable.public(), retry: true}, &c.unreachable
	case errors.Is(err, errHallFull), errors.Is(err, errBodiesFull):
		r, counter, level = reply{status: http.StatusServiceUnavailable, text: err.Error(), retry: true}, &c.hallFull, slog.LevelDebug
	case errors.Is(err, errWorkerFull):
		r, counter, level = reply{status: http.StatusServiceUnavailable, text: errWorkerFull.Error() + ", try again", retry: true}, new(atomic.Int64), slog.LevelDebug
	case errors.Is(err, errAbandons):
		r, counter, level = reply{status: http.StatusTooManyRequests, text: errAbandons.Error(), retry: true}, new(atomic.Int64), slog.LevelDebug
	case errors.Is(err, ErrBusy):
		r, counter, level = reply{status: http.StatusTooManyRequests, text: ErrBusy.Error(), retry: true}, new(atomic.Int64), slog.LevelDebug
	case errors.Is(err, link.ErrHeaderTooLarge):
		r, counter, level = reply{status: http.StatusRequestHeaderFieldsTooLarge, text: "gateway: the request's headers are too large"}, &c.badRequests, slog.LevelDebug
	}
	counter.Add(1)
	f.router.cfg.Logger.Log(context.WithoutCancel(f.ctx), level, "request failed", "partition", f.partition, "method", f.method, "error", err)
	return r
}
