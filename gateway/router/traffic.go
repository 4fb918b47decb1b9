package router

import (
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/problem"
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

func (c *counters) refused(k problem.Kind) { c.problems[k].Add(1) }

// record is what is counted and noted of a request.
type record struct {
	stripe   int           // of what counts requests
	part     *trafficPart  // of its route
	observed *observation  // nil for nothing to be noted
	began    time.Duration // since the router's start
}

func (r *record) countReceived(n int64) {
	r.part.received.Add(n)
	if r.observed != nil {
		r.observed.received.Add(n)
	}
}

func (r *record) countSent(n int) {
	r.part.sent.Add(int64(n))
	if r.observed != nil {
		r.observed.sent += int64(n)
	}
}

// end counts the request, which was answered with that status.
func (r *record) end(rt *Router, by send.Way, status int) {
	took := rt.now() - r.began
	r.part.answered[by][send.ClassOf(status)].Add(1)
	r.part.took.Observe(took)
	if r.observed != nil {
		r.observed.endRequest(rt, by, status, took)
	}
}

// account counts the request, which has its answer, or changes protocols now.
func (w *clientWriter) account() {
	if !w.accounted {
		w.accounted = true
		w.end(w.router, w.by, w.status)
	}
}

func (w *clientWriter) countFor(t *traffic) { w.part = &t.parts[w.stripe] }
