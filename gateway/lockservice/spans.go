package lockservice

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/internal/spans"
)

// beginLockRequest begins the span of a request to the lock service, without the path, which has the key.
func (s *Service) beginLockRequest(r *http.Request) (*http.Request, trace.Span) {
	route := ""
	switch path := r.URL.EscapedPath(); {
	case path == lockPath:
		route = lockPath
	case strings.HasPrefix(path, lockPath+"/"):
		route = lockPath + "/{key}"
	}
	method := spans.MethodName(r.Method)
	within := spans.Within(r.Context(), func(name string) []string { return r.Header[name] })
	ctx, span := s.spans.Start(within, strings.TrimSpace(method+" "+route), trace.SpanKindServer, func() []attribute.KeyValue {
		return []attribute.KeyValue{spans.Method.String(method), spans.Route.String(route)}
	})
	return r.WithContext(ctx), span
}

func endLockRequest(span trace.Span, status int) {
	if status == send.StatusClientGone {
		spans.Fail(span, "client-gone")
	} else {
		span.SetAttributes(spans.Status.Int(status))
		spans.FailStatus(span, status)
	}
	span.End()
}
