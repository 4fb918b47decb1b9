package router

import (
	"net/http"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// BenchmarkMetricsOfRequest is all that is counted of a request which the link carries.
func BenchmarkMetricsOfRequest(b *testing.B) {
	rt := &Router{base: time.Now()}
	counted := rt.trafficOf(onlyRoute)
	kit.ReportCPU(b)
	b.RunParallel(func(pb *testing.PB) {
		stripe := metrics.Stripe()
		x := upstreamRequest{record: record{part: &counted.parts[stripe]}}
		for pb.Next() {
			x.began = rt.now()
			rt.counters.requests.Add(stripe, 1)
			x.part.received.Add(10)
			x.countSent(100)
			x.end(rt, send.ByLink, http.StatusOK)
		}
	})
}
