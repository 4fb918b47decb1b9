package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Series are the values of a figure, by round.
type Series []float64

// Median is 0 for no values.
func (s Series) Median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return (sorted[(len(s)-1)/2] + sorted[len(s)/2]) / 2
}

// Over returns the ratios of the rounds to those of another series, so that what slows a whole
// round down cancels out. Rounds whose other value is 0 are left out.
func (s Series) Over(base Series) (ratios Series) {
	for i := range min(len(s), len(base)) {
		if base[i] > 0 {
			ratios = append(ratios, s[i]/base[i])
		}
	}
	return ratios
}

// Spread is the smallest and the largest value in a format; "" for no values.
func (s Series) Spread(format string) string {
	if len(s) == 0 {
		return ""
	}
	return fmt.Sprintf(format+"–"+format, slices.Min(s), slices.Max(s))
}

// Times is the median of ratios.
func (s Series) Times() string {
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f ×", s.Median())
}

// Table writes lines of cells under a title, the first column to the left and all others to the right.
func Table(w io.Writer, title string, lines [][]string) {
	fmt.Fprintf(w, "\n%s\n%s", title, columns(lines))
}

// columns aligns the first column to the left and all others to the right.
func columns(lines [][]string) string {
	var width int
	for _, line := range lines {
		width = max(width, utf8.RuneCountInString(line[0]))
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range lines {
		first := line[0] + strings.Repeat(" ", width-utf8.RuneCountInString(line[0]))
		fmt.Fprintf(t, "%s\t\n", strings.Join(append([]string{first}, line[1:]...), "\t"))
	}
	_ = t.Flush() // cannot fail
	return b.String()
}

// Count is a number of three digits at least.
func Count(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.1f M", n/1e6)
	case n >= 10_000:
		return fmt.Sprintf("%.1f k", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}

// Millis is a time in milliseconds.
func Millis(ms float64) string {
	switch {
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}

// Percent is a share.
func Percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }
