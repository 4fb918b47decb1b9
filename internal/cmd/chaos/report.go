package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// report is what a campaign has shown.
type report struct {
	links      *links // nil unless they were troubled
	locks      *lockReport
	seen       trial.Record
	requests   []*trial.Request
	verdicts   []verdict
	effects    []effect
	excused    []trial.Finding // late sends of a paused worker, refused by their token
	violations []string
	bad        map[string]string // keys whose history is not that of a counter
	operations int
	usage      [trial.Ways]trial.Used
	moves      [2]int // of a key between processes: all, and those of busy keys
	begin      time.Duration
}

// historyTimeout bounds what porcupine takes; a history that it cannot judge
// by then is a violation.
const historyTimeout = 2 * time.Minute

func newReport(cfg config, s *stage, d *director, l *trial.Load, stopped []error) *report {
	r := &report{seen: s.observer.Record(), requests: l.Requests()}
	for _, q := range r.requests {
		if r.begin == 0 || q.Send < r.begin {
			r.begin = q.Send
		}
	}
	r.links = s.links
	r.check(newJudge(cfg, d.events, r.seen, r.requests, s.links.cuts()), historyTimeout)
	r.violations = append(r.violations, d.failures()...)
	for _, err := range stopped {
		if err != nil {
			r.violations = append(r.violations, err.Error())
		}
	}
	for w, u := range r.usage {
		switch w := trial.Way(w); {
		case w.ReachesNobody() && u.Executed > 0:
			r.violations = append(r.violations, fmt.Sprintf("of %d requests of the kind %q %d were executed", u.Sent, w, u.Executed))
		case !w.ReachesNobody() && u.Executed == 0:
			r.violations = append(r.violations, fmt.Sprintf("of %d requests of the kind %q none was executed", u.Sent, w))
		}
	}
	if _, running, _ := s.observer.Counts(); running != 0 {
		r.violations = append(r.violations, fmt.Sprintf("%d executions run although everything has ended", running))
	}
	return r
}

// check draws the conclusions from what clients and observer have seen.
func (r *report) check(j *judge, timeout time.Duration) {
	ops, wrong := trial.Operations(r.requests, r.seen)
	r.operations = len(ops)
	r.usage = trial.Usage(r.requests, r.seen)
	for _, f := range slices.Concat(r.seen.Findings, wrong) {
		if j.excused(f) {
			r.excused = append(r.excused, f)
			continue
		}
		r.violations = append(r.violations, fmt.Sprintf("%.3fs %s of %s: %s", f.At.Seconds(), f.Kind, f.Key, f.Detail))
	}
	r.bad = trial.Linearizable(ops, timeout)
	for key, why := range r.bad {
		r.violations = append(r.violations, fmt.Sprintf("the history of %s is not that of a counter: %s", key, why))
	}
	for _, q := range r.requests {
		if q.OK() || q.Left() {
			continue
		}
		v := j.classify(q)
		r.verdicts = append(r.verdicts, v)
		if !v.allowed {
			r.violations = append(r.violations, fmt.Sprintf("%.3fs request %d for %s failed after %.3fs: %s (%s; %s)",
				q.Send.Seconds(), q.Number, q.Key, q.Took().Seconds(), v.cause, v.after(), q.Note))
		}
	}
	r.moves[0], r.moves[1] = j.moves()
	r.effects = j.effects(r.requests, r.verdicts)
	if len(ops) == 0 {
		r.violations = append(r.violations, "nothing was executed")
	}
}

func (v verdict) after() string {
	if v.event == nil {
		return "before any event"
	}
	return fmt.Sprintf("%s of %s at %.3fs", v.event.Kind, cmp.Or(v.event.process, "redis"), v.event.begin.Seconds())
}

// count returns how many findings of a kind there are, and how many of them
// are excused.
func (r *report) count(k trial.FindingKind) (all, excused int) {
	for _, f := range r.seen.Findings {
		if f.Kind == k {
			all++
		}
	}
	for _, f := range r.excused {
		if f.Kind == k {
			excused++
		}
	}
	return all, excused
}

func (r *report) print(out io.Writer) {
	fmt.Fprintln(out)
	r.printEvents(out)
	r.printRequests(out)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	defer w.Flush()
	for k := range trial.Kinds {
		all, excused := r.count(k)
		fmt.Fprintf(w, "%s\t%d", k, all-excused)
		if excused > 0 {
			fmt.Fprintf(w, ", and %d sent late by a worker that had been paused, refused for the token", excused)
		}
		fmt.Fprintln(w)
	}
	if r.links != nil {
		fmt.Fprintf(w, "links\t%v\n", r.links)
	}
	fmt.Fprintf(w, "keys moved\t%d times, %d times while a request ran and another one waited\n", r.moves[0], r.moves[1])
	r.locks.print(w)
	fmt.Fprintf(w, "histories\t%d operations of %d keys, %d keys not linearizable\n", r.operations, len(r.seen.Keys), len(r.bad))
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
	for _, cause := range sortedKeys(causes) {
		fmt.Fprintf(w, "%s\t%d\n", cause, causes[cause])
	}
	for i, u := range r.usage {
		if u.Sent > 0 {
			fmt.Fprintf(w, "%s\t%d sent, %d executed%s\n", trial.Way(i), u.Sent, u.Executed, u.Early())
		}
	}
	fmt.Fprintf(w, "executions\t%d\n", executions)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// maxPrinted bounds the violations that are printed; the file has all.
const maxPrinted = 20

// printViolations prints them and writes them to dir with what happened to
// their keys.
func (r *report) printViolations(out io.Writer, dir string) error {
	for i, v := range r.violations {
		if i == maxPrinted {
			fmt.Fprintf(out, "… and %d more\n", len(r.violations)-i)
			break
		}
		fmt.Fprintln(out, "VIOLATION:", v)
	}
	file := filepath.Join(dir, "violations.txt")
	fmt.Fprintln(out, "all of them, and the histories of their keys:", file)
	var b strings.Builder
	fmt.Fprintf(&b, "Times are seconds since the observer's start.\n\n%s\n", strings.Join(r.violations, "\n"))
	for _, e := range r.effects {
		fmt.Fprintf(&b, "%9.3f–%.3f %s %s\n", e.begin.Seconds(), e.end.Seconds(), e.act, e.process)
	}
	for _, key := range r.suspects() {
		r.dump(&b, key)
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// suspects are the keys of violations.
func (r *report) suspects() []string {
	keys := make(map[string]bool)
	for _, f := range r.seen.Findings {
		keys[f.Key] = true
	}
	for key := range r.bad {
		keys[key] = true
	}
	for _, v := range r.verdicts {
		if !v.allowed {
			keys[v.request.Key] = true
		}
	}
	return sortedKeys(keys)
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
