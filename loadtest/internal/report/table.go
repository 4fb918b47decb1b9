package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
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
	for _, warning := range r.Warnings {
		fmt.Fprintln(w, paint(red, "warning: ")+warning)
	}
}

// matrix writes what each contender answered in each workload as a table.
func (r *Report) matrix(w io.Writer, paint func(code, s string) string) {
	lines := [][]string{{"requests/s, × the first"}}
	for _, s := range r.Scenes {
		lines[0] = append(lines[0], s.Name+"      ")
	}
	for _, c := range r.Checks {
		line := []string{c.Contender}
		for _, s := range r.Scenes {
			var text string
			if row := s.Row(c.Contender); row != nil {
				text = fmt.Sprintf("%s %8s      ", Count(row.Median(PerSecond)), factor(row.Over(s.Rows[0], PerSecond)))
				if row.Judged.Faults() > 0 {
					text = strings.TrimRight(text, " ") + " WRONG"
				}
			}
			line = append(line, text)
		}
		lines = append(lines, line)
	}
	fmt.Fprintln(w, strings.ReplaceAll(columns(lines), "WRONG", paint(red, "WRONG")))
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
		lines = append(lines, []string{fmt.Sprintf("%-*s  %s", longest, c.Contender, c.Title), fmt.Sprint(c.Answered), fmt.Sprint(v.Executions), fmt.Sprint(v.Overlaps), fmt.Sprint(v.Lost),
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
	all := slices.Concat(figures, drawn)
	lines := [][]string{append([]string{s.Title}, heads(all)...)}
	for _, r := range s.Rows {
		lines = append(lines, append([]string{r.Contender}, s.cells(r, all)...))
	}
	fmt.Fprintf(w, "\n%s", columns(lines))
	if s.How != "" {
		fmt.Fprintf(w, "  %s\n", s.How)
	}
	for _, r := range s.Rows {
		for _, why := range slices.Sorted(maps.Keys(r.Failures)) {
			fmt.Fprintf(w, "  %s: %d failed: %s\n", r.Contender, r.Failures[why], why)
		}
		for _, m := range r.Marks {
			fmt.Fprintf(w, "  %s: %s from %.1f s to %.1f s\n", r.Contender, m.What, m.At, m.Done)
		}
	}
}

// column is a figure of each row, and what it is over the first row's.
type column struct {
	head string
	cell func(r, base *Row) string
}

// figures are the columns of a scene's table; drawn are those that the page has as a picture instead.
var figures = []column{
	{"requests/s", shown(PerSecond, Count)}, {"×", over(PerSecond)},
	{"p50", shown(P50, Millis)}, {"p99", shown(P99, Millis)}, {"×", over(P99)}, {"p99.9", shown(P999, Millis)}, {"×", over(P999)},
	{"CPU/request", shown(CPU, micros)}, {"×", over(CPU)},
	{"commands", shown(Commands, unknown)}, {"fairness", shown(Fairness, unknown)}, {"generator", shown(Generator, Percent)},
	{"failed", func(r, _ *Row) string { return whole(r.Failed()) }},
}

var drawn = []column{{"front", shown(FrontCPU, micros)}, {"app", shown(AppCPU, micros)}, {"store", shown(StoreCPU, micros)}}

func shown(f Figure, form func(float64) string) func(r, base *Row) string {
	return func(r, _ *Row) string { return form(r.Median(f)) }
}

func over(f Figure) func(r, base *Row) string {
	return func(r, base *Row) string { return times(r.Over(base, f)) }
}

// Columns are the heads of a scene's table but the first.
func (s *Scene) Columns() []string { return heads(figures) }

func heads(columns []column) (all []string) {
	for _, c := range columns {
		all = append(all, c.head)
	}
	return all
}

func (s *Scene) cells(r *Row, columns []column) (all []string) {
	for _, c := range columns {
		all = append(all, c.cell(r, s.Rows[0]))
	}
	return all
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

func micros(us float64) string { return fmt.Sprintf("%.0f µs", us) }

func times(x float64) string {
	switch {
	case x == 0:
		return "–"
	case x >= 0.1:
		return fmt.Sprintf("%.2f ×", x)
	}
	return fmt.Sprintf("%.3f ×", x)
}

func unknown(x float64) string {
	if x < 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", x)
}

// whole is a number with its thousands apart.
func whole(n int64) string {
	if n >= 1000 {
		return fmt.Sprintf("%s,%03d", whole(n/1000), n%1000)
	}
	return fmt.Sprint(n)
}
