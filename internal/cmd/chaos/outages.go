package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// outage is a stretch of time for which some partitions may be without an
// owner.
type outage struct{ begin, end time.Duration }

// touches reports whether something lies within the outage, or a while later.
func (o outage) touches(begin, end, later time.Duration) bool {
	return o.begin <= end && begin <= o.end+later
}

// outages returns three kinds of stretches: keys may be without owners; the store may lose locks that it keeps; the
// machine was too busy. By docs/guarantees.md, each of these opens a stretch without owners, for a TTL and slack:
//
//   - A worker is killed or paused.
//   - The store restarts. Until that is over, nobody claims the partitions of a worker that has left or is leaving.
//   - A new incarnation begins meanwhile. It claims nothing for a TTL of its own.
//
// A store that has restarted, maybe without what it kept, has lost a lock if its owner is dead or its partition on its
// way. That shows when the partition is claimed, two TTLs later at the latest.
func outages(faults []*trial.Fault, ttl time.Duration) (without, forgotten, busy []outage) {
	whole := ttl + trial.Slack
	for _, f := range faults {
		switch {
		case f.Kind == trial.Starved:
			busy = append(busy, outage{f.Begin, f.End})
		case f.Kind.Ends:
			without = append(without, outage{f.Begin, f.End + whole})
			forgotten = append(forgotten, outage{f.Begin, f.End + 2*whole})
		case f.Kind.Takes:
			without = append(without, outage{f.Begin, f.Begin + whole})
		}
		starts := f.Begin + f.Lasts
		if f.Kind.Name == "add-worker" {
			starts = f.Begin
		}
		if f.Host != "" && !f.Kind.Ends && slices.ContainsFunc(faults, func(q *trial.Fault) bool {
			return q.Kind.Ends && starts <= q.End+whole && f.End >= q.Begin
		}) {
			without = append(without, outage{starts, f.End + whole})
		}
	}
	slices.SortFunc(without, func(a, b outage) int { return cmp.Compare(a.begin, b.begin) })
	merged := without[:0]
	for _, o := range without {
		if n := len(merged); n > 0 && o.begin <= merged[n-1].end {
			merged[n-1].end = max(merged[n-1].end, o.end)
			continue
		}
		merged = append(merged, o)
	}
	return merged, forgotten, busy
}
