package router

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/accesslog"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// observation records a request and its answer for the access log and traces. It is nil without
// these; onward, decided and answered then do nothing. It refers to the request's texts, which must
// stay until it is logged. Only received is changed by another goroutine than the request's.
type observation struct {
	send.Progress
	trace, path, route string

	received  atomic.Int64 // bytes of the body
	sent      int64
	wait, run time.Duration // at the worker, see [hop.FieldTiming]
	told      bool          // wait and run are known
}

func (o *observation) onward() *send.Progress {
	if o == nil {
		return nil
	}
	return &o.Progress
}

// observe returns what is noted of a request from now on. values returns those of the request's fields.
func (rt *Router) observe(ctx context.Context, from *source, tls bool, method, path string, values func(name string) []string) *observation {
	o := &observation{Progress: send.Progress{Method: method}, path: path}
	if rt.spans == nil {
		o.trace = spans.TraceID(values("Traceparent"))
		return o
	}
	o.Begin(rt.spans, ctx, trace.SpanKindServer, values, func() []attribute.KeyValue {
		scheme := "http"
		if tls {
			scheme = "https"
		}
		return append(spans.RequestAttributes(method, path), spans.Scheme.String(scheme), spans.Protocol.String(strings.TrimSuffix(from.version, ".0")))
	})
	if rt.cfg.AccessLog != nil {
		o.trace = o.Spans.Onward.TraceID().String()
	}
	return o
}

func (o *observation) decided(d *decision) {
	if o == nil {
		return
	}
	o.route, o.Key, o.Partition = labelOf(d.route.Name), d.key, d.partition
	o.Spans.SetRoute(o.Method, o.route)
}

// answered records the answer, once its body has been read.
func (o *observation) answered(problem string, a *send.Answer) {
	if o == nil {
		return
	}
	o.Problem = problem
	if a.Body == nil {
		return
	}
	o.timed(a.Fields)
	if n, last := a.Body.Buffered(); n == 0 && last {
		o.timed(a.Body.Trailer())
	}
}

// timed records the times that the worker reports, if they are among these fields.
func (o *observation) timed(list link.Fields) {
	for name, value := range list.All() {
		if name == hop.FieldTiming {
			o.wait, o.run, o.told = hop.ParseTiming(value)
		}
	}
}

// endRequest ends the request's spans and has a line written about it. It has come so long ago.
func (o *observation) endRequest(rt *Router, by send.Way, status int, took time.Duration) {
	log := rt.cfg.AccessLog
	if status == 0 {
		status = send.StatusClientGone
	}
	o.Spans.End(&o.Progress, by.String(), status)
	if log == nil || !log.Wants(status, took) {
		return
	}
	e := accesslog.Entry{
		Time: time.Now().Add(-took), ID: o.trace, Route: o.route, Method: o.Method, Path: o.path, Status: status,
		BytesIn: o.received.Load(), BytesOut: o.sent, Key: o.Key, Partition: &o.Partition,
		Owner: o.Worker, Way: by.String(), Tries: o.Tries, Hold: accesslog.Milliseconds(o.Asked.Sub(o.Sought)),
		Total: accesslog.Milliseconds(took), Error: o.Problem,
	}
	if o.told {
		e.Wait, e.Run = new(accesslog.Milliseconds(o.wait)), new(accesslog.Milliseconds(o.run))
	}
	log.Add(e)
}

// noteProblem records that the router answers the request itself.
func (w *clientWriter) noteProblem(k problem.Kind) {
	if w.observed != nil {
		w.observed.Problem = k.String()
	}
}
