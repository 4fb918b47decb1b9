package send

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/localmutex/locking"
	"github.com/keyway-go/keyway/ring"
)

// KeyAttributes returns what spans say of a key.
func KeyAttributes(m *spans.Maker, keys ring.Config, key string) []attribute.KeyValue {
	return append(m.KeyAttributes(key), spans.Partition.Int(keys.Partition(key)))
}

// BeginLockAttempt begins the span of a call to a worker about a lock, within that of ctx, and has the call
// carry it. It returns nil if there is none. Without a span that is kept the call carries that of ctx.
func BeginLockAttempt(ctx context.Context, m *spans.Maker, keys ring.Config, req *link.Request, to ring.Member) (span trace.Span) {
	if m == nil {
		return nil
	}
	sc := trace.SpanContextFromContext(ctx)
	if trace.SpanFromContext(ctx).IsRecording() {
		_, span = m.Start(ctx, strings.TrimPrefix(req.Method, ":"), trace.SpanKindClient, func() []attribute.KeyValue {
			return append(append(KeyAttributes(m, keys, req.Key), spans.Worker.String(to.Name)), spans.ServerAttributes(to.Addr)...)
		})
		sc = span.SpanContext()
	}
	req.Fields = req.Fields[:len(req.Fields):len(req.Fields)] // of which there may be another attempt
	for name, value := range spans.Fields(sc) {
		req.Fields = link.AppendField(req.Fields, name, value)
	}
	return span
}

func EndLockAttempt(span trace.Span, out routing.Outcome) {
	if span == nil {
		return
	}
	switch {
	case out.Verdict != routing.Settled:
		spans.Fail(span, attemptFailure(out))
	case out.Err != nil:
		spans.Fail(span, LockFailure(out.Err))
	}
	span.End()
}

// LockFailure says why there is no lock.
func LockFailure(err error) string {
	switch {
	case errors.Is(err, gateway.ErrLocked):
		return problem.KeyHeld.String()
	case errors.Is(err, gateway.ErrWaited):
		return problem.KeyWaited.String()
	case errors.Is(err, locking.ErrNotOwner):
		return problem.LockGone.String()
	}
	return FailureOf(err)
}
