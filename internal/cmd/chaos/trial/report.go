package trial

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what a trial has shown.
type Report struct {
	*Judgement
	Faults []*Fault

	trial    *Trial
	begin    time.Duration
	requests []*Request
	seen     Record
	left     int             // requests that clients left
	executed int             // of these
	failed   int             // of the others
	allowed  int             // of these, by faults
	suspects map[string]bool // keys of violations
	late     time.Duration   // of this process, at most
	starved  []*Fault
}

// check compares what clients and the app have seen.
func (r *Report) check(seen Record) {
	r.seen, r.suspects = seen, make(map[string]bool)
	sent := make(map[int64]time.Duration)
	for _, q := range r.requests {
		sent[q.Number] = q.Send
	}
	r.Judgement = Judge(r.requests, seen, func(f Finding) (excused, beyond bool) {
		r.suspects[f.Key] = true
		for _, fault := range r.Faults {
			if fault.Excuses(f, sent, r.trial.TTL) {
				return true, fault.Kind.Beyond
			}
		}
		return false, false
	})
	for key := range r.Bad {
		r.suspects[key] = true
	}
	for _, q := range r.requests {
		if q.Left() {
			r.left++
			if r.ran(q) != "" {
				r.executed++
			}
		}
		if q.OK() || q.Left() {
			continue
		}
		r.failed++
		if r.allows(q) {
			r.allowed++
			continue
		}
		r.suspects[q.Key] = true
		r.Violate("%.3fs request %d for %s failed after %.3fs: status %d, ran at %q (%s)", q.Send.Seconds(), q.Number, q.Key, q.Took().Seconds(), q.Status, r.ran(q), q.Note)
	}
	if r.left > 0 && r.executed == 0 {
		r.Violate("none of %d requests that clients left was executed", r.left)
	}
}

// starving reports whether the machine was too busy while a fault lasted, so that
// it may have come to nothing.
func (r *Report) starving(f *Fault) bool {
	return slices.ContainsFunc(r.starved, func(s *Fault) bool { return s.Begin <= f.End && s.until(r.trial.TTL) >= f.Begin })
}

// doubtful returns for how long until now requests may have failed because the machine was too busy.
func (r *Report) doubtful(now time.Duration) (sum time.Duration) {
	var end time.Duration
	for _, s := range slices.SortedFunc(slices.Values(r.starved), func(a, b *Fault) int { return cmp.Compare(a.Begin, b.Begin) }) {
		until := min(s.until(r.trial.TTL), now)
		sum += max(0, until-max(end, s.Begin))
		end = max(end, until)
	}
	return sum
}

// ran returns the process at which a request was executed, or nothing.
func (r *Report) ran(q *Request) string {
	if x := r.seen.Requests[q.Number]; x != nil {
		return x.Worker
	}
	return ""
}

// allows reports whether a request may have failed.
func (r *Report) allows(q *Request) bool {
	ran := r.ran(q)
	return slices.ContainsFunc(r.Faults, func(f *Fault) bool { return f.allows(q, ran, r.trial.TTL) })
}

