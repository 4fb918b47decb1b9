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
func linear(top, start, at float64, label func(float64) string) axis {
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
	a := axis{to: math.Ceil(top/step-1e-9) * step, start: start, at: at, label: label}
	for i := 0; float64(i)*step <= a.to*1.0001; i++ {
		a.ticks = append(a.ticks, float64(i)*step)
	}
	return a
}

// logarithmic is an axis with a tick for each power of ten.
func logarithmic(low, high, start, at float64, label func(float64) string) axis {
	if low <= 0 || high <= 0 {
		low, high = 1, 10
	}
	low, high = math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	a := axis{from: math.Pow(10, low), to: math.Pow(10, max(high, low+1)), start: start, at: at, log: true, label: label}
	for e := low; math.Pow(10, e) <= a.to*1.0001; e++ {
		a.ticks = append(a.ticks, math.Pow(10, e))
	}
	return a
}

func horizontal(f func(start, at float64) axis) axis {
	return f(marginLeft, chartWidth-marginRight)
}
func vertical(f func(start, at float64) axis) axis {
	return f(chartHeight-marginBottom, marginTop)
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

// dot is a point of a line; one whose y is 0 or less breaks the line.
type dot struct{ x, y float64 }

// line draws a contender's line.
func (c *canvas) line(i int, title string, x, y axis, dots []dot) {
	var path strings.Builder
	pen := "M%.1f %.1fh0" // a dot, unless a line follows
	for _, d := range dots {
		if d.y <= 0 && y.log {
			pen = "M%.1f %.1fh0"
			continue
		}
		fmt.Fprintf(&path, pen, x.position(d.x), y.position(d.y))
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
	x := horizontal(func(a, b float64) axis {
		return axis{to: math.Ceil(nines), start: a, at: b, label: percentile, ticks: upTo(math.Ceil(nines))}
	})
	y := vertical(func(a, b float64) axis { return logarithmic(low, high, a, b, latency) })
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

func upTo(n float64) (all []float64) {
	for i := 0.0; i <= n; i++ {
		all = append(all, i)
	}
	return all
}

// percentile names the percentile with a number of nines.
func percentile(nines float64) string {
	return fmt.Sprintf("%.*f %%", max(0, int(nines)-2), 100*(1-math.Pow(10, -nines)))
}

// amount is count without zeros that say nothing.
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
	x := horizontal(func(a, b float64) axis {
		return linear(end, a, b, func(v float64) string { return fmt.Sprintf("%g s", math.Round(v*100)/100) })
	})
	x.to = max(end, 1e-3)
	x.ticks = slices.DeleteFunc(x.ticks, func(t float64) bool { return t > x.to })
	y := vertical(func(a, b float64) axis { return linear(max(high, 5), a, b, label) })
	if log {
		y = vertical(func(a, b float64) axis { return logarithmic(low, high, a, b, label) })
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

// barHeight is that of a bar with its label above.
const barHeight = 38.0

// part is a piece of a bar.
type part struct {
	value float64
	class string
	title string
}

// bars draws a bar for each row.
func (s *Scene) bars(title string, value func(*Row) string, parts func(*Row) []part, whiskers func(*Row) (low, high float64)) template.HTML {
	var top float64
	for _, r := range s.Rows {
		sum := 0.0
		for _, p := range parts(r) {
			sum += p.value
		}
		_, high := whiskers(r)
		top = max(top, sum, high)
	}
	x := axis{to: max(top, 1e-9), start: 4, at: chartWidth - 14}
	c := new(canvas)
	for i, r := range s.Rows {
		y := float64(i) * barHeight
		c.add(`<g data-c="%d">`, r.Number)
		c.text(4, y+14, "bar", r.Title)
		c.text(chartWidth-14, y+14, "value end", value(r))
		at := 0.0
		for _, p := range parts(r) {
			from, to := x.position(at), x.position(at+p.value)
			c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="13" %s><title>%s</title></rect>`, from, y+19, max(to-from, 0.5), p.class, template.HTMLEscapeString(p.title))
			at += p.value
		}
		if low, high := whiskers(r); high > low {
			c.add(`<path class="whisker" d="M%.1f %.1fV%.1fM%.1f %.1fH%.1fM%.1f %.1fV%.1f"/>`,
				x.position(low), y+21.5, y+29.5, x.position(low), y+25.5, x.position(high), x.position(high), y+21.5, y+29.5)
		}
		c.add(`</g>`)
	}
	return c.done(float64(len(s.Rows))*barHeight+4, title+", "+s.Title)
}

func fill(color string) string { return fmt.Sprintf(`fill="%s"`, color) }

// throughput draws requests per second, with the least and the most of the
// rounds.
func (s *Scene) throughput() template.HTML {
	return s.bars("requests per second",
		func(r *Row) string {
			return count(r.Median(PerSecond)) + "/s · " + times(r.Over(s.Rows[0], PerSecond))
		},
		func(r *Row) []part {
			return []part{{r.Median(PerSecond), fill(colorOf(r.Number)), count(r.Median(PerSecond)) + " requests/s"}}
		},
		func(r *Row) (low, high float64) {
			v := r.Values(PerSecond)
			return slices.Min(v), slices.Max(v)
		})
}

// groups are the groups of processes, in the order in which a request meets
// them, with the classes of their colors.
var groups = [...]string{"front", "app", "store"}

// cost draws CPU time per request.
func (s *Scene) cost() template.HTML {
	return s.bars("CPU per request",
		func(r *Row) string { return micros(r.Median(CPU)) + " · " + times(r.Over(s.Rows[0], CPU)) },
		func(r *Row) (parts []part) {
			for _, g := range groups {
				v := r.Median(func(t Turn) float64 { return t.CPU[g] })
				parts = append(parts, part{v, fmt.Sprintf(`class="cpu-%s"`, g), g + ": " + micros(v)})
			}
			return parts
		},
		func(*Row) (low, high float64) { return 0, 0 })
}
