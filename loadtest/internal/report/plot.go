package report

import (
	"math"
	"strconv"
	"strings"
)

// Curve is a line of a [Plot] or a [PlotLinear].
type Curve struct {
	Title  string
	Points []dot // x, y: at least 0, and greater in a [Plot]
}

// plotStyle is what a file of its own needs of the page's style.
const plotStyle = `<style>
:root { --ink: #1d2733; --soft: #5c6b7a; --line: #dfe5eb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf0; --soft: #9aa8b5; --line: #323d48; } }
text { fill: var(--ink); font: 13px system-ui, sans-serif; } .tick, .axis { fill: var(--soft); font-size: 12px; } .end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: var(--line); } .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
</style>`

// Plot returns an SVG file with curves over logarithmic axes.
func Plot(title, xTitle, yTitle string, curves []Curve) string {
	return plot(title, xTitle, yTitle, curves, func(low, high float64) axis { return logarithmic(low, high, amount) })
}

// PlotLinear returns an SVG file with curves over linear axes from 0.
func PlotLinear(title, xTitle, yTitle string, curves []Curve) string {
	return plot(title, xTitle, yTitle, curves, func(_, high float64) axis {
		return linear(high, func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) })
	})
}

func plot(title, xTitle, yTitle string, curves []Curve, scale func(low, high float64) axis) string {
	low, high := [2]float64{math.Inf(1), math.Inf(1)}, [2]float64{}
	for _, l := range curves {
		for _, p := range l.Points {
			for i := range p {
				low[i], high[i] = min(low[i], p[i]), max(high[i], p[i])
			}
		}
	}
	x, y := scale(low[0], high[0]).across(), scale(low[1], high[1]).up()
	c := new(canvas)
	c.add(plotStyle)
	c.frame(x, y, xTitle, yTitle)
	for i, l := range curves {
		c.line(i, l.Title, x, y, l.Points)
		last := l.Points[len(l.Points)-1]
		c.text(x.position(last[0])-6, y.position(last[1])-8, "end", l.Title)
	}
	return strings.Replace(string(c.done(chartHeight, title)), "<svg ", `<svg xmlns="http://www.w3.org/2000/svg" `, 1)
}
