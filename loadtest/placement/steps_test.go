package placement

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/ring"
)

// Steps in the load of a cluster whose keys have the loads of zipf 1.1.
const (
	zipfKeys    = 1_000_000
	zipfWorkers = 20
	rate        = 20_000.0 // executions in a second
	memory      = 15.0     // time constant of the averages, in seconds
	settle      = 420      // seconds until the load counts as steady
	steady      = 600      // seconds
	bound       = 1.15     // of the largest load in relation to the fair share
)

// zipf returns the load of each partition if the key of rank n has a load in relation to n^-1.1. At one rank, different seeds
// have different keys.
func zipf(seed uint64) []float64 {
	loads := make([]float64, partitions)
	sum := 0.0
	for n := 1; n <= zipfKeys; n++ {
		l := math.Pow(float64(n), -1.1)
		loads[ring.Config{}.Partition(fmt.Sprintf("order-%d-%d", seed, n))] += l
		sum += l
	}
	return times(loads, rate/sum)
}

func times(loads []float64, factor float64) []float64 {
	all := slices.Clone(loads)
	for p := range all {
		all[p] *= factor
	}
	return all
}

// step is how a simulated cluster went on after a step in its load.
type step struct {
	bare       float64   // largest load over the fair share after the step, with the placements before it
	unbound    float64   // share of the load above the bound then
	ratios     []float64 // largest load over the fair share, by second, by true loads
	within     int       // seconds until it is within the bound for good
	churn      float64   // most of the true load that moved in a minute
	moves      int       // in the steady time
	placements int       // at the end
	whole      float64   // largest load over the mean of all, at the end
	hottest    float64   // load of the largest partition over that mean
}

// steps simulates a cluster second by second, with a new step when the load of the one before has been steady for long enough.
// In the middle of the steady time another Planner takes over.
func steps(t *testing.T, seed uint64, cfg placement.Config, loads ...[]float64) []step {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 2))
	names := make([]string, zipfWorkers)
	for i := range names {
		names[i] = fmt.Sprintf("worker-%02d", i)
	}
	table, err := ring.New(ring.Config{}, names)
	if err != nil {
		t.Fatal(err)
	}
	c := cluster(table)
	c.Loads = make([]float64, partitions)
	planner := placement.New(cfg)
	now := time.Duration(0)
	all := make([]step, len(loads))
	for i, truth := range loads {
		s := &all[i]
		s.bare, s.unbound, _ = measure(c, truth)
		minute := make([]float64, 60)
		for second := range settle + steady {
			for p, l := range truth {
				c.Loads[p] += (poisson(random, l) - c.Loads[p]) * (1 - math.Exp(-1/memory))
			}
			now += time.Second
			moved := 0.0
			if now%placement.Round == 0 {
				next, why := planner.Plan(now, c)
				for _, m := range why.Moves {
					moved += truth[m.Partition] / sum(truth)
				}
				if c.Placed = next; second >= settle {
					s.moves += len(why.Moves)
				}
			}
			minute[second%60] = moved
			s.churn = max(s.churn, sum(minute))
			ratio, _, whole := measure(c, truth)
			if s.ratios, s.whole = append(s.ratios, ratio), whole; ratio > bound {
				s.within = second + 1
			}
			if second == settle+steady/2 {
				planner = placement.New(cfg)
			}
		}
		s.placements, s.hottest = len(c.Placed), slices.Max(truth)/(sum(truth)/zipfWorkers)
	}
	return all
}

func sum(v []float64) (s float64) {
	for _, x := range v {
		s += x
	}
	return s
}

// measure returns the largest load of a worker over its fair share, the share of the load above bound times that, and the
// largest load over the mean of all. It knows nothing of how a Planner computes a fair share: the mean of the workers
// without a partition that is above this mean, and the largest partition of each other worker.
func measure(c placement.Cluster, loads []float64) (ratio, above, whole float64) {
	c.Loads = loads
	sums := sums(c, c.Placed)
	largest := make([]float64, len(sums))
	index := map[string]int{}
	for i, w := range c.Workers {
		index[w.Name] = i
	}
	for p, name := range ownersOf(c) {
		largest[index[name]] = max(largest[index[name]], loads[p])
	}
	total := sum(sums)
	whole = slices.Max(sums) / (total / float64(len(sums)))
	mean := total / float64(len(sums))
	for before := math.Inf(1); mean < before*(1-1e-9); {
		load, n := 0.0, 0.0
		for i := range sums {
			if largest[i] <= mean {
				load, n = load+sums[i], n+1
			} else {
				load += sums[i] - largest[i] // others could have it
			}
		}
		before, mean = mean, load/n
	}
	for i := range sums {
		fair := max(mean, largest[i])
		ratio = max(ratio, sums[i]/fair)
		above += max(0, sums[i]-bound*fair) / total
	}
	return ratio, above, whole
}

// poisson returns a random count with this mean.
func poisson(random *rand.Rand, mean float64) float64 {
	if mean > 50 {
		return max(0, math.Round(mean+math.Sqrt(mean)*random.NormFloat64()))
	}
	n, limit := 0.0, math.Exp(-mean)
	for p := random.Float64(); p > limit; p *= random.Float64() {
		n++
	}
	return n
}
