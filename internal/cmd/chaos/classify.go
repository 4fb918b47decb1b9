package main

import (
	"fmt"
	"net/http"
	"slices"
	"sort"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// verdict is what became of a request that was not answered 200.
type verdict struct {
	request *trial.Request
	cause   string
	event   *event // whose fault it is; nil for none
	allowed bool
}

// judge knows what is needed to say why a request failed.
type judge struct {
	events  []*event
	seen    trial.Record
	sent    map[int64]time.Duration // by the request's number; see newJudge
	ttl     time.Duration           // of sessions
	hold    time.Duration           // of requests at the router
	outages []outage
	cuts    []cut // of links
	doors   bool  // each worker takes requests for all
}

func newJudge(cfg config, events []*event, seen trial.Record, requests []*trial.Request, cuts []cut) *judge {
	sent := make(map[int64]time.Duration, len(requests))
	for _, r := range requests {
		sent[r.Number] = r.Send
	}
	return &judge{events: events, seen: seen, sent: sent, ttl: cfg.TTL, hold: cfg.Hold, outages: outages(events, cfg.TTL), cuts: cuts, doors: cfg.Doors}
}

// classify says why a request failed and whether it may. What was executing on,
// or on its way to, a process that was killed or whose link was cut may end in
// 502; so may an execution on a process that was paused. All others have to be
// held and answered, unless events come so close to each other that the router
// holds them in vain.
func (j *judge) classify(r *trial.Request) verdict {
	for _, e := range j.events {
		if cause := j.allowed(r, e); cause != "" {
			return verdict{r, cause, e, true}
		}
	}
	if j.wasCut(r) {
		return verdict{r, "its link was cut", nil, true}
	}
	e := j.before(r)
	if j.heldInVain(r) {
		return verdict{r, "held in vain", e, true}
	}
	if e == nil {
		return verdict{r, fmt.Sprintf("status %d before any event", r.Status), nil, false}
	}
	for _, p := range j.events {
		last := j.seen.LastRan(r.Key, p.begin)
		if p.Kind == pause && p.overlaps(r) && r.Status == http.StatusBadGateway && j.seen.Requests[r.Number] == nil && (last == p.process || last == "") {
			return verdict{r, fmt.Sprintf("status %d, waited at a paused worker, never ran", r.Status), p, false}
		}
	}
	return verdict{r, fmt.Sprintf("status %d", r.Status), e, false}
}

// breakTime is how long after a process has died, or a link was cut, a router may
// take to notice, and to answer what was there: also what it has sent before it
// noticed, of which it cannot know that it did not arrive. Where a request was that
// never ran is not known otherwise, if its key was last executed elsewhere.
const breakTime = 500 * time.Millisecond

// allowed returns the reason for which an event lets a request fail, or
// nothing.
func (j *judge) allowed(r *trial.Request, e *event) string {
	x := j.seen.Requests[r.Number]
	switch {
	case !e.Kind.takesWorker():
		return ""
	case e.Kind != pause && x == nil && r.Status == http.StatusBadGateway && r.Send > e.end && r.Recv <= e.end+breakTime:
		return "was sent to a killed worker"
	case !e.overlaps(r):
		return ""
	case e.Kind == pause && x != nil && x.Worker == e.process && (r.Status == http.StatusBadGateway || r.Status == http.StatusConflict):
		return "ran on a paused worker"
	case e.Kind == pause || r.Status != http.StatusBadGateway:
		return ""
	case j.doors && r.Recv <= e.end+breakTime:
		return "was at a killed door"
	case x != nil && x.Worker == e.process && x.Begin <= e.end+breakTime: // its app may read what it sent before a moment later
		return "ran on a killed worker"
	case x == nil && (r.Recv <= e.end+breakTime || j.seen.LastRan(r.Key, e.begin) == e.process):
		return "was at a killed worker, never ran"
	}
	return ""
}

// wasCut reports whether a request failed because a link was cut: that of the
// worker that ran it, or of any if none did, even if it was sent after that.
func (j *judge) wasCut(r *trial.Request) bool {
	if r.Status != http.StatusBadGateway {
		return false
	}
	x := j.seen.Requests[r.Number]
	return slices.ContainsFunc(j.cuts, func(c cut) bool {
		return c.at <= r.Recv && r.Recv <= c.at+breakTime && (x == nil || x.Worker == c.worker && r.Send <= c.at)
	})
}

// before returns the event that came last before the request failed.
func (j *judge) before(r *trial.Request) (last *event) {
	for _, e := range j.events {
		if e.begin <= r.Recv {
			last = e
		}
	}
	return last
}

// moves counts how often a key went from one process to another, and how often
// it did while it ran at the one and the next request was there already: the
// handover that needs the store.
func (j *judge) moves() (all, busy int) {
	for _, c := range j.seen.Keys {
		for i, x := range c.History {
			if i == 0 || c.History[i-1].Worker == x.Worker {
				continue
			}
			all++
			if s, ok := j.sent[x.Request]; ok && s < c.History[i-1].End {
				busy++
			}
		}
	}
	return all, busy
}

// lateGrace is for a worker that was paused to notice that it was.
const lateGrace = 2 * time.Second

// excused reports whether a finding lies outside of what is promised: a worker
// that was stopped between its last check and the sending of a request sends
// it when it goes on, whatever has happened meanwhile. The app that compares
// tokens refuses it. A request that came when the worker was stopped already
// has no such excuse.
func (j *judge) excused(f trial.Finding) bool {
	if f.Late == nil || f.Late.Outcome != trial.Fenced || f.Kind != trial.Overlap && f.Kind != trial.Regression {
		return false
	}
	for _, e := range j.events {
		if e.Kind == pause && e.process == f.Late.Worker && j.sent[f.Late.Request] <= e.begin && f.At >= e.end && f.At <= e.end+lateGrace {
			return true
		}
	}
	return false
}

// idle returns how long a request waited while nothing ran for its key: the
// part of its waiting that is Keyway's doing.
func (j *judge) idle(r *trial.Request) time.Duration {
	until := r.Recv
	if x := j.seen.Requests[r.Number]; x != nil {
		until = x.Begin
	}
	waited := until - r.Send
	c := j.seen.Keys[r.Key]
	if c == nil {
		return waited
	}
	i := sort.Search(len(c.History), func(i int) bool { return c.History[i].End >= r.Send })
	for ; i < len(c.History) && c.History[i].Begin < until; i++ {
		waited -= max(0, min(c.History[i].End, until)-max(c.History[i].Begin, r.Send))
	}
	return max(0, waited)
}

// effect is what an event did to the requests.
type effect struct {
	*event
	failed, allowed int
	slowest         time.Duration // request under way during the event or sent until the next one
	served          time.Duration // after the event, until the last request that it held up was executed
}

// heldUp is how long a request waits for nothing until it counts as held up.
const heldUp = 500 * time.Millisecond

// effects attributes the requests to the events. What takes a worker has an
// effect until the next event that takes one or ends claims, the others until
// the next event.
func (j *judge) effects(requests []*trial.Request, verdicts []verdict) []effect {
	all := make([]effect, len(j.events))
	for i, e := range j.events {
		all[i].event = e
		until := max(e.end, j.until(i))
		for _, r := range requests {
			if r.Recv < e.begin || r.Send > until {
				continue
			}
			all[i].slowest = max(all[i].slowest, r.Took())
			if x := j.seen.Requests[r.Number]; x != nil && x.Begin > e.begin && j.idle(r) > heldUp {
				all[i].served = max(all[i].served, x.Begin-e.begin)
			}
		}
		for _, v := range verdicts {
			if v.event == e && v.allowed {
				all[i].allowed++
			} else if v.event == e {
				all[i].failed++
			}
		}
	}
	return all
}

func (j *judge) until(i int) time.Duration {
	tough := func(k kind) bool { return k.takesWorker() || k.endsClaims() }
	for _, next := range j.events[i+1:] {
		if tough(next.Kind) || !j.events[i].Kind.takesWorker() {
			return next.begin
		}
	}
	return trial.Never
}
