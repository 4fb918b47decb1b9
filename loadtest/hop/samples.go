//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/keyway-go/keyway/loadtest/internal/report"
)

// series are the values of a figure in each round.
type series []float64

func (s series) median() float64 { return report.Median(s) }

// over returns the ratios of the rounds, so that what slows a whole round down
// cancels out.
func (s series) over(base series) (ratios series) {
	for i := range min(len(s), len(base)) {
		if base[i] > 0 {
			ratios = append(ratios, s[i]/base[i])
		}
	}
	return ratios
}

// spread is the smallest and the largest value.
func (s series) spread() string {
	if len(s) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f–%.2f", slices.Min(s), slices.Max(s))
}

// figures are the series of a row by name.
type figures map[string]series

func (f figures) add(name string, value float64) { f[name] = append(f[name], value) }

// Names of figures.
const (
	perSecond  = "requests/s"
	bytesRate  = "bytes/s"
	p50        = "p50"
	p99        = "p99"
	cpuPer     = "CPU/request"
	failures   = "failed"
	proxyBusy  = "proxy busy"
	loadBusy   = "generator busy"
	originBusy = "upstreams busy"
)

// table prints rows under a title.
func table(w io.Writer, title string, rows [][]string) {
	fmt.Fprintf(w, "\n%s\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t\n", strings.Join(row, "\t"))
	}
	t.Flush()
}

func micros(ns float64) string { return fmt.Sprintf("%.1f µs", ns/1e3) }

func millis(ns float64) string {
	d := time.Duration(ns)
	return fmt.Sprintf("%.2f ms", d.Seconds()*1e3)
}

func times(ratios series) string {
	if len(ratios) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f ×", ratios.median())
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

func thousands(n float64) string {
	if n < 10_000 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.1f k", n/1e3)
}
