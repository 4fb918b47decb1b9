package lockservice

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/internal/metrics"
)

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
