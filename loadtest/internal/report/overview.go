package report

import (
	"fmt"
	"html/template"
	"io"
	"strings"
)

// Panel is a workload in the overview.
type Panel struct {
	Title string
	Cells []Cell // of all contenders, in the same order in each panel
}

// Cell is a contender in a panel. One that did not take part has only a title.
type Cell struct {
	Title  string
	Number int
	Ran    bool
	Rate   string       // answers per second
	Times  string       // the first row's
	Bar    template.CSS // width
	Class  string       // of Word: good, bad or doubt
	Word   string       // whether it was right
}

// Overview is the chart of the first screen: what each contender answered in
// each workload, and whether it was right.
func (r *Report) Overview() (panels []Panel) {
	for _, s := range r.Scenes {
		p := Panel{Title: s.Title}
		for i, c := range r.Checks {
			cell := Cell{Title: c.Title, Number: i}
			if row := s.Row(c.Contender); row != nil {
				cell.Ran = true
				cell.Rate, cell.Times = Count(row.Median(PerSecond))+"/s", factor(row.Over(s.Rows[0], PerSecond))
				cell.Bar = template.CSS(fmt.Sprintf("width: %.1f%%", 100*row.Median(PerSecond)/s.most()))
				cell.Class, cell.Word = r.word(row, c)
			}
			p.Cells = append(p.Cells, cell)
		}
		panels = append(panels, p)
	}
	return panels
}

// most is the highest rate of all rows; never 0.
func (s *Scene) most() float64 {
	top := 1e-9
	for _, row := range s.Rows {
		top = max(top, row.Median(PerSecond))
	}
	return top
}

// word says whether a contender was right in a row, with the class of the
// words.
func (r *Report) word(row *Row, c Check) (class, text string) {
	switch {
	case row.Judged.Faults() > 0:
		first, _, _ := strings.Cut(row.Judged.FaultText(), ", ") // the details say the rest
		return "bad", "WRONG: " + first
	case c.Caveat != "":
		return "doubt", c.Caveat
	case c.Faults() > 0:
		return "doubt", "right here, WRONG elsewhere"
	case row.Failed() > 0:
		return "good", "right; " + whole(row.Failed()) + " failed"
	}
	return "good", "right"
}

// matrix writes the overview as a table.
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
