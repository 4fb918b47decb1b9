package growth

import (
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/loadtest/internal/report"
)

var (
	most = flag.Int("most", 10, "how many workers the largest cluster has")
	plot = flag.String("plot", "", "file for the plot; none by default")
)

// TestGrowth prints the table of docs/scale.md, and writes its plot.
func TestGrowth(t *testing.T) {
	idle := report.Curve{Title: "idle, in a second"}
	start := report.Curve{Title: "a start"}
	var table strings.Builder
	for _, n := range []int{3, 10, 30, 100, 300, 1000} {
		if n > *most {
			break
		}
		g := site.Grow(t, n)
		perSecond, started := g.Idle.All()/site.Idle.Seconds(), g.Start.All()
		if want := float64(n); perSecond != want {
			t.Errorf("%d idle workers make %v calls in a second, want %v", n, perSecond, want)
		}
		fmt.Fprintf(&table, "\n| %d | %g | 1.0 × %d | %.1f s | %.0f | %.1f × %d | %d | 4096 / %d = %d | %.1f s |", n, perSecond, n,
			g.Served.Seconds(), started, started/float64(n), n, g.Join.Moves, n+1, ring/(n+1), g.Joined.Seconds())
		idle.Points = append(idle.Points, [2]float64{float64(n), perSecond})
		start.Points = append(start.Points, [2]float64{float64(n), started})
	}
	t.Log(table.String())
	svg := []byte(report.Plot("Calls of the store", "workers", "calls", []report.Curve{idle, start}))
	if err := xml.Unmarshal(svg, new(struct{})); err != nil {
		t.Error(err)
	}
	if *plot != "" {
		if err := os.WriteFile(*plot, svg, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const ring = 4096 // partitions
