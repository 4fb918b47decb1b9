package router

import (
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/accesslog"
)

// observation records a request and its answer for the access log and traces. It refers to the
// request's texts, which must stay until it is logged.
type observation struct {
	send.Progress
	trace, path, route string
}

// observe begins what is noted of the request. d has been decided as far as that is possible.
func (x *upstreamRequest) observe(d *decision) {
	method, path, cfg := x.Request.Method, x.KeyPath(), &x.router.cfg
	o := &observation{Progress: send.Progress{Method: method}, path: path}
	x.observed, x.Observed = o, &o.Progress
	if x.router.spans == nil {
		o.trace = spans.TraceID(x.KeyHeader("Traceparent"))
	} else {
		o.Begin(x.router.spans, x.Ctx, trace.SpanKindServer, x.KeyHeader, func() []attribute.KeyValue {
			scheme := "http"
			if x.tls {
				scheme = "https"
			}
			return append(spans.RequestAttributes(method, path), spans.Scheme.String(scheme), spans.Protocol.String(strings.TrimSuffix(x.source.version, ".0")))
		})
		if cfg.AccessLog != nil {
			o.trace = o.Onward.TraceID().String()
		}
	}
	if d.route != nil {
		o.route, o.Key, o.Partition = labelOf(d.route.Name), d.key, d.partition
		o.SetRoute(o.route)
	}
}

// endObserved ends the request's spans and has a line written about it. It has come so long ago.
func (x *upstreamRequest) endObserved(took time.Duration) {
	o, log, way, status := x.observed, x.router.cfg.AccessLog, x.By().String(), x.Answer.Status
	o.Problem = x.problem
	o.End(way, status)
	if log == nil || !log.Wants(status, took) {
		return
	}
	e := accesslog.Entry{
		Time: time.Now().Add(-took), ID: o.trace, Route: o.route, Method: o.Method, Path: o.path, Status: status,
		BytesIn: x.Body.Received.Load(), BytesOut: x.sent, Key: o.Key, Partition: &o.Partition,
		Owner: o.Worker, Way: way, Tries: o.Tries, Hold: accesslog.Milliseconds(o.Asked.Sub(o.Sought)),
		Total: accesslog.Milliseconds(took), Error: o.Problem,
	}
	if wait, run, told := x.timing(); told {
		e.Wait, e.Run = new(accesslog.Milliseconds(wait)), new(accesslog.Milliseconds(run))
	}
	log.Add(e)
}

// timing returns how long the request has waited and run, if its worker says so.
func (x *upstreamRequest) timing() (wait, run time.Duration, told bool) {
	a := &x.Answer
	if a.Body == nil || x.By() == send.ByUpstream { // which is no worker
		return 0, 0, false
	}
	list := a.Fields.Values(hop.FieldTiming)
	if n, last := a.Body.Buffered(); n == 0 && last {
		list = append(list, a.Body.Trailer().Values(hop.FieldTiming)...)
	}
	if len(list) == 0 {
		return 0, 0, false
	}
	return hop.ParseTiming(list[len(list)-1])
}
