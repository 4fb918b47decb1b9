package report

import (
	"fmt"
	"io"
	"strings"
)

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
