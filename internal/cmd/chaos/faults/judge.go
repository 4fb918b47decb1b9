package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// stalled is how long a key that is asked for is not served until it counts as stalled.
const stalled = 500 * time.Millisecond

// cell is what clients and the app have seen of a fault, once or several times.
type cell struct {
	requests, failed int
	longest          []time.Duration // that a key was not served, less the app's work; one for each time
	stalled          int             // keys
	doubles          int
	regressions      int
	refused          int // sent late by the paused worker, and refused for their tokens, as docs/guarantees.md says
	details          []string
}

// judge compares what clients and the app have seen. paused is the pause of a worker, if there was one.
func judge(requests []*trial.Request, seen trial.Record, paused *trial.Fault) (c cell) {
	c.requests = len(requests)
	byKey, sent := make(map[string][]*trial.Request), make(map[int64]time.Duration)
	statuses := make(map[string]int)
	for _, r := range requests {
		byKey[r.Key] = append(byKey[r.Key], r)
		sent[r.Number] = r.Send
		if !r.OK() {
			c.failed++
			statuses[fmt.Sprintf("status %d %.60s", r.Status, r.Note)]++
		}
	}
	var longest time.Duration
	var worst string // key
	longer := make(map[time.Duration]int)
	for key, all := range byKey {
		d := stall(all)
		for _, than := range []time.Duration{stalled, time.Second, 2 * time.Second, 5 * time.Second} {
			if d > than {
				longer[than]++
			}
		}
		if d > longest {
			longest, worst = d, key
		}
	}
	c.longest, c.stalled = []time.Duration{longest}, longer[stalled]
	j := trial.Judge(requests, seen, func(f trial.Finding) (excused, beyond bool) {
		return paused != nil && paused.Excuses(f, sent, 0), false
	})
	c.regressions = j.Found[trial.Regression] - j.Excused[trial.Regression]
	c.doubles = len(j.Violations) - c.regressions
	for _, n := range j.Excused {
		c.refused += n
	}
	c.details = append(j.Violations, fmt.Sprint("requests that failed ", statuses), fmt.Sprintf("longest stall %.3f s, of %s; keys that stalled for longer than %v", longest.Seconds(), worst, longer))
	return c
}

// stall returns the longest time from a request for a key to the next success of any request for it, less the app's work
// on that. all are the key's requests.
func stall(all []*trial.Request) (longest time.Duration) {
	slices.SortFunc(all, func(a, b *trial.Request) int { return cmp.Compare(a.Recv, b.Recv) })
	asked := make([]time.Duration, len(all)) // the earliest that this one, or any that ended later, was sent
	first := trial.Never
	for i, r := range slices.Backward(all) {
		first = min(first, r.Send)
		asked[i] = first
	}
	served, next := time.Duration(0), 0 // when the key was served last, and what ended first after that
	for i, r := range all {
		if last := i == len(all)-1; r.OK() || last {
			d := r.Recv - max(served, asked[next])
			if r.OK() {
				d -= r.Work
			}
			longest = max(longest, d)
			served, next = r.Recv, i+1
		}
	}
	return longest
}

// add adds what was seen another time.
func (c *cell) add(other cell) {
	c.requests += other.requests
	c.failed += other.failed
	c.longest = append(c.longest, other.longest...)
	c.stalled += other.stalled
	c.doubles += other.doubles
	c.regressions += other.regressions
	c.refused += other.refused
}

// verdict returns the cells of a line, and an error if something happened that must not.
func (c cell) verdict() (text string, err error) {
	regressions := fmt.Sprint(c.regressions)
	if c.refused > 0 {
		regressions += fmt.Sprintf(" (%d late, refused)", c.refused)
	}
	if c.doubles > 0 || c.regressions > 0 {
		err = errViolated
	}
	slices.Sort(c.longest)
	n := len(c.longest)
	longest := fmt.Sprintf("%.2f s", c.longest[n-1].Seconds())
	if n > 1 {
		longest = fmt.Sprintf("p50 %.2f s, p99 %.2f s of %d", c.longest[(n-1)/2].Seconds(), c.longest[(99*n+99)/100-1].Seconds(), n)
	}
	return fmt.Sprintf("%d of %d | %s | %d | %d | %s |", c.failed, c.requests, longest, c.stalled, c.doubles, regressions), err
}
