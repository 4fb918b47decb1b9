package router

import (
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/metrics"
)

// traffic counts the requests of a route, in parts.
type traffic struct{ parts [metrics.Stripes]trafficPart }

type trafficPart struct {
	answered       [send.Ways][send.Classes]atomic.Int64
	took           metrics.Latencies
	received, sent atomic.Int64 // bytes of bodies, from clients and to them
}

// trafficOf returns the counters of the routes of that name. They are the same in all tables, so
// counts continue.
func (rt *Router) trafficOf(name string) *traffic {
	t, _ := rt.traffic.LoadOrStore(name, new(traffic))
	return t.(*traffic)
}

func (rt *Router) now() time.Duration { return time.Since(rt.base) }

// record is what is counted and noted of a request.
type record struct {
	stripe    int           // of what counts requests
	part      *trafficPart  // of its route
	observed  *observation  // nil for nothing to be noted
	began     time.Duration // since the router's start
	sent      int64         // bytes of the answer's body
	accounted bool          // by account
}

func (r *record) countSent(n int) {
	r.part.sent.Add(int64(n))
	r.sent += int64(n)
}

// account counts the request, which has its answer, or changes protocols now. It does so once.
func (x *upstreamRequest) account() {
	if x.accounted {
		return
	}
	x.accounted = true
	took := x.router.now() - x.began
	x.part.answered[x.By()][send.ClassOf(x.Answer.Status)].Add(1)
	x.part.took.Observe(took)
	if received := x.Body.Received.Load(); received > 0 && x.Body.Count == nil {
		x.part.received.Add(received)
	}
	if x.observed != nil {
		x.endObserved(took)
	}
}
