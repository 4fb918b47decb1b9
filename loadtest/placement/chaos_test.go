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

// The chaos test is that of Dicer's assigner (AlgorithmChaosSuite), for partitions that have one owner.
const (
	pool     = 8      // workers of which each round has 6 to 8
	capacity = 1000.0 // of a worker
	keys     = 100_000
	tight    = 0.025 // Dicer's tightest tolerance
	calls    = int(time.Minute / placement.Round)
)

// outcome is a round of the chaos test. An excess is that of the largest load over the mean, as a part of the larger of the
// mean and the capacity.
type outcome struct {
	hot        bool    // one partition alone exceeds the tolerance
	bare       float64 // excess by the ring alone
	excess     float64 // excess with placements, after a minute
	least      float64 // excess of the largest partition alone
	ring, plan float64 // shares of the load moved by the ring and by the Planner
	settled    int     // calls of Plan until nothing moved any more
	placements int
}

// chaos plays rounds of a minute each. A round has other workers and loads, and a call of Plan every placement.Round.
func chaos(t *testing.T, seed uint64, rounds int) []outcome {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	builder, err := ring.NewBuilder(ring.Config{})
	if err != nil {
		t.Fatal(err)
	}
	planner := placement.New(placement.Config{Capacity: capacity, Tolerance: tight})
	var placed []placement.Placement
	var owners []string
	var now time.Duration
	outcomes := make([]outcome, rounds)
	for i := range outcomes {
		o := &outcomes[i]
		names := make([]string, 6+random.IntN(3))
		for i, w := range random.Perm(pool)[:len(names)] {
			names[i] = fmt.Sprintf("worker-%d", w)
		}
		table, err := builder.Table(names)
		if err != nil {
			t.Fatal(err)
		}
		c := cluster(table)
		mean := 1.2 * random.Float64() * capacity
		c.Loads = randomLoads(random, mean*float64(len(names)), random.IntN(2) == 0)
		measure := max(mean, capacity)
		o.least = max(0, slices.Max(c.Loads)-mean) / measure
		o.hot = o.least > tight
		o.bare = (slices.Max(sums(c, nil)) - mean) / measure
		c.Placed = placed
		o.ring = moved(owners, ownersOf(c), c.Loads)
		for call := range calls {
			before := ownersOf(c)
			c.Placed, _ = planner.Plan(now, c)
			share := moved(before, ownersOf(c), c.Loads)
			if o.plan += share; share > 0 {
				o.settled = call + 1
			}
			now += placement.Round
		}
		o.excess = (slices.Max(sums(c, c.Placed)) - mean) / measure
		placed, owners, o.placements = c.Placed, ownersOf(c), len(c.Placed)
		if testing.Verbose() && (i+1)%100 == 0 {
			fmt.Printf("chaos: %d of %d rounds\n", i+1, rounds)
		}
	}
	return outcomes
}

// randomLoads spreads a load over the partitions as keys do whose loads are log-normal with sigma 1. If hot, one more key has
// half of it.
func randomLoads(random *rand.Rand, total float64, hot bool) []float64 {
	loads := make([]float64, partitions)
	sum := 0.0
	for range keys {
		l := math.Exp(random.NormFloat64())
		loads[random.IntN(partitions)] += l
		sum += l
	}
	rest := total
	if hot {
		rest /= 2
	}
	for p := range loads {
		loads[p] *= rest / sum
	}
	loads[random.IntN(partitions)] += total - rest
	return loads
}
