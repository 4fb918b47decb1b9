package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Colors of a terminal.
const (
	red   = "\x1b[31;1m"
	green = "\x1b[32m"
	plain = "\x1b[0m"
)

// Text writes the report: what changes for the reader, then tables, what went
// wrong first. Color is for a terminal.
func (r *Report) Text(w io.Writer, color bool) {
	paint := func(code, s string) string {
		if !color {
			return s
		}
		return code + s + plain
	}
	fmt.Fprintf(w, "%s\n\n", wrapped(r.Summary(), textWidth))
	r.matrix(w, paint)
	r.checks(w, paint)
	for _, s := range r.Scenes {
		s.table(w)
	}
	fmt.Fprintf(w, "\n%s, %d cores, %s, load %.1f before the run\n", r.Machine.CPU, r.Machine.Cores, r.Machine.System, r.Machine.Load)
	if text := r.NetworkText(); text != "" {
		fmt.Fprintln(w, wrapped(text, textWidth))
	}
	for _, warning := range r.Warnings {
		fmt.Fprintln(w, paint(red, "warning: ")+warning)
	}
}

func (r *Report) checks(w io.Writer, paint func(code, s string) string) {
	lines := [][]string{{"correctness", "answered", "executed", "overlaps", "lost updates", "token regressions", "overtaken", "not executed", ""}}
	codes := []string{""}
	var longest int
	for _, c := range r.Checks {
		longest = max(longest, len(c.Contender))
	}
	for _, c := range r.Checks {
		v := c.Resource
		lines = append(lines, []string{fmt.Sprintf("%-*s  %s", longest, c.Contender, c.Title), fmt.Sprint(c.Answered), fmt.Sprint(v.Executions + v.Reads), fmt.Sprint(v.Overlaps), fmt.Sprint(v.Lost),
			fmt.Sprint(v.Regressions), fmt.Sprint(v.Overtaken), fmt.Sprint(c.Missing), c.Verdict()})
		codes = append(codes, map[string]string{"bad": red, "good": green}[c.Class()])
	}
	for i, line := range strings.Split(strings.TrimSuffix(columns(lines), "\n"), "\n") {
		if codes[i] != "" {
			line = paint(codes[i], line)
		}
		fmt.Fprintln(w, line)
	}
}

func (s *Scene) table(w io.Writer) {
	if len(s.Rows) == 0 {
		return
	}
	base := s.Rows[0]
	lines := [][]string{{s.Title, "requests/s", "×", "p50", "p99", "×", "p99.9", "×", "wait p50", "wait p99",
		"CPU/request", "×", "front", "app", "store", "commands", "fairness", "failed", "generator"}}
	for _, r := range s.Rows {
		group := func(name string) string {
			return micros(r.Median(func(t Turn) float64 { return t.CPU[name] }))
		}
		lines = append(lines, []string{r.Contender, count(r.Median(PerSecond)), times(r.Over(base, PerSecond)), millis(r.Median(P50)),
			millis(r.Median(P99)), times(r.Over(base, P99)), millis(r.Median(P999)), times(r.Over(base, P999)),
			millis(r.Median(Wait50)), millis(r.Median(Wait99)),
			micros(r.Median(CPU)), times(r.Over(base, CPU)), group("front"), group("app"), group("store"),
			unknown(r.Median(Commands)), unknown(r.Median(Fairness)), fmt.Sprint(r.Failed()),
			fmt.Sprintf("%.0f %%", 100*r.Median(func(t Turn) float64 { return t.Generator }))})
	}
	fmt.Fprintf(w, "\n%s", columns(lines))
	if s.How != "" {
		fmt.Fprintf(w, "  %s\n", s.How)
	}
	for _, r := range s.Rows {
		for _, f := range r.Failures {
			fmt.Fprintf(w, "  %s: %d failed: %s\n", r.Contender, f.Count, f.Why)
		}
		for _, m := range r.Marks {
			fmt.Fprintf(w, "  %s: %s from %.1f s to %.1f s\n", r.Contender, m.What, m.At, m.Done)
		}
	}
}

// textWidth is that of lines of text.
const textWidth = 110

// wrapped breaks text into lines of a width, where it can.
func wrapped(text string, width int) string {
	var b strings.Builder
	at := 0
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case at == 0:
		case at+1+n > width:
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// columns aligns the first column to the left and all others to the right.
func columns(lines [][]string) string {
	var width int
	for _, line := range lines {
		width = max(width, utf8.RuneCountInString(line[0]))
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range lines {
		first := line[0] + strings.Repeat(" ", width-utf8.RuneCountInString(line[0]))
		fmt.Fprintf(t, "%s\t\n", strings.Join(append([]string{first}, line[1:]...), "\t"))
	}
	_ = t.Flush() // cannot fail
	return b.String()
}

func micros(us float64) string { return fmt.Sprintf("%.0f µs", us) }

func millis(ms float64) string {
	switch {
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}

func ratio(x float64) string {
	if x >= 0.1 {
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.3f", x)
}

func times(x float64) string {
	if x == 0 {
		return "–"
	}
	return ratio(x) + " ×"
}

func unknown(x float64) string {
	if x < 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", x)
}

func count(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.1f M", n/1e6)
	case n >= 10_000:
		return fmt.Sprintf("%.1f k", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}

// whole is a number with its thousands apart.
func whole(n int64) string {
	if n >= 1000 {
		return fmt.Sprintf("%s,%03d", whole(n/1000), n%1000)
	}
	return fmt.Sprint(n)
}

// Compare writes how a report differs from an earlier one: the ratio of each
// figure's medians, and whether the rounds agree on it.
func Compare(w io.Writer, before, after *Report) {
	if before.Machine.CPU != after.Machine.CPU || before.Machine.Cores != after.Machine.Cores {
		fmt.Fprintf(w, "different machines: %s with %d cores, and %s with %d\n", before.Machine.CPU, before.Machine.Cores, after.Machine.CPU, after.Machine.Cores)
	}
	if before.Settings != after.Settings {
		fmt.Fprintf(w, "different settings:\n  %+v\n  %+v\n", before.Settings, after.Settings)
	}
	for _, s := range after.Scenes {
		old := before.Scene(s.Name)
		if old == nil {
			continue
		}
		lines := [][]string{{s.Title, "requests/s", "", "×", "p99", "", "×", "CPU/request", "", "×"}}
		for _, r := range s.Rows {
			o := old.Row(r.Contender)
			if o == nil {
				continue
			}
			lines = append(lines, []string{r.Contender,
				count(o.Median(PerSecond)), count(r.Median(PerSecond)), change(o, r, PerSecond),
				millis(o.Median(P99)), millis(r.Median(P99)), change(o, r, P99),
				micros(o.Median(CPU)), micros(r.Median(CPU)), change(o, r, CPU)})
		}
		if len(lines) > 1 {
			fmt.Fprintf(w, "\n%s", columns(lines))
		}
	}
	fmt.Fprintln(w, "\n* the rounds agree: every value of one run is above every value of the other")
}

// change is the ratio of medians, with a star if the rounds agree on it.
func change(before, after *Row, f Figure) string {
	s := times(after.Over(before, f))
	x, y := before.Values(f), after.Values(f)
	if len(x) > 0 && len(y) > 0 && (slices.Min(x) > slices.Max(y) || slices.Max(x) < slices.Min(y)) {
		s += " *"
	}
	return s
}
