package main

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// outage is a stretch of time for which some partitions may be without an
// owner.
type outage struct{ begin, end time.Duration }

// outages returns the stretches by docs/guarantees.md, with those that touch
// each other as one. Each of these opens one that lasts for a TTL and slack, and
// for another TTL if no worker is there all that time: who has come meanwhile has
// to watch for a TTL of its own.
//
//   - A worker is killed or paused.
//   - Redis restarts: until it is over nobody claims what a worker had left, or
//     was about to hand over.
//
// If during the latter a worker starts, or goes on after a pause as a new
// incarnation, that opens another one: it claims nothing for a TTL of its own.
func outages(events []*event, ttl time.Duration) []outage {
	var all []outage
	open := func(begin, until time.Duration) { all = append(all, outage{begin, until + ttl + slack}) }
	for _, e := range events {
		if !e.Kind.takesWorker() && !e.Kind.endsClaims() {
			continue
		}
		until := e.begin
		if e.Kind.endsClaims() {
			until = e.end
		}
		if !witnessed(events, e.begin, until+ttl+slack) {
			until += ttl
		}
		open(e.begin, until)
	}
	quarantines := slices.DeleteFunc(slices.Clone(events), func(e *event) bool { return !e.Kind.endsClaims() })
	for _, e := range events {
		begin, end, ok := e.starts()
		if ok && slices.ContainsFunc(quarantines, func(q *event) bool { return begin <= q.end+ttl+slack && end >= q.begin }) {
			open(begin, end)
		}
	}
	slices.SortFunc(all, func(a, b outage) int { return cmp.Compare(a.begin, b.begin) })
	merged := all[:0]
	for _, o := range all {
		if n := len(merged); n > 0 && o.begin <= merged[n-1].end {
			merged[n-1].end = max(merged[n-1].end, o.end)
			continue
		}
		merged = append(merged, o)
	}
	return merged
}

// losses returns the stretches in which locks may be lost that the store keeps: it has restarted, maybe without
// what it kept, while their owner is dead or a partition is on its way. That shows when the partition is claimed, two TTLs
// later at the latest.
func losses(events []*event, ttl time.Duration) (all []outage) {
	for _, e := range events {
		if e.Kind.endsClaims() {
			all = append(all, outage{e.begin, e.end + 2*(ttl+slack)})
		}
	}
	return all
}

// starts returns between which moments a new incarnation begins by an event.
func (e *event) starts() (begin, end time.Duration, ok bool) {
	switch e.Kind {
	case join:
		return e.begin, e.begin, true
	case pause:
		return e.end, e.end, true
	case restart:
		return e.end, e.end + restartDelay, true
	}
	return 0, 0, false
}

// witnessed reports whether some incarnation is there all the time between two
// moments. Those of the first workers are there from the beginning.
func witnessed(events []*event, from, to time.Duration) bool {
	since := make(map[string]time.Duration) // by worker, those that are there
	for _, name := range firstWorkers() {
		since[name] = 0
	}
	for _, e := range events {
		if e.begin > to {
			break
		}
		if e.Worker == "" {
			continue
		}
		delete(since, e.Worker)
		if e.Kind == leave || e.Kind == kill {
			continue
		}
		_, since[e.Worker], _ = e.starts()
		if e.Kind == join {
			since[e.Worker] = e.end // ready
		}
	}
	for _, at := range since {
		if at <= from {
			return true
		}
	}
	return false
}

// heldInVain reports whether the router was right to give a request up: for as
// long as it holds one there was an outage, and since the key was last executed
// a worker has come, gone or been taken, or had not long before, so that the key
// was on its way to another owner. Otherwise its owner serves on, whatever
// happens to Redis.
func (j *judge) heldInVain(r *trial.Request) bool {
	if r.Status != http.StatusServiceUnavailable || !r.Retry || r.Took() < j.hold {
		return false
	}
	if !slices.ContainsFunc(j.outages, func(o outage) bool { return o.begin <= r.Recv-j.hold && r.Recv <= o.end }) {
		return false
	}
	last := time.Duration(0)
	if x := j.seen.LastRun(r.Key, r.Recv); x != nil {
		last = x.Begin
	}
	return slices.ContainsFunc(j.events, func(e *event) bool {
		return !e.Kind.endsClaims() && e.begin <= r.Recv && last <= e.end+j.ttl+slack
	})
}
