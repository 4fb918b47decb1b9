package send

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// Progress records a request on its way to a worker. It makes the span of the request and, within
// it, one for each attempt at a worker, unless maker is nil. The request's goroutine changes it.
type Progress struct {
	Method, Key string
	Partition   int

	Sought  time.Time // when a worker was first looked for; zero if never
	Asked   time.Time // when the last attempt at one began
	refused time.Time // when that attempt ended, if it was not settled; zero otherwise
	held    time.Time // when the wait for an owner began; zero if there was none
	Tries   int
	Worker  string // of the last attempt
	Problem string // why there is no worker's answer; "" if there is one

	maker  *spans.Maker
	ctx    context.Context // with span
	span   trace.Span
	last   trace.Span        // of the attempt under way, or answered; nil if there is none
	Onward trace.SpanContext // what the worker gets
}

// seek has attempts noted that are made from now on.
func (o *Progress) seek(attempt routing.Attempt) routing.Attempt {
	if o.Sought.IsZero() {
		o.Sought = time.Now()
		o.Asked = o.Sought
	}
	return func(t routing.Target) routing.Outcome {
		o.Worker, o.Asked, o.refused = t.Name, time.Now(), time.Time{}
		if o.held.IsZero() {
			o.held = t.Held
		}
		o.attempt(t.Member)
		o.Tries++
		out := attempt(t)
		if out.Verdict != routing.Settled {
			o.refused = time.Now()
		}
		o.attempted(out)
		return out
	}
}

// untaken records that no worker takes the request, because of err.
func (o *Progress) untaken(err error, to *Destination) {
	if _, held := errors.AsType[*routing.UnreachableError](err); err == nil || !held && o.Tries > 0 && o.refused.IsZero() {
		return
	}
	o.Asked = time.Now()
	if o.held.IsZero() && to.Hold >= time.Millisecond && !errors.Is(err, routing.ErrHoldFull) && !errors.Is(err, ring.ErrSettings) {
		if o.held = o.refused; o.Tries == 0 {
			o.held = o.Sought
		}
	}
}

// Begin begins the span of the request.
func (o *Progress) Begin(maker *spans.Maker, ctx context.Context, kind trace.SpanKind, values func(name string) []string, attrs func() []attribute.KeyValue) {
	o.maker = maker
	o.ctx, o.span = maker.Start(spans.Within(ctx, values), spans.MethodName(o.Method), kind, attrs)
	o.Onward = o.span.SpanContext()
}

func (o *Progress) isRecording() bool { return o.maker != nil && o.span.IsRecording() }

// SetRoute names the span after the request's route.
func (o *Progress) SetRoute(route string) {
	if o.isRecording() {
		o.span.SetName(spans.MethodName(o.Method) + " " + route)
		o.span.SetAttributes(spans.Route.String(route))
	}
}

// attempt begins the span of an attempt at a worker, or at another server.
func (o *Progress) attempt(to ring.Member) {
	if !o.isRecording() {
		return
	}
	method := spans.MethodName(o.Method)
	_, o.last = o.maker.Start(o.ctx, method, trace.SpanKindClient, func() []attribute.KeyValue {
		attrs := append(spans.ServerAttributes(to.Addr), spans.Method.String(method))
		if to.Name != "" {
			attrs = append(attrs, spans.Worker.String(to.Name))
		}
		if o.Tries > 0 {
			attrs = append(attrs, spans.Resend.Int(o.Tries))
		}
		return attrs
	})
	o.Onward = o.last.SpanContext()
}

// attempted ends the span of an attempt that has no answer.
func (o *Progress) attempted(out routing.Outcome) {
	if o.last == nil || out.Err == nil {
		return
	}
	spans.Fail(o.last, attemptFailure(out))
	o.last.End()
	o.last = nil
}

// End ends the spans of the request. way names the way it took, and status is that of its answer, 0
// if there was none.
func (o *Progress) End(way string, status int) {
	if o.maker == nil {
		return
	}
	defer o.span.End()
	if !o.span.IsRecording() {
		return
	}
	if !o.held.IsZero() {
		o.maker.Add(o.ctx, spans.Hold, o.held, o.Asked, "", func() []attribute.KeyValue { return []attribute.KeyValue{spans.Partition.Int(o.Partition)} })
	}
	attrs := append(o.maker.KeyAttributes(o.Key), spans.Way.String(way))
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
	if o.last != nil {
		if answered && o.Problem == "" {
			o.last.SetAttributes(spans.Status.Int(status))
			spans.FailStatus(o.last, status)
		}
		o.last.End()
	}
	o.span.SetAttributes(attrs...)
	switch {
	case !answered:
		spans.Fail(o.span, cmp.Or(o.Problem, "client-gone"))
	case status >= http.StatusInternalServerError && o.Problem != "":
		spans.Fail(o.span, o.Problem)
	default:
		spans.FailStatus(o.span, status)
	}
}

// Traced reports whether the request has spans.
func (to *Destination) Traced() bool { return to.Observed != nil && to.Observed.maker != nil }

// tracedFields returns the request's fields with those of the Trace Context for the attempt
// under way. Those before stand in untraced.
func (d *Dispatch) tracedFields() link.Fields {
	if !d.Traced() {
		return d.Request.Fields
	}
	if d.untraced == nil {
		d.untraced = d.Request.Fields
	}
	f := d.untraced
	for name, value := range spans.Fields(d.Observed.Onward) {
		f = link.AppendField(f, name, value)
	}
	return f
}

// Way is what has carried a request that was answered.
type Way uint8

// The ways that a request can take.
const (
	ByRouter   Way = iota // nothing: the router has answered it
	ByLink                // the link to a worker
	ByHTTP1               // a connection of HTTP/1.1 to a worker
	ByRelay               // the same, for an upgrade
	ByUpstream            // a connection to the route's server for requests without a key

	Ways
)

func (w Way) String() string {
	return [...]string{"router", "link", "http1", "relay", "upstream"}[w]
}

// Class is a class of statuses of answers; 0 for requests whose clients did not wait.
type Class uint8

// Classes is how many there are.
const Classes = 6

// ClassOf returns the class of a status.
func ClassOf(status int) Class {
	if status < 100 || status > 599 || status == StatusClientGone {
		return 0
	}
	return Class(status / 100)
}

func (c Class) String() string {
	return [Classes]string{"499", "1xx", "2xx", "3xx", "4xx", "5xx"}[c]
}
