package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
)

// A chart's size and margins in units of its own.
const (
	chartWidth   = 640.0
	chartHeight  = 330.0
	marginLeft   = 66.0
	marginRight  = 30.0
	marginTop    = 22.0
	marginBottom = 44.0
)

// palette tells contenders apart; it begins anew, with dashes, after the last
// one.
var palette = [...]string{"#d1495b", "#2a78c8", "#e08e1b", "#1f9d7a", "#8357b8", "#8c6d46", "#d977a8", "#5b6b7a", "#a3a01e", "#38a9c4", "#b5501e", "#4b9f3a"}

// colorOf is the color of the contender with a number.
func colorOf(i int) string { return palette[i%len(palette)] }

func dashed(i int) bool { return i >= len(palette) }

// axis maps values to positions.
type axis struct {
	from, to  float64 // values
	start, at float64 // positions of from and to
	log       bool
	label     func(float64) string
	ticks     []float64
}

func (a axis) position(v float64) float64 {
	f := func(x float64) float64 { return x }
	if a.log {
		f = func(x float64) float64 { return math.Log10(max(x, a.from)) }
	}
	v = min(max(v, a.from), a.to)
	if f(a.to) == f(a.from) {
		return a.start
	}
	return a.start + (a.at-a.start)*(f(v)-f(a.from))/(f(a.to)-f(a.from))
}

// linear is an axis from 0 with round ticks.
func linear(top float64, label func(float64) string) axis {
	if top <= 0 {
		top = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(top)))
	for _, f := range []float64{0.1, 0.2, 0.25, 0.5, 1} {
		if top/(step*f) <= 6 {
			step *= f
			break
		}
	}
	a := axis{to: math.Ceil(top/step-1e-9) * step, label: label}
	for i := 0; float64(i)*step <= a.to*1.0001; i++ {
		a.ticks = append(a.ticks, float64(i)*step)
	}
	return a
}

// logarithmic is an axis with a tick for each power of ten.
func logarithmic(low, high float64, label func(float64) string) axis {
	if low <= 0 || high <= 0 {
		low, high = 1, 10
	}
	low, high = math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	a := axis{from: math.Pow(10, low), to: math.Pow(10, max(high, low+1)), log: true, label: label}
	for e := low; math.Pow(10, e) <= a.to*1.0001; e++ {
		a.ticks = append(a.ticks, math.Pow(10, e))
	}
	return a
}

// across lays an axis from left to right, and up from the bottom to the top.
func (a axis) across() axis {
	a.start, a.at = marginLeft, chartWidth-marginRight
	return a
}

func (a axis) up() axis {
	a.start, a.at = chartHeight-marginBottom, marginTop
	return a
}

// canvas is an SVG in the making.
type canvas struct{ b strings.Builder }

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.b, format, args...) }

func (c *canvas) text(x, y float64, class, s string) {
	c.add(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, template.HTMLEscapeString(s))
}

// done wraps the SVG up.
func (c *canvas) done(height float64, title string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">%s</svg>`, chartWidth, height, template.HTMLEscapeString(title), c.b.String()))
}

// frame draws the axes.
func (c *canvas) frame(x, y axis, xTitle, yTitle string) {
	for _, t := range y.ticks {
		p := y.position(t)
		c.add(`<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, marginLeft, chartWidth-marginRight, p, p)
		c.text(marginLeft-8, p+4, "tick end", y.label(t))
	}
	for _, t := range x.ticks {
		p := x.position(t)
		c.add(`<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, p, p, marginTop, chartHeight-marginBottom)
		c.text(p, chartHeight-marginBottom+18, "tick middle", x.label(t))
	}
	c.text((marginLeft+chartWidth-marginRight)/2, chartHeight-6, "axis middle", xTitle)
	c.text(6, 12, "axis", yTitle)
}

// dot is x and y of a point of a line.
type dot = [2]float64

