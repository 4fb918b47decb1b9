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

// countAnswer counts a request that was answered with that status, and has taken so long.
func (t *trafficPart) countAnswer(by send.Way, status int, took time.Duration) {
	t.answered[by][send.ClassOf(status)].Add(1)
	t.took.Observe(took)
}

// trafficOf returns the counters of the routes of that name. They are the same in all tables, so
// counts continue.
func (rt *Router) trafficOf(name string) *traffic {
	rt.trafficMu.Lock()
	defer rt.trafficMu.Unlock()
	t := rt.traffic[name]
	if t == nil {
		t = new(traffic)
		rt.traffic[name] = t
	}
	return t
}

// now returns the time since the router's start.
func (rt *Router) now() time.Duration { return time.Since(rt.base) }

// refused counts an answer of the router's own.
func (c *counters) refused(k problem.Kind) { c.problems[k].Add(1) }

// accounting is a request of a clientWriter, to be counted once.
type accounting struct {
	part  *trafficPart
	by    send.Way
	began time.Duration // since the router's start
	done  bool
}

// countSent counts bytes of the answer's body.
func (x *upstreamRequest) countSent(n int) {
	x.traffic.sent.Add(int64(n))
	if x.noted != nil {
		x.noted.sent += int64(n)
	}
}

// account counts the request, which has its answer, or changes protocols now.
func (w *clientWriter) account() {
	if a := &w.accounting; !a.done {
		a.done = true
		took := w.router.now() - a.began
		a.part.countAnswer(a.by, w.status, took)
		if w.observed != nil {
			w.observed.endRequest(w.router, a.by, w.status, took)
		}
	}
}

func (w *clientWriter) countFor(t *traffic) { w.accounting.part = &t.parts[w.stripe] }
