package worker

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// timing records the times of a request or call, for its spans and for the router that sent it.
// Methods of a nil timing do nothing.
type timing struct {
	wait    time.Duration // for the key; -1 until the batch of the request has ended, if it has one
	run     time.Duration // with the key held; 0 while it is
	timed   bool          // the router wants to know
	batched bool          // the request runs in a batch, whose times it has

	spans  *spans.Maker      // nil for no spans
	ctx    context.Context   // the caller's, with the span that has brought the request, if there is one
	kind   trace.SpanKind    // of the execution
	way    string            // by which the request or call has come
	method string            // of a request; "" for a call
	path   string            // of a request
	span   trace.Span        // of the execution, until it ends; nil if there is none
	onward trace.SpanContext // of the execution
	status int               // of the answer; 0 if it is not known
	failed string            // why there is none of the app
}

// asTiming returns the timing that a request or call has for a trace, nil for none.
func asTiming(t keyed.Trace) *timing {
	own, _ := t.(*timing)
	return own
}

func timingOf(x keyed.Execution) *timing { return asTiming(x.Trace()) }

// observe has the times of a request noted, if its router wants to know or there are spans. values returns
// those of the request's fields.
func (w *Worker) observe(ctx context.Context, how *keyed.Asking, way, method, path string, values func(name string) []string) {
	timed := how.Policy != nil && how.Policy.Timed
	if !timed && w.spans == nil {
		return
	}
	t := &timing{timed: timed}
	if how.Trace = t; w.spans != nil {
		t.spans, t.kind, t.ctx = w.spans, trace.SpanKindServer, spans.Within(ctx, values)
		t.way, t.method, t.path = way, method, path
	}
}

func (w *Worker) observeLink(r *link.ServerRequest, how *keyed.Asking) {
	path, _, _ := strings.Cut(r.Target, "?")
	w.observe(r.Context(), how, "link", r.Method, path, r.Fields.Values)
}

func (w *Worker) observeHTTP(r *http.Request, how *keyed.Asking, way string) {
	w.observe(r.Context(), how, way, r.Method, r.URL.EscapedPath(), func(name string) []string { return r.Header[name] })
}

func (w *Worker) traceOfCall(ctx context.Context) keyed.Trace {
	if w.spans == nil {
		return nil
	}
	return &timing{spans: w.spans, kind: trace.SpanKindInternal, ctx: ctx, way: "call"}
}

// traceOfLock is observe for a call that asks for a lock. It keeps nothing of the call, which the lock outlives.
func (w *Worker) traceOfLock(r *link.ServerRequest) keyed.Trace {
	if w.spans == nil {
		return nil
	}
	ctx := spans.Within(context.Background(), r.Fields.Values)
	return &timing{spans: w.spans, kind: trace.SpanKindServer, ctx: ctx, way: "lock"}
}

// Waited implements [Trace].
func (t *timing) Waited(p *keyed.Partition, key string, took time.Duration, err error) {
	if t == nil {
		return
	}
	t.wait = took
	if t.spans == nil {
		return
	}
	failed := ""
	switch {
	case t.ctx.Err() != nil && err != nil, errors.Is(err, context.Canceled):
		failed = "client-gone"
	case err != nil:
		failed = problemOf(err).Kind.String()
	}
	now := time.Now()
	t.spans.Add(t.ctx, spans.QueueWait, now.Add(-took), now, failed, func() []attribute.KeyValue { return t.attributes(p, key) })
}

// Ran implements [Trace]. A batch's execution may continue after its requests have been answered.
func (t *timing) Ran(took time.Duration) {
	if t != nil && !t.batched {
		t.run = took
	}
}

// joinBatch has the times of a batch be those of the request.
func (t *timing) joinBatch() {
	if t != nil {
		t.batched, t.wait = true, -1
	}
}

// attributes returns what spans say of a key at the worker.
func (t *timing) attributes(p *keyed.Partition, name string) []attribute.KeyValue {
	list := t.spans.KeyAttributes(keyed.KeyOf(name))
	if keyed.KeyOf(name) != "" {
		list = append(list, spans.Partition.Int(p.Number))
	}
	return append(list, spans.Worker.String(p.Worker()))
}

// Begin implements [Trace]: it begins the span of an execution.
func (t *timing) Begin(ctx context.Context, p *keyed.Partition, key string, token int64) context.Context {
	if t == nil || t.spans == nil {
		return ctx
	}
	ctx, t.span = t.spans.Start(t.ctx, spans.Execution, t.kind, func() []attribute.KeyValue {
		attrs := append(t.attributes(p, key), spans.Way.String(t.way))
		if t.method != "" {
			attrs = append(attrs, spans.RequestAttributes(t.method, t.path)...)
		}
		if !keyed.IsKeyless(key) {
			attrs = append(attrs, spans.Token.Int64(token))
		}
		return attrs
	})
	t.onward = t.span.SpanContext()
	return ctx
}

// noteStatus records the status of the execution's answer.
func (t *timing) noteStatus(status int) {
	if t != nil && t.status == 0 {
		t.status = status
	}
}

// noteFailure records why the app has not answered.
func (t *timing) noteFailure(kind string) {
	if t != nil {
		t.failed = kind
	}
}

// records reports whether the execution has a span that is recorded.
func (t *timing) records() bool { return t != nil && t.span != nil && t.span.IsRecording() }

// link has the execution's span, which is recorded, say that it is about another request too.
func (t *timing) link(other *timing) {
	if other == nil {
		return
	}
	if sc := trace.SpanContextFromContext(other.ctx); sc.IsValid() {
		t.span.AddLink(trace.Link{SpanContext: sc})
	}
}

// End implements [Trace]: it ends the span of the execution.
func (t *timing) End(cancelled string) {
	if t.records() {
		if t.status != 0 {
			t.span.SetAttributes(spans.Status.Int(t.status))
		}
		if failed := cmp.Or(cancelled, t.failed); failed != "" {
			spans.Fail(t.span, failed)
		} else {
			spans.FailStatus(t.span, t.status)
		}
	}
	if t != nil && t.span != nil {
		t.span.End()
		t.span = nil
	}
}

// hasFields reports whether the request is sent on with other fields of the Trace Context.
func (t *timing) hasFields() bool { return t != nil && t.onward.IsValid() }

// tell adds the times to the answer, whose execution has ended.
func (t *timing) tell(w *link.ResponseWriter) {
	if t != nil && t.timed && t.wait >= 0 {
		w.AddLast(hop.FieldTiming, hop.FormatTiming(t.wait, t.run))
	}
}

// tellHTTP is tell for an answer over HTTP/1.1 before anything of it is sent.
func (t *timing) tellHTTP(h http.Header) {
	if t != nil && t.timed {
		h[hop.FieldTiming] = []string{hop.FormatTiming(t.wait, t.run)}
	}
}
