package router

import (
	"net/http"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// BenchmarkMetricsOfRequest is all that is counted of a request.
func BenchmarkMetricsOfRequest(b *testing.B) {
	rt := &Router{base: time.Now()}
	counted := rt.trafficOf(onlyRoute)
	kit.ReportCPU(b)
	b.RunParallel(func(pb *testing.PB) {
		stripe := metrics.Stripe()
		x := upstreamRequest{router: rt, record: record{part: &counted.parts[stripe]}}
		x.Answer.Status = http.StatusOK
		x.Body.Received.Store(10)
		for pb.Next() {
			x.began = rt.now()
			rt.counters.requests.Add(stripe, 1)
			x.countSent(100)
			x.accounted = false
			x.account()
		}
	})
}
