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
	rt := &Router{base: time.Now(), traffic: make(map[string]*traffic)}
	counted := rt.trafficOf(onlyRoute)
	kit.ReportCPU(b)
	b.RunParallel(func(pb *testing.PB) {
		stripe := metrics.Stripe()
		x := upstreamRequest{traffic: &counted.parts[stripe]}
		for pb.Next() {
			began := rt.now()
			rt.counters.requests.Add(stripe, 1)
			x.traffic.received.Add(10)
			x.countSent(100)
			x.traffic.countAnswer(send.ByLink, http.StatusOK, rt.now()-began)
		}
	})
}
