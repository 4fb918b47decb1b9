package router

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// requestSpans are the spans of a request: its own, and one for each attempt at a worker
// in that. What they say comes from the request's progress. The methods of a nil one do nothing.
type requestSpans struct {
	maker  *spans.Maker
	ctx    context.Context // with span
	span   trace.Span
	last   trace.Span        // of the attempt under way, or answered; nil if there is none
	onward trace.SpanContext // what the worker gets
}

func (o *progress) begin(maker *spans.Maker, ctx context.Context, kind trace.SpanKind, values func(name string) []string, attrs func() []attribute.KeyValue) {
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
func (s *requestSpans) attempt(o *progress, to ring.Member) {
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

// end ends the spans of the request, which was answered with that status, by way of what is named
// way; 0 if it was not.
func (s *requestSpans) end(o *progress, way string, status int) {
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
