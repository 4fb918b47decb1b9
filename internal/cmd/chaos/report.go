package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// report is what a campaign has shown.
type report struct {
	*trial.Judgement
	links    *links // nil unless they were troubled
	locks    *lockReport
	seen     trial.Record
	requests []*trial.Request
	verdicts []verdict
	effects  []effect
	usage    [trial.Ways]trial.Used
	moves    [2]int // of a key between processes: all, and those of busy keys
	begin    time.Duration
}

func newReport(cfg config, s *stage, d *director, l *trial.Load, stopped []error) *report {
	r := &report{seen: s.observer.Record(), requests: l.Requests()}
	for _, q := range r.requests {
		if r.begin == 0 || q.Send < r.begin {
			r.begin = q.Send
		}
	}
	r.links = s.links
	r.check(newJudge(cfg, d.events, r.seen, r.requests, s.links.cuts()))
	r.Violations = append(r.Violations, d.failures()...)
	r.ViolateAll(stopped)
	for w, u := range r.usage {
		switch w := trial.Way(w); {
		case cfg.Doors && u.Sent == 0:
		case w.ReachesNobody() && u.Executed > 0:
			r.Violate("of %d requests of the kind %q %d were executed", u.Sent, w, u.Executed)
		case !w.ReachesNobody() && u.Executed == 0:
			r.Violate("of %d requests of the kind %q none was executed", u.Sent, w)
		}
	}
	if _, running, _ := s.observer.Counts(); running != 0 {
		r.Violate("%d executions run although everything has ended", running)
	}
	return r
}

// check draws the conclusions from what clients and observer have seen. Excused are late sends of a paused worker, refused
// by their token.
func (r *report) check(j *judge) {
	r.Judgement = trial.Judge(r.requests, r.seen, func(f trial.Finding) (excused, beyond bool) { return j.excused(f), false })
	r.usage = trial.Usage(r.requests, r.seen)
	for _, q := range r.requests {
		if q.OK() || q.Left() {
			continue
		}
		v := j.classify(q)
		r.verdicts = append(r.verdicts, v)
		if !v.allowed {
			r.Violate("%.3fs request %d for %s failed after %.3fs: %s (%s; %s)", q.Send.Seconds(), q.Number, q.Key, q.Took().Seconds(), v.cause, v.after(), q.Note)
		}
	}
	r.moves[0], r.moves[1] = j.moves()
	r.effects = j.effects(r.requests, r.verdicts)
	if r.Operations == 0 {
		r.Violate("nothing was executed")
	}
}

func (v verdict) after() string {
	if v.event == nil {
		return "before any event"
	}
	return fmt.Sprintf("%s of %s at %.3fs", v.event.Kind, cmp.Or(v.event.process, "redis"), v.event.begin.Seconds())
}

func (r *report) print(out io.Writer) {
	fmt.Fprintln(out)
	r.printEvents(out)
	r.printRequests(out)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	defer w.Flush()
	r.PrintFindings(w, "sent late by a worker that had been paused, refused for the token")
	if r.links != nil {
		fmt.Fprintf(w, "links\t%v\n", r.links)
	}
	fmt.Fprintf(w, "keys moved\t%d times, %d times while a request ran and another one waited\n", r.moves[0], r.moves[1])
	r.locks.print(w)
	r.PrintHistories(w)
}

func (r *report) printEvents(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "at\tevent\tlasted\tfailed\tallowed\tslowest request\tall served again after")
	for _, e := range r.effects {
		served := "at once"
		if e.served > 0 {
			served = fmt.Sprintf("%.2fs", e.served.Seconds())
		}
		fmt.Fprintf(w, "%.2fs\t%s\t%.2fs\t%d\t%d\t%.2fs\t%s\n", (e.begin - r.begin).Seconds(), e.act, (e.end - e.begin).Seconds(),
			e.failed, e.allowed, e.slowest.Seconds(), served)
	}
	fmt.Fprintln(w)
}

func (r *report) printRequests(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	defer w.Flush()
	ok, left, causes := 0, 0, make(map[string]int)
	for _, q := range r.requests {
		switch {
		case q.Left():
			left++
		case q.OK():
			ok++
		}
	}
	for _, v := range r.verdicts {
		allowed := "VIOLATION"
		if v.allowed {
			allowed = "allowed"
		}
		causes[fmt.Sprintf("  %d %s (%s)", v.request.Status, v.cause, allowed)]++
	}
	executions := 0
	for _, c := range r.seen.Keys {
		executions += len(c.History)
	}
	fmt.Fprintf(w, "requests\t%d\n200\t%d\nfailed\t%d\n", len(r.requests), ok, len(r.requests)-ok-left)
	for _, cause := range slices.Sorted(maps.Keys(causes)) {
		fmt.Fprintf(w, "%s\t%d\n", cause, causes[cause])
	}
	for i, u := range r.usage {
		if u.Sent > 0 {
			fmt.Fprintf(w, "%s\t%d sent, %d executed%s\n", trial.Way(i), u.Sent, u.Executed, u.Early())
		}
	}
	fmt.Fprintf(w, "executions\t%d\n", executions)
}

// histories are what happened to the keys of violations.
func (r *report) histories() string {
	var b strings.Builder
	fmt.Fprintln(&b, "\nTimes are seconds since the observer's start.")
	for _, e := range r.effects {
		fmt.Fprintf(&b, "%9.3f–%.3f %s %s\n", e.begin.Seconds(), e.end.Seconds(), e.act, e.process)
	}
	for _, key := range r.suspects() {
		r.dump(&b, key)
	}
	return b.String()
}

// suspects are the keys of violations.
func (r *report) suspects() []string {
	keys := make(map[string]bool)
	for _, f := range r.seen.Findings {
		keys[f.Key] = true
	}
	for key := range r.Bad {
		keys[key] = true
	}
	for _, v := range r.verdicts {
		if !v.allowed {
			keys[v.request.Key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// dump writes what clients and observer have seen of a key, in the order of
// time.
func (r *report) dump(b *strings.Builder, key string) {
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	for _, q := range r.requests {
		if q.Key == key {
			lines = append(lines, line{q.Send, fmt.Sprintf("client sends request %d", q.Number)},
				line{q.Recv, fmt.Sprintf("client of request %d has %d: value %d, token %d %s", q.Number, q.Status, q.Value, q.Token, q.Note)})
		}
	}
	if c := r.seen.Keys[key]; c != nil {
		for _, x := range c.History {
			lines = append(lines, line{x.Begin, fmt.Sprintf("  begin  %s, partition %d", x, x.Partition)},
				line{x.End, fmt.Sprintf("  end    %s: %s, value %d", x, x.Outcome, x.Value)})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	fmt.Fprintf(b, "\n== %s\n", key)
	for _, l := range lines {
		fmt.Fprintf(b, "%12.6f %s\n", l.at.Seconds(), l.text)
	}
}
