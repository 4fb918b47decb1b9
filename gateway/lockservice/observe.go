package lockservice

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/metrics"
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

// The service's families of metrics; docs/metrics.md describes them.
var (
	families metrics.Families

	lockRequestsMetric = families.Counter("keyway_router_lock_requests_total", "Requests to the lock service that were answered, by operation and status (499: the client did not wait).", "operation", "code")
	lockWaitingMetric  = families.Gauge("keyway_router_lock_requests_in_flight", "Requests for locks that are not answered yet: most of them wait for their keys.")
)

var _ prometheus.Collector = (*Service)(nil)

// Describe implements [prometheus.Collector].
func (s *Service) Describe(ch chan<- *prometheus.Desc) { families.Describe(ch) }

// Collect implements [prometheus.Collector].
func (s *Service) Collect(ch chan<- prometheus.Metric) {
	for op := range lockOperations {
		for i, code := range lockCodes {
			if n := s.counters.answered[op][i].Load(); n > 0 {
				metrics.Send(ch, lockRequestsMetric, n, op.String(), strconv.Itoa(code))
			}
		}
	}
	metrics.Send(ch, lockWaitingMetric, s.counters.waiting.Load())
}
