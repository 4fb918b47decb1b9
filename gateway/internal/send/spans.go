package send

import (
	"cmp"
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// Spans are the span of a request and, within it, one for each attempt at a worker. Their
// attributes come from the request's Progress. Methods of a nil Spans do nothing.
type Spans struct {
	maker  *spans.Maker
	ctx    context.Context // with span
	span   trace.Span
	last   trace.Span        // of the attempt under way, or answered; nil if there is none
	Onward trace.SpanContext // what the worker gets
}

// Begin begins the span of the request.
func (o *Progress) Begin(maker *spans.Maker, ctx context.Context, kind trace.SpanKind, values func(name string) []string, attrs func() []attribute.KeyValue) {
	s := &Spans{maker: maker}
	s.ctx, s.span = maker.Start(spans.Within(ctx, values), spans.MethodName(o.Method), kind, attrs)
	s.Onward = s.span.SpanContext()
	o.Spans = s
}

// SetRoute names the span after the request's route.
func (s *Spans) SetRoute(method, route string) {
	if s != nil && s.span.IsRecording() {
		s.span.SetName(spans.MethodName(method) + " " + route)
		s.span.SetAttributes(spans.Route.String(route))
	}
}

// attempt begins the span of an attempt at a worker, or at another server, which o has counted those
// before of.
func (s *Spans) attempt(o *Progress, to ring.Member) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	method := spans.MethodName(o.Method)
	_, s.last = s.maker.Start(s.ctx, method, trace.SpanKindClient, func() []attribute.KeyValue {
		attrs := append(spans.ServerAttributes(to.Addr), spans.Method.String(method))
		if to.Name != "" {
			attrs = append(attrs, spans.Worker.String(to.Name))
		}
		if o.Tries > 0 {
			attrs = append(attrs, spans.Resend.Int(o.Tries))
		}
		return attrs
	})
	s.Onward = s.last.SpanContext()
}

// attempted ends the span of an attempt that has no answer.
func (s *Spans) attempted(out routing.Outcome) {
	if s == nil || s.last == nil || out.Err == nil {
		return
	}
	spans.Fail(s.last, attemptFailure(out))
	s.last.End()
	s.last = nil
}

// End ends the spans of the request. way names the way it took, and status is that of its answer, 0
// if there was none.
func (s *Spans) End(o *Progress, way string, status int) {
	if s == nil {
		return
	}
	if !s.span.IsRecording() {
		s.span.End()
		return
	}
	if !o.held.IsZero() {
		s.maker.Add(s.ctx, spans.Hold, o.held, o.Asked, "", func() []attribute.KeyValue { return []attribute.KeyValue{spans.Partition.Int(o.Partition)} })
	}
	attrs := append(s.maker.KeyAttributes(o.Key), spans.Way.String(way))
	if o.Key != "" {
		attrs = append(attrs, spans.Partition.Int(o.Partition))
	}
	if o.Worker != "" {
		attrs = append(attrs, spans.Worker.String(o.Worker))
	}
	answered := status != 0 && status != StatusClientGone
	if answered {
		attrs = append(attrs, spans.Status.Int(status))
	}
	if s.last != nil {
		if answered && o.Problem == "" {
			s.last.SetAttributes(spans.Status.Int(status))
			spans.FailStatus(s.last, status)
		}
		s.last.End()
	}
	s.span.SetAttributes(attrs...)
	switch {
	case !answered:
		spans.Fail(s.span, cmp.Or(o.Problem, "client-gone"))
	case status >= http.StatusInternalServerError && o.Problem != "":
		spans.Fail(s.span, o.Problem)
	default:
		spans.FailStatus(s.span, status)
	}
	s.span.End()
}

// Traces returns the spans of the request; nil if it has none.
func (to *Destination) Traces() *Spans {
	if to.Observed == nil {
		return nil
	}
	return to.Observed.Spans
}

// tracedFields returns the request's fields with those of the Trace Context for the attempt
// under way. Those before stand in plain.
func (d *Dispatch) tracedFields() link.Fields {
	s := d.Traces()
	if s == nil {
		return d.Request.Fields
	}
	if d.untraced == nil {
		d.untraced = d.Request.Fields
	}
	f := d.untraced
	for name, value := range spans.Fields(s.Onward) {
		f = link.AppendField(f, name, value)
	}
	return f
}
