package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/requestlog"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// refuseLink answers a request that was not admitted, or has not reached the app. If the router has
// dropped the request's body meanwhile, the client gets this answer.
func (w *Worker) refuseLink(rw *link.ResponseWriter, r *link.ServerRequest, err error) {
	w.counts.refused(r.Context(), err)
	if refusal := refusalOf(err); refusal != nil && rw.Refuse(refusal) == nil {
		return
	}
	link.ServeHTTP(r.Context(), rw, r, r.Fields.HeaderFor(0), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.answerRefusal(rw, r, err) }))
}

// refuseKey answers a request without a usable key: err is the error of where it was looked for.
func (w *Worker) refuseKey(rw http.ResponseWriter, r *http.Request, err error) {
	p := problem.OfKey(err, w.cfg.Keys)
	w.counts.problems[p.Kind].Add(1)
	p.ServeHTTP(rw, r)
}

// refuse is refuseLink for a request with a writer of net/http.
func (w *Worker) refuse(rw http.ResponseWriter, r *http.Request, err error) {
	w.counts.refused(r.Context(), err)
	over, ok := rw.(*linkWriter)
	if refusal := refusalOf(err); !ok || refusal == nil || over.w.Refuse(refusal) != nil {
		w.answerRefusal(rw, r, err)
	}
}

// answerRefusal is refuse for a request that was counted. The client sees the kind of error; its
// details, such as keys and addresses, go to the log and to routers.
func (w *Worker) answerRefusal(rw http.ResponseWriter, r *http.Request, err error) {
	requestlog.Failure(r.Context(), w.log, "", "method", r.Method, "path", r.URL.Path, "error", err)
	if refusal := refusalOf(err); refusal != nil {
		hop.WriteRefusal(rw.Header(), refusal)
	}
	problemOf(err).ServeHTTP(rw, r)
}

// refusalOf returns what a router may act on in an error of admission; nil if
// the error is for the client to read.
func refusalOf(err error) *link.RefusedError {
	notOwner, isNotOwner := errors.AsType[*gateway.NotOwnerError](err)
	unowned, isUnowned := errors.AsType[*gateway.UnownedError](err)
	switch {
	case isNotOwner:
		return &link.RefusedError{Reason: link.NotOwner, Owner: notOwner.Owner, Addr: notOwner.Addr, Epoch: notOwner.Epoch}
	case isUnowned:
		return &link.RefusedError{Reason: link.NotOwner, Owner: unowned.Owner, Epoch: unowned.Epoch}
	case errors.Is(err, gateway.ErrUnavailable):
		return &link.RefusedError{Reason: link.Unavailable}
	case errors.Is(err, gateway.ErrBusy):
		return &link.RefusedError{Reason: link.Busy}
	}
	return nil
}

// problemOf returns what a client reads of an error of admission.
func problemOf(err error) problem.Problem {
	_, isNotOwner := errors.AsType[*gateway.NotOwnerError](err)
	_, isUnowned := errors.AsType[*gateway.UnownedError](err)
	_, isDeadlock := errors.AsType[*gateway.DeadlockError](err)
	rate, limited := errors.AsType[*keyed.RateError](err)
	quarantine, quarantined := errors.AsType[*gateway.QuarantinedError](err)
	switch {
	case limited:
		p := problem.Of(problem.RateOfKey)
		p.RetryAfter = rate.RetryAfter()
		return p
	case quarantined:
		p := problem.Of(problem.Quarantined)
		p.RetryAfter = max(1, int(time.Until(quarantine.Until).Seconds()))
		return p
	case errors.Is(err, errPolicy):
		return problem.Of(problem.OtherVersion)
	case errors.Is(err, gateway.ErrNested):
		return problem.Of(problem.Nested).With(strings.TrimPrefix(err.Error(), gateway.ErrNested.Error()+": "))
	case errors.Is(err, gateway.ErrNoKey), errors.Is(err, gateway.ErrBadKey):
		return problem.OfKey(err, nil)
	case isNotOwner:
		return problem.Of(problem.OtherOwner)
	case isUnowned:
		return problem.Of(problem.Unowned)
	case errors.Is(err, gateway.ErrBusy):
		return problem.Of(problem.TooManyWait)
	case errors.Is(err, gateway.ErrLocked):
		return problem.Of(problem.KeyHeld)
	case errors.Is(err, gateway.ErrWaited):
		return problem.Of(problem.KeyWaited)
	case isDeadlock:
		return problem.Of(problem.Deadlock)
	}
	return problem.Of(problem.Unavailable)
}

// refused counts a call between members that was not admitted. It returns what a caller may act on, nil if err is for it to read,
// and the status of err.
func (w *Worker) refused(ctx context.Context, err error) (refusal *link.RefusedError, status int) {
	w.counts.refused(ctx, err)
	return refusalOf(err), problemOf(err).Status()
}

// Unavailable returns a handler for a worker that takes no requests so far: it refuses each one as
// if no worker owned its key, and routers then hold it.
func (w *Worker) Unavailable() http.Handler {
	return unavailable{w, fmt.Errorf("%w: worker %s does not take requests yet", gateway.ErrUnavailable, w.name)}
}

type unavailable struct {
	worker *Worker
	err    error
}

func (u unavailable) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	u.worker.refuse(rw, r, u.err)
}

// ServeLink is ServeHTTP for a request that came over the link.
func (u unavailable) ServeLink(w *link.ResponseWriter, r *link.ServerRequest) {
	u.worker.refuseLink(w, r, u.err)
}

// counts are a worker's counters, in addition to those of its executions.
type counts struct {
	problems [problem.Kinds]atomic.Int64 // requests and calls that were refused, or answered in place of the app
	left     atomic.Int64                // callers that have left while they waited
	shared   atomic.Int64                // requests and calls that got the answer to an equal one
	batches  prometheus.Histogram        // items of each
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

func (c *counts) own(k problem.Kind) problem.Problem {
	c.problems[k].Add(1)
	return problem.Of(k)
}
