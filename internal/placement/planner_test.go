package placement_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/placement"
)

// randomCluster returns workers and a ring over them, with loads that differ much.
func randomCluster(random *rand.Rand, workers, partitions int) placement.Cluster {
	var c placement.Cluster
	for i := range workers {
		c.Workers = append(c.Workers, placement.Worker{Name: fmt.Sprintf("w%03d", i), Weight: 1 + float64(i%3)})
	}
	for range partitions {
		c.Ring = append(c.Ring, int32(random.IntN(workers)))
		c.Loads = append(c.Loads, math.Exp(2*random.NormFloat64()))
	}
	return c
}

// owners returns the owner of each partition.
func owners(c placement.Cluster) []string {
	there := map[string]bool{}
	all := make([]string, len(c.Ring))
	for _, w := range c.Workers {
		there[w.Name] = true
	}
	for p, w := range c.Ring {
		all[p] = c.Workers[w].Name
	}
	for _, p := range c.Placed {
		if there[p.Worker] {
			all[p.Partition] = p.Worker
		}
	}
	return all
}

// TestBounds changes loads, workers and placements at random. The bounds hold in each round, and equal Planners agree.
func TestBounds(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		cfg := placement.Config{Churn: 0.02 + 0.1*random.Float64(), Placements: 5 + random.IntN(60), Tolerance: 0.02 + 0.1*random.Float64()}
		planner, twin := placement.New(cfg), placement.New(cfg)
		c := randomCluster(random, 2+random.IntN(10), 200)
		last := make([]time.Duration, len(c.Ring)) // when the partitions moved
		var shares, others []float64               // by round
		var before []string                        // owners
		for round := range 200 {
			now := time.Hour + time.Duration(round)*placement.Round
			if random.IntN(20) == 0 {
				next := randomCluster(random, 2+random.IntN(10), 200)
				next.Placed, c = c.Placed, next
			}
			if p := random.IntN(len(c.Ring)); random.IntN(10) == 0 && !slices.ContainsFunc(c.Placed, func(q placement.Placement) bool { return q.Partition == p }) {
				c.Placed = append(c.Placed, placement.Placement{Partition: p, Worker: "w001", Pinned: random.IntN(2) == 0})
			}
			start, total := owners(c), 0.0
			for _, l := range c.Loads {
				total += l
			}
			moved, byOthers := 0.0, 0.0
			for p, o := range start {
				if before != nil && before[p] != o {
					byOthers += c.Loads[p] / total
				}
			}
			held := len(c.Placed)
			pins := slices.DeleteFunc(slices.Clone(c.Placed), func(p placement.Placement) bool { return !p.Pinned })
			next, why := planner.Plan(now, c)
			same, because := twin.Plan(now, c)
			if !reflect.DeepEqual(next, same) || !reflect.DeepEqual(why, because) {
				t.Fatalf("seed %d, round %d: equal Planners plan %v and %v", seed, round, why, because)
			}
			c.Placed = next
			before = owners(c)
			for p, o := range before {
				if o == start[p] {
					continue
				}
				moved += c.Loads[p] / total
				if last[p] > 0 && now-last[p] < time.Minute {
					t.Errorf("seed %d, round %d: partition %d moves after %v", seed, round, p, now-last[p])
				}
				last[p] = now
			}
			if math.Abs(moved-why.Share) > 1e-9 {
				t.Errorf("seed %d, round %d: %v of the load moved, and %v is said", seed, round, moved, why.Share)
			}
			shares, others = append(shares, moved), append(others, byOthers)
			allowed, sum := cfg.Churn+1e-9, 0.0
			for i := max(0, len(shares)-12); i < len(shares); i++ {
				sum, allowed = sum+shares[i], allowed+others[i]
			}
			if moved > 0 && sum > allowed {
				t.Errorf("seed %d, round %d: %v of the load moved in a minute, %v is allowed", seed, round, sum, allowed)
			}
			if len(next) > max(cfg.Placements, held) {
				t.Errorf("seed %d, round %d: %d placements", seed, round, len(next))
			}
			if after := slices.DeleteFunc(slices.Clone(next), func(p placement.Placement) bool { return !p.Pinned }); !equalSets(pins, after) {
				t.Errorf("seed %d, round %d: pinned were %v, now %v", seed, round, pins, after)
			}
			for _, p := range next {
				if !p.Pinned && !slices.ContainsFunc(c.Workers, func(w placement.Worker) bool { return w.Name == p.Worker }) {
					t.Errorf("seed %d, round %d: a placement at %s, which is not there", seed, round, p.Worker)
				}
			}
		}
	}
}

func equalSets(a, b []placement.Placement) bool { return placement.Encode(a) == placement.Encode(b) }

// Loads and weights that nobody has measured do not disturb a plan.
func TestStrangeLoads(t *testing.T) {
	strange := []float64{math.NaN(), math.Inf(1), -1, 0, math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64}
	c := randomCluster(rand.New(rand.NewPCG(1, 1)), len(strange), len(strange))
	for i, v := range strange {
		c.Workers[i].Weight = v
	}
	c.Loads = strange
	if next, why := placement.New(placement.Config{}).Plan(0, c); len(next) > 0 || why.Outcome != placement.Unknown {
		t.Errorf("got %v, %v", next, why)
	}
	c.Loads = []float64{1e99, 1e-99, 1}
	for i := range c.Ring {
		c.Ring[i] = 0
	}
	next, why := placement.New(placement.Config{Churn: 1}).Plan(0, c)
	if len(next) > 0 || why.Outcome != placement.Balanced {
		t.Errorf("next to a large load, small ones are placed: %v, %v", next, why)
	}
}

// A Planner that begins on another's placements has nothing to do.
func TestNewPlannerGoesOn(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	c := randomCluster(random, 20, 4096)
	planner := placement.New(placement.Config{Churn: 1})
	now := time.Duration(0)
	for range 24 {
		c.Placed, _ = planner.Plan(now, c)
		now += placement.Round
	}
	if len(c.Placed) == 0 {
		t.Fatal("nothing is placed")
	}
	another := placement.New(placement.Config{})
	for range 120 {
		next, why := another.Plan(now, c)
		if len(why.Moves) > 0 || why.Ended > 0 || !slices.Equal(next, c.Placed) {
			t.Fatalf("another Planner: %v", why)
		}
		now += placement.Round
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, workers := range []int{20, 100} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			c := randomCluster(rand.New(rand.NewPCG(1, 1)), workers, 4096)
			var moves int
			for b.Loop() { // the round with the most moves: a new Planner, and no placements
				_, why := placement.New(placement.Config{}).Plan(0, c)
				moves = len(why.Moves)
			}
			b.ReportMetric(float64(moves), "moves")
		})
	}
}

func BenchmarkPlanBalanced(b *testing.B) {
	c := randomCluster(rand.New(rand.NewPCG(1, 1)), 100, 4096)
	planner := placement.New(placement.Config{Churn: 1})
	now := time.Duration(0)
	for range 24 {
		c.Placed, _ = planner.Plan(now, c)
		now += placement.Round
	}
	for b.Loop() {
		planner.Plan(now, c)
		now += placement.Round
	}
}
