package router

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/localmutex/locking"
	"github.com/keyway-go/keyway/ring"
)

// keyAttributes returns what spans say of a key.
func keyAttributes(m *spans.Maker, keys ring.Config, key string) []attribute.KeyValue {
	return append(m.KeyAttributes(key), spans.Partition.Int(keys.Partition(key)))
}

// beginLockCall begins the span of a call that asks for a lock, which endLockCall ends.
func beginLockCall(ctx context.Context, m *spans.Maker, keys ring.Config, key string) (context.Context, trace.Span) {
	return m.Start(ctx, spans.Lock, trace.SpanKindInternal, func() []attribute.KeyValue { return keyAttributes(m, keys, key) })
}

// beginLockAttempt begins the span of a call to a worker about a lock, within that of ctx, and has the call
// carry it. It returns nil if there is none. Without a span that is kept the call carries that of ctx.
func beginLockAttempt(ctx context.Context, m *spans.Maker, keys ring.Config, req *link.Request, to ring.Member) (span trace.Span) {
	if m == nil {
		return nil
	}
	sc := trace.SpanContextFromContext(ctx)
	if trace.SpanFromContext(ctx).IsRecording() {
		_, span = m.Start(ctx, strings.TrimPrefix(req.Method, ":"), trace.SpanKindClient, func() []attribute.KeyValue {
			return append(append(keyAttributes(m, keys, req.Key), spans.Worker.String(to.Name)), spans.ServerAttributes(to.Addr)...)
		})
		sc = span.SpanContext()
	}
	req.Fields = req.Fields[:len(req.Fields):len(req.Fields)] // of which there may be another attempt
	for name, value := range spans.Fields(sc) {
		req.Fields = link.AppendField(req.Fields, name, value)
	}
	return span
}

// beginRelease begins the span of a wait for the owner's answer to an Unlock, which endLockAttempt ends. It returns nil if
// there is none. The call to the owner may be about other locks too.
func (l *Lock) beginRelease(ctx context.Context) (span trace.Span) {
	c := l.client
	if c.spans == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return nil
	}
	_, span = c.spans.Start(ctx, strings.TrimPrefix(holds.Release, ":"), trace.SpanKindClient, func() []attribute.KeyValue {
		return keyAttributes(c.spans, c.ring, l.key)
	})
	return span
}

func endLockAttempt(span trace.Span, out routing.Outcome) {
	if span == nil {
		return
	}
	switch {
	case out.Verdict != routing.Settled:
		spans.Fail(span, attemptFailure(out))
	case out.Err != nil:
		spans.Fail(span, lockFailure(out.Err))
	}
	span.End()
}

func endLockCall(span trace.Span, l *Lock, err error) {
	if err != nil {
		spans.Fail(span, lockFailure(err))
	} else {
		span.SetAttributes(spans.Token.Int64(l.token))
	}
	span.End()
}

// lockFailure says why there is no lock.
func lockFailure(err error) string {
	_, held := errors.AsType[*lockHeldError](err)
	switch {
	case held, errors.Is(err, gateway.ErrLocked):
		return problem.KeyHeld.String()
	case errors.Is(err, gateway.ErrWaited):
		return problem.KeyWaited.String()
	case errors.Is(err, errLockGone), errors.Is(err, locking.ErrNotOwner):
		return problem.LockGone.String()
	}
	return failureOf(err)
}

// beginLockRequest begins the span of a request to the lock service, without the path, which has the key.
func (s *LockService) beginLockRequest(r *http.Request) (*http.Request, trace.Span) {
	route := ""
	switch path := r.URL.EscapedPath(); {
	case path == lockPath:
		route = lockPath
	case strings.HasPrefix(path, lockPath+"/"):
		route = lockPath + "/{key}"
	}
	method := spans.MethodName(r.Method)
	within := spans.Within(r.Context(), func(name string) []string { return r.Header[name] })
	ctx, span := s.router.spans.Start(within, strings.TrimSpace(method+" "+route), trace.SpanKindServer, func() []attribute.KeyValue {
		return []attribute.KeyValue{spans.Method.String(method), spans.Route.String(route)}
	})
	return r.WithContext(ctx), span
}

func endLockRequest(span trace.Span, status int) {
	if status == statusClientGone {
		spans.Fail(span, "client-gone")
	} else {
		span.SetAttributes(spans.Status.Int(status))
		spans.FailStatus(span, status)
	}
	span.End()
}