// Print prints the report. more prints further lines of a table.
func (r *Report) Print(more func(w io.Writer)) {
	ttl, now := r.trial.TTL, r.trial.Site.Observer.Now()
	w := tabwriter.NewWriter(r.trial.Out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "\nat\tlasted\tfault\trequests\tfailed\tlongest wait")
	for _, f := range r.Faults {
		text := strings.TrimSpace(fmt.Sprint(f.Kind.Name, " ", cmp.Or(f.Process, f.Host), " ", f.Note))
		if f.Kind.Cuts {
			text += ", " + f.Way.String()
		}
		fmt.Fprintf(w, "%.1fs\t%.1fs\t%s\t%s\n", (f.Begin - r.begin).Seconds(), (f.End - f.Begin).Seconds(), text,
			r.sum(func(q *Request) bool { return f.touches(q, ttl) }))
	}
	fmt.Fprintf(w, "\t\tquiet times\t%s\n\n", r.sum(func(q *Request) bool {
		return !slices.ContainsFunc(r.Faults, func(f *Fault) bool { return f.touches(q, ttl) })
	}))
	w.Flush()
	defer w.Flush()
	fmt.Fprintf(w, "requests\t%d in %.0fs, %d failed, of these %d that a fault allows\n", len(r.requests), (now - r.begin).Seconds(), r.failed, r.allowed)
	if r.left > 0 {
		fmt.Fprintf(w, "requests that clients left\t%d sent, %d executed\n", r.left, r.executed)
	}
	fmt.Fprintf(w, "faults\t%d\n", len(r.Faults)-len(r.starved))
	for k := range Kinds {
		fmt.Fprintf(w, "%s\t%d", k, r.Found[k]-r.Excused[k])
		if r.Excused[k] > 0 {
			fmt.Fprintf(w, ", and %d outside of the conditions", r.Excused[k])
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "histories\t%d operations of %d keys, %d keys not linearizable\n", r.Operations, len(r.seen.Keys), len(r.Bad))
	fmt.Fprintf(w, "this process\tlate by %v at most; %d times it was late by half a second, or another one waited for a CPU all the time; for that, requests may have failed in %.0f %% of the time\n",
		r.late.Round(time.Millisecond), len(r.starved), 100*r.doubtful(now).Seconds()/(now-r.begin).Seconds())
	more(w)
}

// sum says how many of the requests there were, how they failed, and how long the longest took.
func (r *Report) sum(of func(*Request) bool) string {
	sent, failed, longest := 0, make(map[int]int), time.Duration(0)
	for _, q := range r.requests {
		if q.Left() || !of(q) {
			continue
		}
		sent++
		longest = max(longest, q.Took())
		if !q.OK() {
			failed[q.Status]++
		}
	}
	return fmt.Sprintf("%d\t%s\t%.2fs", sent, statuses(failed), longest.Seconds())
}

// statuses lists failed requests by their status.
func statuses(failed map[int]int) string {
	var list []string
	for _, status := range slices.Sorted(maps.Keys(failed)) {
		name := fmt.Sprint(status)
		if status == NoAnswer {
			name = "no answer"
		}
		list = append(list, fmt.Sprintf("%d × %s", failed[status], name))
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}

// Verdict prints the violations, and returns an error if there are any. A file in dir has them all, with the
// histories of their keys.
func (r *Report) Verdict(dir string) error {
	var b strings.Builder
	fmt.Fprintln(&b, "\nTimes are seconds since the observer's start.")
	for _, f := range r.Faults {
		fmt.Fprintf(&b, "%9.3f–%.3f %v %s\n", f.Begin.Seconds(), f.End.Seconds(), f, f.Process)
	}
	for _, key := range slices.Sorted(maps.Keys(r.suspects)) {
		r.dump(&b, key)
	}
	return r.Judgement.Verdict(r.trial.Out, r.trial.Seed, dir, b.String())
}

// dump writes what clients and observer have seen of a key, in the order of
// time.
func (r *Report) dump(b *strings.Builder, key string) {
	lines := make(map[time.Duration][]string)
	add := func(at time.Duration, format string, args ...any) {
		lines[at] = append(lines[at], fmt.Sprintf(format, args...))
	}
	for _, q := range r.requests {
		if q.Key == key {
			add(q.Send, "client sends request %d", q.Number)
			add(q.Recv, "client of request %d has %d: value %d, token %d %s", q.Number, q.Status, q.Value, q.Token, q.Note)
		}
	}
	if c := r.seen.Keys[key]; c != nil {
		for _, x := range c.History {
			add(x.Begin, "  begin  %s, partition %d", x, x.Partition)
			add(x.End, "  end    %s: %s, value %d", x, x.Outcome, x.Value)
		}
	}
	fmt.Fprintf(b, "\n== %s\n", key)
	for _, at := range slices.Sorted(maps.Keys(lines)) {
		for _, line := range lines[at] {
			fmt.Fprintf(b, "%12.6f %s\n", at.Seconds(), line)
		}
	}
}

// Judgement is what a trial has shown.
type Judgement struct {
	Violations     []string
	Found, Excused [Kinds]int
	Operations     int
	Bad            map[string]string // keys whose history is not that of a counter, and why
}

// historyTimeout bounds what porcupine takes; a history that it cannot judge
// by then is a violation.
const historyTimeout = 2 * time.Minute

// Judge compares what clients and observer have seen. A finding is no violation if excuse says that
// it is excused; if it is also beyond, the history of its key is not judged.
func Judge(requests []*Request, seen Record, excuse func(Finding) (excused, beyond bool)) *Judgement {
	ops, wrong := Operations(requests, seen)
	j := &Judgement{Operations: len(ops), Bad: Linearizable(ops, historyTimeout)}
	outside := make(map[string]bool) // keys
	for _, f := range slices.Concat(seen.Findings, wrong) {
		j.Found[f.Kind]++
		if excused, beyond := excuse(f); excused {
			j.Excused[f.Kind]++
			outside[f.Key] = outside[f.Key] || beyond
			continue
		}
		j.Violate("%.3fs %s of %s: %s", f.At.Seconds(), f.Kind, f.Key, f.Detail)
	}
	for key, why := range j.Bad {
		if !outside[key] {
			j.Violate("the history of %s is not that of a counter: %s", key, why)
		}
	}
	return j
}

// Violate notes that a promise was broken.
func (j *Judgement) Violate(format string, args ...any) {
	j.Violations = append(j.Violations, fmt.Sprintf(format, args...))
}

// printed is how many violations are printed; the file has them all.
const printed = 20

// Verdict prints the violations, and returns an error if there are any. A file in dir has them all, and more.
func (j *Judgement) Verdict(out io.Writer, seed int64, dir, more string) error {
	if len(j.Violations) == 0 {
		fmt.Fprintf(out, "no violation (seed %d)\n", seed)
		return nil
	}
	for _, v := range j.Violations[:min(len(j.Violations), printed)] {
		fmt.Fprintln(out, "VIOLATION:", v)
	}
	file := filepath.Join(dir, "violations.txt")
	err := os.WriteFile(file, []byte(strings.Join(j.Violations, "\n")+"\n"+more), 0o644)
	return errors.Join(err, fmt.Errorf("a promise was broken: %d violations (seed %d), see %s", len(j.Violations), seed, file))
}
