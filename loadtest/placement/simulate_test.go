package placement

import (
	"encoding/xml"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/loadtest/internal/report"
)

var (
	seed   = flag.Uint64("seed", 1, "seed of the random numbers")
	rounds = flag.Int("rounds", 100, "rounds of the chaos test")
	rings  = flag.Int("clusters", 1, "how many clusters have steps in their load")
	plots  = flag.String("plots", "", "directory for the plots; none by default")
)

// TestChaos prints a table of docs/placement.md, and writes its plot.
func TestChaos(t *testing.T) {
	all := chaos(t, *seed, *rounds)
	hot := func(o outcome) bool { return o.hot }
	plain := slices.DeleteFunc(slices.Clone(all), hot)
	hots := slices.DeleteFunc(slices.Clone(all), func(o outcome) bool { return !o.hot })
	excess := func(o outcome) float64 { return o.excess }
	for q, most := range map[float64]float64{0.5: 0.02, 0.9: 0.03, 0.95: 0.04} {
		if got := quantile(plain, q, excess); got > most {
			t.Errorf("p%g of the excess is %.4f, want at most %v", 100*q, got, most)
		}
	}
	var table strings.Builder
	row := func(name string, all []outcome, of func(outcome) float64) {
		fmt.Fprintf(&table, "\n| %s, %d rounds |", name, len(all))
		for _, q := range []float64{0.5, 0.9, 0.95, 0.99, 1} {
			fmt.Fprintf(&table, " %.1f %% |", 100*quantile(all, q, of))
		}
	}
	bare := func(o outcome) float64 { return o.bare }
	row("excess by the ring", plain, bare)
	row("excess with placements", plain, excess)
	row("hot key: excess by the ring", hots, bare)
	row("hot key: excess with placements", hots, excess)
	row("hot key: what it forces", hots, func(o outcome) float64 { return o.least })
	row("load moved by the ring", all, func(o outcome) float64 { return o.ring })
	row("load moved by the balancer", all, func(o outcome) float64 { return o.plan })
	row("the same, workers unchanged", slices.DeleteFunc(slices.Clone(all), func(o outcome) bool { return o.ring > 0 }), func(o outcome) float64 { return o.plan })
	last, placements := 0, 0
	for _, o := range all {
		last, placements = max(last, o.settled), max(placements, o.placements)
	}
	t.Logf("seed %d%s\nat most %d of %d calls of Plan until nothing moved, at most %d placements", *seed, table.String(), last, calls, placements)
	curve := func(title string, of func(outcome) float64) report.Curve {
		l := report.Curve{Title: title}
		for q := 0; q <= 100; q++ {
			l.Points = append(l.Points, [2]float64{float64(q), 100 * max(0, quantile(plain, float64(q)/100, of))})
		}
		return l
	}
	write(t, "placement-chaos.svg", report.PlotLinear("Chaos: excess of the largest worker", "percent of the rounds", "excess, %", []report.Curve{curve("ring", bare), curve("placements", excess)}))
}

// quantile returns a value that the part q of the rounds does not exceed, as Dicer's test computes it.
func quantile(all []outcome, q float64, of func(outcome) float64) float64 {
	if len(all) == 0 {
		return 0
	}
	v := make([]float64, len(all))
	for i, o := range all {
		v[i] = of(o)
	}
	slices.Sort(v)
	return v[int(q*float64(len(v)-1))]
}

// TestSteps prints a table of docs/placement.md, and writes its plot.
func TestSteps(t *testing.T) {
	names := []string{"the load begins", "it doubles", "one more key has a tenth", "other keys are hot", "the load begins, no bound on churn"}
	results := make([][]step, len(names))
	for i := range *rings {
		seed := *seed + uint64(i)
		first := zipf(seed)
		another := times(first, 0.9)
		another[rand.New(rand.NewPCG(seed, 3)).IntN(partitions)] += 0.1 * rate
		for i, s := range slices.Concat(
			steps(t, seed, placement.Config{}, first, times(first, 2), another, zipf(seed+1000)),
			steps(t, seed, placement.Config{Churn: 1}, first),
		) {
			results[i] = append(results[i], s)
			if s.moves > 0 {
				t.Errorf("seed %d, %s: %d partitions move in %d minutes of steady load", seed, names[i], s.moves, steady/60)
			}
			if bound := 0.09; s.churn > bound && i < 4 {
				t.Errorf("seed %d, %s: %.3f of the load moves in a minute, want at most %v", seed, names[i], s.churn, bound)
			}
			if s.ratios[len(s.ratios)-1] > bound || s.within > 200 {
				t.Errorf("seed %d, %s: the largest load is within %v times the fair share after %d s", seed, names[i], bound, s.within)
			}
			if testing.Verbose() {
				fmt.Printf("seed %d: %s: %.2f after the step, above the bound %.1f %%, within it after %d s, %.1f %% moved a minute, %d placements, largest/mean %.2f, hottest partition/mean %.2f\n",
					seed, names[i], s.bare, 100*s.unbound, s.within, 100*s.churn, s.placements, s.whole, s.hottest)
			}
		}
	}
	var table strings.Builder
	for i, all := range results {
		column := func(format string, of func(step) float64) {
			v := make([]float64, len(all))
			for i, s := range all {
				v[i] = of(s)
			}
			slices.Sort(v)
			fmt.Fprintf(&table, " "+format+", "+format+" |", v[len(v)/2], v[len(v)-1])
		}
		fmt.Fprintf(&table, "\n| %s |", names[i])
		column("%.2f", func(s step) float64 { return s.bare })
		column("%.1f %%", func(s step) float64 { return 100 * s.unbound })
		column("%.2f", func(s step) float64 { return s.ratios[30] })
		column("%.0f s", func(s step) float64 { return float64(s.within) })
		column("%.1f %%", func(s step) float64 { return 100 * s.churn })
		column("%.0f", func(s step) float64 { return float64(s.moves) })
		column("%.0f", func(s step) float64 { return float64(s.placements) })
	}
	t.Logf("seeds %d to %d%s", *seed, *seed+uint64(*rings)-1, table.String())
	bare, placed := report.Curve{Title: "ring"}, report.Curve{Title: "placements"}
	for second, ratio := range results[0][0].ratios[:120] {
		bare.Points = append(bare.Points, [2]float64{float64(second), results[0][0].bare})
		placed.Points = append(placed.Points, [2]float64{float64(second), ratio})
	}
	write(t, "placement-step.svg", report.PlotLinear("The load begins: largest load over fair share", "seconds", "largest / fair share", []report.Curve{bare, placed}))
}

// write writes a plot, if plots are asked for.
func write(t *testing.T, name, svg string) {
	t.Helper()
	if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil {
		t.Error(err)
	}
	if *plots != "" {
		if err := os.WriteFile(filepath.Join(*plots, name), []byte(svg), 0o644); err != nil {
			t.Error(err)
		}
	}
}
