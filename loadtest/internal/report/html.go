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
		"times": times, "whole": whole, "join": strings.Join,
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

// Bar is a row's CPU time per request.
type Bar struct {
	Title, Value string
	Number       int
	Parts        []Part
}

// Part is a piece of a [Bar].
type Part struct {
	Title, Group string
	Width        template.CSS
}

// Costs draw CPU time per request, by groups of processes in the order in which a request meets them.
func (s *Scene) Costs() (bars []Bar) {
	most := 1e-9
	for _, r := range s.Rows {
		most = max(most, r.Median(CPU))
	}
	for _, r := range s.Rows {
		b := Bar{Title: r.Title, Value: micros(r.Median(CPU)) + " · " + times(r.Over(s.Rows[0], CPU)), Number: r.Number}
		for i, f := range []Figure{FrontCPU, AppCPU, StoreCPU} {
			group := [...]string{"front", "app", "store"}[i]
			b.Parts = append(b.Parts, Part{group + ": " + micros(r.Median(f)), group, template.CSS(fmt.Sprintf("width: %.1f%%", 100*r.Median(f)/most))})
		}
		bars = append(bars, b)
	}
	return bars
}

// Line is a row of a scene's table, as text.
type Line struct {
	Title string
	Cells []string
	Bad   bool // its last cell, of failures
}

// Lines are a scene's table.
func (s *Scene) Lines() (lines []Line) {
	for _, r := range s.Rows {
		lines = append(lines, Line{r.Title, s.cells(r, figures), r.Failed() > 0})
	}
	return lines
}

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
