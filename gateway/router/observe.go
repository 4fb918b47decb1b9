package router

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/accesslog"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/router/internal/routing"
)

// observation is what is noted of a request on its way, if there is an access log: the
// methods of a nil one do nothing where they may be called without. Its
// texts are those of the request, which must be there until it is logged.
type observation struct {
	trace, method, path, key, route string
	partition                       int

	sought time.Time // when a worker was first asked for; zero if none was
	asked  time.Time // when the last attempt at one began
	tries  int
	worker string // of the last attempt

	received atomic.Int64 // bytes of the body
	sent     int64
	timing   string // what the worker has told, see [hop.TrailerTiming]
	problem  string // of the router's own answer
}

// decided notes what becomes of the request.
func (o *observation) decided(d *decision, partition int) {
	if o == nil {
		return
	}
	o.route, o.key, o.partition = labelOf(d.route.Name), d.key, partition
}

// seek has attempts noted that are made from now on.
func (o *observation) seek(attempt routing.Attempt) routing.Attempt {
	if o.sought.IsZero() {
		o.sought = time.Now()
		o.asked = o.sought
	}
	return func(t routing.Target) routing.Outcome {
		o.tries++
		o.worker, o.asked = t.Name, time.Now()
		return attempt(t)
	}
}

// untaken notes that no worker takes the request.
func (o *observation) untaken(err error) {
	if _, held := errors.AsType[*routing.UnreachableError](err); held || o.tries == 0 {
		o.asked = time.Now()
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
	if n, last := a.body.Buffered(); n > 0 || !last {
		return
	}
	for name, value := range a.body.Trailer().All() {
		if name == hop.TrailerTiming {
			o.timing = value
		}
	}
}

// end has a line written about the request, which has come so long ago.
func (o *observation) end(rt *Router, by way, status int, took time.Duration) {
	log := rt.cfg.AccessLog
	if status == 0 {
		status = statusClientGone
	}
	if !log.Wants(status, took) {
		return
	}
	wait, run := hop.ParseTiming(o.timing)
	log.Add(&accesslog.Entry{
		Time: time.Now().Add(-took), ID: o.trace, Route: o.route, Method: o.method, Path: o.path, Status: status,
		BytesIn: o.received.Load(), BytesOut: o.sent, Key: o.key, Partition: o.partition,
		Owner: o.worker, Way: by.String(), Tries: o.tries, Hold: o.asked.Sub(o.sought),
		Wait: wait, Run: run, Total: took, Error: o.problem,
	})
}

// noteProblem notes that the router answers the request itself.
func (w *clientWriter) noteProblem(k problem.Kind) {
	if w.observed != nil {
		w.observed.problem = k.String()
	}
}

// traceOf returns the trace of a request with these values of the field Traceparent
// (https://www.w3.org/TR/trace-context), "" if there is no good one.
func traceOf(values []string) string {
	if len(values) != 1 {
		return ""
	}
	parts := strings.SplitN(values[0], "-", 5)
	if len(parts) < 4 || len(parts[0]) != 2 || parts[0] == "ff" || parts[0] == "00" && len(parts) > 4 ||
		len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 {
		return ""
	}
	for i, part := range parts[:4] {
		zero := strings.Trim(part, "0") == ""
		if strings.Trim(part, "0123456789abcdef") != "" || zero && (i == 1 || i == 2) {
			return ""
		}
	}
	return parts[1]
}
