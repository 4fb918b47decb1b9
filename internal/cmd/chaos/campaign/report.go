package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/fabric"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// report is what a campaign has shown.
type report struct {
	cfg      config
	cast     *cast
	begin    time.Duration
	faults   []*fault
	requests []*trial.Request
	seen     trial.Record
	frames   fabric.Counts
	late     time.Duration // of this process, at most
	starved  []*fault

	*trial.Judgement
	failures []failure
}

// failure is a request that was not answered 200.
type failure struct {
	*trial.Request
	fault *fault // that allows it; nil: none does
}

// finish draws the conclusions; stopped is how the programs ended.
func (r *report) finish(loads []*trial.Load, stopped []error) {
	r.faults = append(r.faults, r.starved...)
	slices.SortFunc(r.faults, func(a, b *fault) int { return cmp.Compare(a.begin, b.begin) })
	r.seen, r.frames = r.cast.observer.Record(), r.cast.network.Counts()
	for _, l := range loads {
		r.requests = append(r.requests, l.Requests()...)
	}
	r.Judgement = trial.Judge(r.requests, r.seen, func(f trial.Finding) (excused, beyond bool) {
		excuse := r.excuse(f)
		return excuse != nil, excuse != nil && excuse.kind.beyond
	})
	for _, q := range r.requests {
		if q.OK() {
			continue
		}
		f := failure{q, r.allows(q)}
		r.failures = append(r.failures, f)
		if f.fault == nil {
			r.Violate("%.3fs request %d for %s failed after %.3fs: status %d, ran at %s (%s)", q.Send.Seconds(), q.Number, q.Key, q.Took().Seconds(), q.Status, r.ran(q), q.Note)
		}
	}
	for _, f := range r.faults {
		if f.err != nil && !r.starving(f) {
			r.Violate("%v at %.3fs: %v", f, f.begin.Seconds(), f.err)
		}
	}
	for _, death := range r.cast.lives.Deaths() {
		r.Violate("%s", death)
	}
	r.ViolateAll(stopped)
	if _, running, _ := r.cast.observer.Counts(); running != 0 || r.Operations == 0 {
		r.Violate("%d executions run although everything has ended, %d operations", running, r.Operations)
	}
}

// starving reports whether the machine was too busy while a fault lasted, so that
// it may have come to nothing.
func (r *report) starving(f *fault) bool {
	return slices.ContainsFunc(r.starved, func(s *fault) bool { return s.begin <= f.end && s.until(r.cfg.TTL) >= f.begin })
}

// ran returns the process at which a request was executed, or nothing.
func (r *report) ran(q *trial.Request) string {
	if x := r.seen.Requests[q.Number]; x != nil {
		return x.Worker
	}
	return "none"
}

// allows returns the fault for which a request may have failed, or nil.
func (r *report) allows(q *trial.Request) *fault {
	i := slices.IndexFunc(r.faults, func(f *fault) bool { return f.allows(q, r.ran(q), r.cfg.TTL) })
	if i < 0 {
		return nil
	}
	return r.faults[i]
}

// noticed is how long routers may take to notice that a process is dead, and to
// answer what was there.
const noticed = 500 * time.Millisecond

func (f *fault) allows(q *trial.Request, ran string, ttl time.Duration) bool {
	if !slices.Contains(f.kind.fails, q.Status) || q.Recv < f.begin || q.Send > f.until(ttl) {
		return false
	}
	switch {
	case !f.kind.ran || ran == f.process:
		return true
	case f.broke > 0:
		return ran == "none" && q.Recv <= f.broke+noticed
	}
	return false
}

// lateGrace is for a worker that was paused to notice that it was.
const lateGrace = 2 * time.Second

// excuse returns the fault for which a finding lies outside of what is promised,
// or nil. A worker that was stopped between its last check and the sending of a
// request sends it when it goes on: the token refuses it. A worker whose clock
// runs beyond the margin may overlap with others: its tokens are lower.
func (r *report) excuse(finding trial.Finding) *fault {
	late := finding.Late
	if late == nil {
		return nil
	}
	refused := late.Outcome == trial.Fenced
	for _, f := range r.faults {
		switch {
		case f.kind.late && refused && (finding.Kind == trial.Overlap || finding.Kind == trial.Regression):
			if late.Worker == f.process && r.sent(late.Request) <= f.begin && finding.At >= f.end && finding.At <= f.end+lateGrace {
				return f
			}
		case f.kind.beyond && finding.At >= f.begin && finding.At <= f.until(r.cfg.TTL):
			if finding.Kind == trial.Overlap || finding.Kind == trial.LostUpdate || finding.Kind == trial.Regression && refused && late.Worker == f.process {
				return f
			}
		}
	}
	return nil
}

func (r *report) sent(number int64) time.Duration {
	i := slices.IndexFunc(r.requests, func(q *trial.Request) bool { return q.Number == number })
	if i < 0 {
		return 1 << 62
	}
	return r.requests[i].Send
}

func (r *report) print(out io.Writer) {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "at\tlasted\tfault\trequests\tfailed\tlongest wait")
	for _, f := range r.faults {
		r.printFault(w, f)
	}
	sent, failed, longest := 0, make(map[int]int), time.Duration(0)
	for _, q := range r.requests {
		if !slices.ContainsFunc(r.faults, func(f *fault) bool { return f.touches(q, r.cfg.TTL) }) {
			sent++
			longest = max(longest, q.Took())
			if !q.OK() {
				failed[q.Status]++
			}
		}
	}
	fmt.Fprintf(w, "\t\tquiet times\t%d\t%s\t%.2fs\n", sent, statuses(failed), longest.Seconds())
	w.Flush()

	fmt.Fprintln(out)
	w = tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	defer w.Flush()
	allowed := 0
	for _, f := range r.failures {
		if f.fault != nil {
			allowed++
		}
	}
	fmt.Fprintf(w, "requests\t%d in %.0fs, %d failed, of these %d that a fault allows\n", len(r.requests), (r.cast.observer.Now() - r.begin).Seconds(), len(r.failures), allowed)
	planned := 0
	for _, f := range r.faults {
		if f.planned() {
			planned++
		}
	}
	fmt.Fprintf(w, "faults\t%d, %d of them planned moves\n", len(r.faults)-len(r.starved), planned)
	r.PrintFindings(w, "outside of the conditions")
	r.PrintHistories(w)
	fmt.Fprintf(w, "this process\tlate by %v at most, by half a second or more %d times\n", r.late.Round(time.Millisecond), len(r.starved))
	fmt.Fprintf(w, "frames\t%d forwarded, %d lost, %d duplicated, %d delayed\n", r.frames.Forwarded, r.frames.Lost, r.frames.Duplicated, r.frames.Delayed)
}

// touches reports whether a request was under way while a fault had an effect.
func (f *fault) touches(q *trial.Request, ttl time.Duration) bool {
	return q.Recv >= f.begin && q.Send <= f.until(ttl)
}

func (r *report) printFault(w io.Writer, f *fault) {
	sent, failed, longest := 0, make(map[int]int), time.Duration(0)
	for _, q := range r.requests {
		if f.touches(q, r.cfg.TTL) {
			sent++
			longest = max(longest, q.Took())
			if !q.OK() {
				failed[q.Status]++
			}
		}
	}
	text := strings.TrimSpace(fmt.Sprint(f.kind.name, " ", cmp.Or(f.process, f.host), " ", f.note))
	if strings.HasPrefix(f.kind.name, "cut-") || strings.HasPrefix(f.kind.name, "isolate-") {
		text += ", " + f.way.String()
	}
	fmt.Fprintf(w, "%.1fs\t%.1fs\t%s\t%d\t%s\t%.2fs\n", (f.begin - r.begin).Seconds(), (f.end - f.begin).Seconds(), text, sent, statuses(failed), longest.Seconds())
}

// statuses lists failed requests by their status.
func statuses(failed map[int]int) string {
	var list []string
	for _, status := range []int{noAnswer, 409, 429, 500, 502, 503, 504} {
		if n := failed[status]; n > 0 {
			name := fmt.Sprint(status)
			if status == noAnswer {
				name = "no answer"
			}
			list = append(list, fmt.Sprintf("%d × %s", n, name))
			delete(failed, status)
		}
	}
	for status, n := range failed {
		list = append(list, fmt.Sprintf("%d × %d", n, status))
	}
	if list == nil {
		return "none"
	}
	return strings.Join(list, ", ")
}
