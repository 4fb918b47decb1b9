package report

import (
	"fmt"
	"slices"
	"strings"
)

// Contenders of Keyway, by which the summary finds their rows.
const (
	Keyway  = "keyway"       // its router and workers with a handler
	Sidecar = "sidecar"      // its router and sidecars
	Batch   = "keyway-batch" // as Keyway, with a handler of batches
)

// Summary is the run in one sentence: what changes for who takes Keyway in place of the
// first contender, for better or worse, and which contender was wrong that ought not to be.
func (r *Report) Summary() string {
	return strings.Join(append([]string{r.gain()}, r.wrong()...), "; ") + "."
}

// gain compares Keyway with the baseline in the scene that says most.
func (r *Report) gain() string {
	s, row := r.telling(Keyway, Sidecar, Batch)
	if row == nil {
		return r.best()
	}
	base := s.Rows[0]
	b := new(strings.Builder)
	fmt.Fprintf(b, "%s %s ", capital(s.Where), name(row))
	if r.Settings.Rate > 0 {
		fmt.Fprintf(b, "had a p99.9 of %s, %s that of %s, at the same %s requests per second and %s the CPU for each",
			Millis(row.Median(P999)), factor(row.Over(base, P999)), base.Title, Count(r.Settings.Rate), factor(row.Over(base, CPU)))
	} else {
		fmt.Fprintf(b, "answered %s the requests of %s, at %s the CPU for each", factor(row.Over(base, PerSecond)), base.Title, factor(row.Over(base, CPU)))
	}
	if c := r.Check(row.Contender); c != nil && c.Faults() > 0 {
		fmt.Fprintf(b, ", but it was WRONG: %s", c.FaultText())
	}
	return b.String()
}

// telling returns the scene that says most about the first of the contenders
// that can be compared with another one, with its row: one hot key, or the
// first scene in which nobody comes or goes.
func (r *Report) telling(contenders ...string) (best *Scene, row *Row) {
	for _, contender := range contenders {
		for _, s := range r.Scenes {
			found := s.Row(contender)
			if found == nil || found == s.Rows[0] {
				continue
			}
			if best == nil || s.Name == "hot" || best.Changes && !s.Changes {
				best, row = s, found
			}
		}
		if row != nil {
			return best, row
		}
	}
	return nil, nil
}

// best is the sentence of a run in which Keyway is compared with nobody.
func (r *Report) best() string {
	for _, s := range r.Scenes {
		right := slices.DeleteFunc(slices.Clone(s.Rows), func(row *Row) bool {
			c := r.Check(row.Contender)
			return c != nil && c.Faults() > 0
		})
		if len(right) == 0 {
			continue
		}
		first := slices.MaxFunc(right, func(a, b *Row) int { return int(a.Median(PerSecond) - b.Median(PerSecond)) })
		text := fmt.Sprintf("%s %s answered %s requests per second", capital(s.Where), name(first), Count(first.Median(PerSecond)))
		if base := s.Rows[0]; first != base {
			text += fmt.Sprintf(", %s those of %s", factor(first.Over(base, PerSecond)), base.Title)
		}
		return text
	}
	return "Nobody was right"
}

// wrong says what was wrong with other contenders that ought to be right. The table has
// those whose caveat says that they may be wrong.
func (r *Report) wrong() (all []string) {
	subject := ""
	if _, row := r.telling(Keyway, Sidecar, Batch); row != nil {
		subject = row.Contender // the first part says it
	}
	for _, c := range r.Checks {
		if c.Faults() == 0 || c.Expected || c.Caveat != "" || c.Contender == subject {
			continue
		}
		text := c.Title + " was WRONG: " + c.FaultText()
		var where []string
		for _, s := range r.Scenes {
			if row := s.Row(c.Contender); row != nil && row.Judged.Faults() > 0 {
				where = append(where, s.Where)
			}
		}
		if len(where) > 0 {
			text += " " + strings.Join(where, " and ")
		}
		all = append(all, text)
	}
	for _, c := range r.Checks {
		if c.Expected && !c.OK() {
			all = append(all, "nothing was noticed of the lack of exclusion in "+c.Contender+", so that the rest proves nothing")
		}
	}
	return all
}

// name is what a row is called in the summary.
func name(r *Row) string {
	if r.Contender == Keyway {
		return "Keyway"
	}
	return r.Title
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// factor is a ratio in a sentence.
func factor(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f ×", x)
	case x >= 1:
		return fmt.Sprintf("%.1f ×", x)
	case x >= 0.1:
		return fmt.Sprintf("%.2f ×", x)
	}
	return fmt.Sprintf("%.2g ×", x)
}
