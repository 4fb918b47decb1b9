package client

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/ring"
)

// beginLockCall begins the span of a call that asks for a lock, which endLockCall ends.
func beginLockCall(ctx context.Context, m *spans.Maker, keys ring.Config, key string) (context.Context, trace.Span) {
	return m.Start(ctx, spans.Lock, trace.SpanKindInternal, func() []attribute.KeyValue { return send.KeyAttributes(m, keys, key) })
}

// beginRelease begins the span of a wait for the owner's answer to an Unlock, which endLockAttempt ends. It returns nil if
// there is none. The call to the owner may be about other locks too.
func (l *Lock) beginRelease(ctx context.Context) (span trace.Span) {
	c := l.client
	if c.spans == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return nil
	}
	_, span = c.spans.Start(ctx, strings.TrimPrefix(holds.Release, ":"), trace.SpanKindClient, func() []attribute.KeyValue {
		return send.KeyAttributes(c.spans, c.workers.Ring, l.key)
	})
	return span
}

func endLockCall(span trace.Span, l *Lock, err error) {
	if err != nil {
		spans.Fail(span, send.LockFailure(err))
	} else {
		span.SetAttributes(spans.Token.Int64(l.token))
	}
	span.End()
}

// observeCall begins the spans of the call, if it has any.
func (x *call) observeCall() {
	c := x.client
	if c.spans == nil {
		return
	}
	x.Observed = &send.Progress{Method: x.Request.Method, Key: x.Request.Key, Partition: x.Partition}
	values := func(name string) []string { return x.in.Header[name] }
	x.Observed.Begin(c.spans, x.Ctx, trace.SpanKindInternal, values, func() []attribute.KeyValue {
		return spans.RequestAttributes(x.Request.Method, x.in.URL.EscapedPath())
	})
}

// endSpans ends the spans of a call that has ended with err, or with its answer.
func (x *call) endSpans(err error) {
	o := x.Observed
	if o == nil {
		return
	}
	status := x.out.StatusCode
	if err != nil {
		o.Problem, status = send.FailureOf(err), 0
	}
	o.End(x.way, status)
}
