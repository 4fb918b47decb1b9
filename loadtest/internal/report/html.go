package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
)

//go:embed report.html
var page string

// HTML writes the report as one page that needs nothing else.
func (r *Report) HTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"swatch": func(i int) template.CSS {
			if dashed(i) {
				return template.CSS(fmt.Sprintf("repeating-linear-gradient(90deg, %s 0 5px, transparent 5px 8px)", colorOf(i)))
			}
			return template.CSS(colorOf(i))
		},
		"times": times, "factor": factor, "whole": whole, "count": Count, "micros": micros, "join": strings.Join,
		"faulty": func(n int64, c Check) string {
			if n == 0 {
				return ""
			}
			return c.Class()
		},
	}).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, r)
}

// What the page calls.

// Charts are a scene's.
func (s *Scene) Charts() []Chart {
	if len(s.Rows) == 0 {
		return nil
	}
	all := []Chart{
		{"Latency distribution", "All rounds together.", s.distribution()},
		{"Throughput over time", "The last round.", s.overTime("requests/s", false, func(p Point) float64 { return p.PerSecond }, amount)},
		{"Latency over time", "The last round, p99 of each interval; no line where nothing was answered.", s.overTime("p99", true, func(p Point) float64 { return p.P99 }, latency)},
	}
	if slices.ContainsFunc(s.Rows, func(r *Row) bool { return r.Failed() > 0 }) {
		all = append(all, Chart{"Failures over time", "The last round, requests per interval.", s.overTime("failed", false, func(p Point) float64 { return float64(p.Failed) }, amount)})
	}
	return all
}

// Chart is a picture with a title.
type Chart struct {
	Title, Note string
	SVG         template.HTML
}

// Cells are a row of a scene's table.
func (s *Scene) Cells(r *Row) []string { return s.cells(r, figures) }

// VersionList are the versions as text, sorted.
func (r *Report) VersionList() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		all = append(all, name+" "+strings.TrimPrefix(r.Versions[name], name+" "))
	}
	return all
}

// Loop says what kind of load it was.
func (s Settings) Loop() string {
	if s.Rate > 0 {
		return fmt.Sprintf("open loop: %g requests/s are due over %d connections, latency counts from when a request is due", s.Rate, s.Clients)
	}
	return fmt.Sprintf("closed loop: %d clients, each sends a request when it has the answer to the last", s.Clients)
}

// Word says whether a contender was right in a row. Its class is good, bad or doubt.
type Word struct{ Class, Text string }

// Word is on the first screen, beside what the contender answered in a workload.
func (r *Report) Word(row *Row, c Check) Word {
	switch {
	case row.Judged.Faults() > 0:
		first, _, _ := strings.Cut(row.Judged.FaultText(), ", ") // the details say the rest
		return Word{"bad", "WRONG: " + first}
	case c.Caveat != "":
		return Word{"doubt", c.Caveat}
	case c.Faults() > 0:
		return Word{"doubt", "right here, WRONG elsewhere"}
	case row.Failed() > 0:
		return Word{"good", "right; " + whole(row.Failed()) + " failed"}
	}
	return Word{"good", "right"}
}

// Share is the width of a bar for a row's figure, beside the bars for the largest of that or of another one.
func (s *Scene) Share(r *Row, f, of Figure) string {
	most := 1e-9
	for _, row := range s.Rows {
		most = max(most, row.Median(of))
	}
	return fmt.Sprintf("%.1f%%", 100*r.Median(f)/most)
}
