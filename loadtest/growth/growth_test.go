package growth

import (
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/loadtest/internal/report"
)

var (
	most = flag.Int("most", 10, "how many workers the largest cluster has")
	plot = flag.String("plot", "", "file for the plot; none by default")
)

// TestGrowth prints the table of docs/scale.md, and writes its plot. What an idle worker asks of the store does not depend on
// how many others there are: it makes five looks and five renewals in a TTL.
func TestGrowth(t *testing.T) {
	idle := report.Curve{Title: "idle, in a second"}
	start := report.Curve{Title: "a start"}
	var table strings.Builder
	for _, n := range []int{3, 10, 30, 100, 300, 1000} {
		if n > *most {
			break
		}
		g := grow(t, n)
		if want := (calls{looks: 10 * n, renewals: 10 * n}); g.idle != want {
			t.Errorf("in %v, %d idle workers make %+v, want %+v", idleTime, n, g.idle, want)
		}
		perSecond, started := float64(g.idle.all())/idleTime.Seconds(), float64(g.start.all())
		fmt.Fprintf(&table, "\n| %d | %g | 1.0 × %d | %.1f s | %.0f | %.1f × %d | %d | 4096 / %d = %d | %.1f s |", n, perSecond, n,
			g.served.Seconds(), started, started/float64(n), n, g.join.moves, n+1, partitions/(n+1), g.joined.Seconds())
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

const partitions = 4096
