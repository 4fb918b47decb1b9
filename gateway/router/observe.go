package router

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/accesslog"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// observation is what is noted of a request on its way, if there is an access log, or traces: the
// methods of a nil one do nothing where they may be called without. Its
// texts are those of the request, which must be there until it is logged.
type observation struct {
	trace, method, path, key, route string
	partition                       int
	spans                           *requestSpans // nil if the request has none

	sought  time.Time // when a worker was first asked for; zero if none was
	asked   time.Time // when the last attempt at one began
	refused time.Time // when it ended, if it was not settled; zero otherwise
	held    time.Time // when the wait for an owner began; zero if there was none
	tries   int
	worker  string // of the last attempt

	received  atomic.Int64 // bytes of the body
	sent      int64
	wait, run time.Duration // at the worker, see [hop.FieldTiming]
	told      bool          // wait and run are known
	problem   string        // of the router's own answer
}

// decided notes what becomes of the request.
func (o *observation) decided(d *decision, partition int) {
	if o == nil {
		return
	}
	o.route, o.key, o.partition = labelOf(d.route.Name), d.key, partition
	o.spans.setRoute(o.method, o.route)
}

// seek has attempts noted that are made from now on.
func (o *observation) seek(attempt routing.Attempt) routing.Attempt {
	if o.sought.IsZero() {
		o.sought = time.Now()
		o.asked = o.sought
	}
	return func(t routing.Target) routing.Outcome {
		o.worker, o.asked, o.refused = t.Name, time.Now(), time.Time{}
		if o.held.IsZero() {
			o.held = t.Held
		}
		o.spans.attempt(o, t.Member)
		o.tries++
		out := attempt(t)
		if out.Verdict != routing.Settled {
			o.refused = time.Now()
		}
		o.spans.attempted(out)
		return out
	}
}

// untaken notes that no worker takes the request, because of err.
func (o *observation) untaken(err error, to *destination) {
	if _, held := errors.AsType[*routing.UnreachableError](err); err == nil || !held && o.tries > 0 && o.refused.IsZero() {
		return
	}
	o.asked = time.Now()
	if o.held.IsZero() && to.hold >= time.Millisecond && !errors.Is(err, routing.ErrHoldFull) && !errors.Is(err, ring.ErrSettings) {
		if o.held = o.refused; o.tries == 0 {
			o.held = o.sought
		}
	}
}

// answered notes what tells of the answer, once its body has been read.
func (o *observation) answered(a *answer) {
	if o == nil {
		return
	}
	o.problem = a.problem
	if a.body == nil {
		return
	}
	o.timed(a.fields)
	if n, last := a.body.Buffered(); n == 0 && last {
		o.timed(a.body.Trailer())
	}
}

// timed notes the times that the worker has told, if they are among these fields.
func (o *observation) timed(list link.Fields) {
	for name, value := range list.All() {
		if name == hop.FieldTiming {
			o.wait, o.run, o.told = hop.ParseTiming(value)
		}
	}
}

// end ends the request's spans and has a line written about it. It has come so long ago.
func (o *observation) end(rt *Router, by way, status int, took time.Duration) {
	log := rt.cfg.AccessLog
	if status == 0 {
		status = statusClientGone
	}
	o.spans.end(o, by.String(), status)
	if log == nil || !log.Wants(status, took) {
		return
	}
	log.Add(&accesslog.Entry{
		Time: time.Now().Add(-took), ID: o.trace, Route: o.route, Method: o.method, Path: o.path, Status: status,
		BytesIn: o.received.Load(), BytesOut: o.sent, Key: o.key, Partition: o.partition,
		Owner: o.worker, Way: by.String(), Tries: o.tries, Hold: o.asked.Sub(o.sought),
		Timed: o.told, Wait: o.wait, Run: o.run, Total: took, Error: o.problem,
	})
}

// noteProblem notes that the router answers the request itself.
func (w *clientWriter) noteProblem(k problem.Kind) {
	if w.observed != nil {
		w.observed.problem = k.String()
	}
}