// line draws a contender's line. Over a logarithmic axis a dot whose y is 0 or less breaks it.
func (c *canvas) line(i int, title string, x, y axis, dots []dot) {
	var path strings.Builder
	pen := "M%.1f %.1fh0" // a dot, unless a line follows
	for _, d := range dots {
		if d[1] <= 0 && y.log {
			pen = "M%.1f %.1fh0"
			continue
		}
		fmt.Fprintf(&path, pen, x.position(d[0]), y.position(d[1]))
		pen = "L%.1f %.1f"
	}
	if path.Len() == 0 {
		return
	}
	class := "line"
	if dashed(i) {
		class += " dashed"
	}
	c.add(`<path data-c="%d" class="%s" stroke="%s" d="%s"><title>%s</title></path>`, i, class, colorOf(i), path.String(), template.HTMLEscapeString(title))
}

// distribution draws latencies over quantiles, each nine as wide as the one
// before.
func (s *Scene) distribution() template.HTML {
	low, high, nines := math.Inf(1), 0.0, 1.0
	for _, r := range s.Rows {
		for _, q := range r.Quantiles {
			if q.Millis > 0 {
				low, high = min(low, q.Millis), max(high, q.Millis)
			}
			nines = max(nines, -math.Log10(1-q.Quantile))
		}
	}
	x := axis{to: math.Ceil(nines), label: percentile}.across()
	for i := range int(x.to) + 1 {
		x.ticks = append(x.ticks, float64(i))
	}
	y := logarithmic(low, high, latency).up()
	c := new(canvas)
	c.frame(x, y, "percentile of requests", "latency")
	for _, r := range s.Rows {
		var dots []dot
		for _, q := range r.Quantiles {
			dots = append(dots, dot{-math.Log10(1 - q.Quantile), q.Millis})
		}
		c.line(r.Number, r.Title, x, y, dots)
	}
	return c.done(chartHeight, "latency distribution, "+s.Title)
}

// percentile names the percentile with a number of nines.
func percentile(nines float64) string {
	return fmt.Sprintf("%.*f %%", max(0, int(nines)-2), 100*(1-math.Pow(10, -nines)))
}

// amount is [Count] without zeros that say nothing.
func amount(n float64) string {
	if n < 10_000 {
		return fmt.Sprintf("%g", n)
	}
	return fmt.Sprintf("%g k", n/1e3)
}

func latency(ms float64) string {
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%g s", ms/1000)
	case ms < 1:
		return fmt.Sprintf("%g µs", math.Round(ms*1000))
	}
	return fmt.Sprintf("%g ms", ms)
}

// overTime draws a figure of the last round's intervals, and what was made
// happen.
func (s *Scene) overTime(title string, log bool, value func(Point) float64, label func(float64) string) template.HTML {
	var end, high float64
	low := math.Inf(1)
	for _, r := range s.Rows {
		for _, p := range r.Series {
			end, high = max(end, p.At), max(high, value(p))
			if value(p) > 0 {
				low = min(low, value(p))
			}
		}
	}
	x := linear(end, func(v float64) string { return fmt.Sprintf("%g s", math.Round(v*100)/100) }).across()
	x.to = max(end, 1e-3)
	x.ticks = slices.DeleteFunc(x.ticks, func(t float64) bool { return t > x.to })
	y := linear(max(high, 5), label).up()
	if log {
		y = logarithmic(low, high, label).up()
	}
	c := new(canvas)
	c.frame(x, y, "time", title)
	c.marks(s.marks(), x)
	for _, r := range s.Rows {
		var dots []dot
		for _, p := range r.Series {
			dots = append(dots, dot{p.At, value(p)})
		}
		c.line(r.Number, r.Title, x, y, dots)
	}
	return c.done(chartHeight, title+" over time, "+s.Title)
}

// marks are the first row's that has any: they happen at the same times in all.
func (s *Scene) marks() []Mark {
	for _, r := range s.Rows {
		if len(r.Marks) > 0 {
			return r.Marks
		}
	}
	return nil
}

func (c *canvas) marks(marks []Mark, x axis) {
	for i, m := range marks {
		p := x.position(m.At)
		if m.Done-m.At > 0.2 {
			c.add(`<rect class="while" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, p, marginTop, x.position(m.Done)-p, chartHeight-marginTop-marginBottom)
		}
		c.add(`<line class="mark" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, p, p, marginTop, chartHeight-marginBottom)
		c.text(p+4, marginTop+12+float64(i%3)*13, "marked", m.What)
	}
}
