package router

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// requestSpans are the spans of a request: its own, and one for each attempt at a worker
// in that. What they say comes from the request's observation. The methods of a nil one do nothing.
type requestSpans struct {
	maker  *spans.Maker
	ctx    context.Context // with span
	span   trace.Span
	last   trace.Span        // of the attempt under way, or answered; nil if there is none
	onward trace.SpanContext // what the worker gets
}

// observe returns what is noted of a request from now on. values returns those of the request's fields.
func (rt *Router) observe(ctx context.Context, from *source, tls bool, method, path string, values func(name string) []string) *observation {
	o := &observation{method: method, path: path}
	if rt.spans == nil {
		o.trace = spans.TraceID(values("Traceparent"))
		return o
	}
	o.begin(rt.spans, ctx, trace.SpanKindServer, values, func() []attribute.KeyValue {
		scheme := "http"
		if tls {
			scheme = "https"
		}
		return append(spans.RequestAttributes(method, path), spans.Scheme.String(scheme), spans.Protocol.String(strings.TrimSuffix(from.version, ".0")))
	})
	if rt.cfg.AccessLog != nil {
		o.trace = o.spans.onward.TraceID().String()
	}
	return o
}

func (o *observation) begin(maker *spans.Maker, ctx context.Context, kind trace.SpanKind, values func(name string) []string, attrs func() []attribute.KeyValue) {
	s := &requestSpans{maker: maker}
	s.ctx, s.span = maker.Start(spans.Within(ctx, values), spans.MethodName(o.method), kind, attrs)
	s.onward = s.span.SpanContext()
	o.spans = s
}

// setRoute names the span after the request's route.
func (s *requestSpans) setRoute(method, route string) {
	if s != nil && s.span.IsRecording() {
		s.span.SetName(spans.MethodName(method) + " " + route)
		s.span.SetAttributes(spans.Route.String(route))
	}
}

// attempt begins the span of an attempt at a worker, or at another server, which o has counted those
// before of.
func (s *requestSpans) attempt(o *observation, to ring.Member) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	method := spans.MethodName(o.method)
	_, s.last = s.maker.Start(s.ctx, method, trace.SpanKindClient, func() []attribute.KeyValue {
		attrs := append(spans.ServerAttributes(to.Addr), spans.Method.String(method))
		if to.Name != "" {
			attrs = append(attrs, spans.Worker.String(to.Name))
		}
		if o.tries > 0 {
			attrs = append(attrs, spans.Resend.Int(o.tries))
		}
		return attrs
	})
	s.onward = s.last.SpanContext()
}

// attempted ends the span of an attempt that has no answer. One that was none, because the
// request goes another way, leaves nothing.
func (s *requestSpans) attempted(out routing.Outcome) {
	if s == nil || s.last == nil || out.Err == nil {
		return
	}
	if !errors.Is(out.Err, errOtherWay) {
		spans.Fail(s.last, attemptFailure(out))
		s.last.End()
	}
	s.last = nil
}

func attemptFailure(out routing.Outcome) string {
	switch {
	case out.Verdict == routing.NotOwner:
		return "not-owner"
	case out.Verdict == routing.NotStarted:
		return "not-started"
	}
	return failureOf(out.Err)
}

// failureOf says how a request has failed that has no worker's answer.
func failureOf(err error) string {
	_, unreachable := errors.AsType[*routing.UnreachableError](err)
	switch {
	case errors.Is(err, errClientBody):
		return "body-broken"
	case errors.Is(err, gateway.ErrMayHaveRun):
		return "may-have-run"
	case unreachable, errors.Is(err, errNoUpstream), errors.Is(err, ring.ErrSettings):
		return "unavailable"
	case errors.Is(err, errBusy), errors.Is(err, errWorkerFull), errors.Is(err, errBodiesFull), errors.Is(err, errAbandons), errors.Is(err, routing.ErrHoldFull):
		return "busy"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled), errors.Is(err, errClientLeft):
		return "client-gone"
	}
	return "_OTHER"
}

// end ends the spans of the request, which was answered with that status, by way of what is named
// way; 0 if it was not.
func (s *requestSpans) end(o *observation, way string, status int) {
	if s == nil {
		return
	}
	if !s.span.IsRecording() {
		s.span.End()
		return
	}
	if !o.held.IsZero() {
		s.maker.Add(s.ctx, spans.Hold, o.held, o.asked, "", func() []attribute.KeyValue { return []attribute.KeyValue{spans.Partition.Int(o.partition)} })
	}
	attrs := append(s.maker.KeyAttributes(o.key), spans.Way.String(way))
	if o.key != "" {
		attrs = append(attrs, spans.Partition.Int(o.partition))
	}
	if o.worker != "" {
		attrs = append(attrs, spans.Worker.String(o.worker))
	}
	answered := status != 0 && status != statusClientGone
	if answered {
		attrs = append(attrs, spans.Status.Int(status))
	}
	if s.last != nil {
		if answered && o.problem == "" {
			s.last.SetAttributes(spans.Status.Int(status))
			spans.FailStatus(s.last, status)
		}
		s.last.End()
	}
	s.span.SetAttributes(attrs...)
	switch {
	case !answered:
		spans.Fail(s.span, cmp.Or(o.problem, "client-gone"))
	case status >= http.StatusInternalServerError && o.problem != "":
		spans.Fail(s.span, o.problem)
	default:
		spans.FailStatus(s.span, status)
	}
	s.span.End()
}

// context returns ctx as it belongs to the attempt under way.
func (s *requestSpans) context(ctx context.Context) context.Context {
	if s == nil || s.last == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.last)
}

// observeCall is [Router.observe] for a call of a client's own program.
func (x *call) observeCall() {
	c := x.client
	if c.spans == nil {
		return
	}
	x.observed = &observation{method: x.request.Method, key: x.request.Key, partition: x.partition}
	values := func(name string) []string { return x.in.Header[name] }
	x.observed.begin(c.spans, x.ctx, trace.SpanKindInternal, values, func() []attribute.KeyValue {
		return spans.RequestAttributes(x.request.Method, x.in.URL.EscapedPath())
	})
}

// endSpans ends the spans of a call that has ended with err, or with its answer.
func (x *call) endSpans(err error) {
	o := x.observed
	if o == nil || x.told.Swap(true) {
		return
	}
	status := x.out.StatusCode
	if err != nil {
		o.problem, status = failureOf(err), 0
	}
	o.spans.end(o, x.way, status)
}

// traces returns the spans of the request; nil if it has none.
func (to *destination) traces() *requestSpans {
	if to.observed == nil {
		return nil
	}
	return to.observed.spans
}

// tracedFields returns the request's fields with those of the Trace Context for the attempt
// under way. Those before stand in plain.
func (d *dispatch) tracedFields() link.Fields {
	s := d.traces()
	if s == nil {
		return d.request.Fields
	}
	if d.untraced == nil {
		d.untraced = d.request.Fields
	}
	f := d.untraced
	for name, value := range spans.Fields(s.onward) {
		f = link.AppendField(f, name, value)
	}
	return f
}
