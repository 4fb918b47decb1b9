package placement

import (
	"cmp"
	"math"
	"slices"
)

// balance is a round: the cluster, with the placements as planned so far.
type balance struct {
	cfg      Config
	workers  []Worker
	weights  float64   // of all workers
	heaviest float64   // weight
	ring     []int32   // by partition; pinned placements are part of it
	load     []float64 // by partition
	total    float64
	at       []int32 // by partition: the worker of its placement, or none
	placed   int     // placements
	pins     []Placement
	fixed    []bool // by partition: it does not move in this round

	order  []int   // partitions, the largest load first
	parts  [][]int // by worker: its partitions in that order
	sum    []float64
	level  float64 // fair share of weight 1
	budget float64 // part of the load that may still move
	quiet  int     // rounds since one relieved a worker

	moves         []Move
	limited, full bool // budget or Config.Placements prevented a move
}

func newBalance(cfg Config, c Cluster) *balance {
	n := len(c.Ring)
	b := &balance{
		cfg: cfg, workers: slices.Clone(c.Workers), ring: slices.Clone(c.Ring), load: make([]float64, n), order: make([]int, n),
		at: slices.Repeat([]int32{none}, n), fixed: make([]bool, n),
		parts: make([][]int, len(c.Workers)), sum: make([]float64, len(c.Workers)),
	}
	index := make(map[string]int32, len(c.Workers))
	for i := range b.workers {
		w := &b.workers[i]
		if !(w.Weight > 1e-6 && w.Weight < 1e6) {
			w.Weight = 1
		}
		b.weights, b.heaviest = b.weights+w.Weight, max(b.heaviest, w.Weight)
		index[w.Name] = int32(i)
	}
	for _, p := range c.Placed {
		w, there := index[p.Worker]
		there = there && p.Partition < n
		if p.Pinned {
			b.pins = append(b.pins, p)
			if p.Partition < n {
				b.fixed[p.Partition] = true
			}
			if there {
				b.ring[p.Partition] = w
			}
		} else if there && b.ring[p.Partition] != w {
			b.at[p.Partition] = w
			b.placed++
		}
	}
	b.placed += len(b.pins)
	for p := range b.order {
		if b.order[p] = p; p < len(c.Loads) && c.Loads[p] > 1e-100 && c.Loads[p] < 1e100 { // sums and shares are numbers, too
			b.load[p] = c.Loads[p]
		}
	}
	slices.SortFunc(b.order, b.byLoad)
	for _, p := range b.order {
		if w := b.owner(p); w != none {
			b.parts[w] = append(b.parts[w], p)
			b.sum[w] += b.load[p]
			b.total += b.load[p]
		}
	}
	b.setLevel()
	return b
}

func (b *balance) byLoad(p, q int) int {
	return cmp.Or(cmp.Compare(b.load[q], b.load[p]), cmp.Compare(p, q))
}

func (b *balance) owner(p int) int32 {
	if w := b.at[p]; w != none {
		return w
	}
	return b.ring[p]
}

// name returns the name of the partition's owner, or "".
func (b *balance) name(p int) string {
	if w := b.owner(p); w != none {
		return b.workers[w].Name
	}
	return ""
}

func (b *balance) share(p int) float64 { return b.load[p] / max(b.total, math.SmallestNonzeroFloat64) }

func (b *balance) placements() []Placement {
	list := slices.Clone(b.pins)
	for p, w := range b.at {
		if w != none {
			list = append(list, Placement{Partition: p, Worker: b.workers[w].Name})
		}
	}
	slices.SortFunc(list, byPartition)
	return list
}

// setLevel computes the fair share of weight 1. A worker with a partition that is above the fair share of every worker counts
// with this partition alone. The others share the rest, which can be less, so that more such workers appear.
func (b *balance) setLevel() {
	alone := make([]bool, len(b.workers))
	load, weight := b.total, b.weights
	for again := true; again && weight > 0; {
		again, b.level = false, max(load, 0)/weight
		for w, worker := range b.workers {
			if l := b.biggest(w); !alone[w] && l > b.level*b.heaviest*(1+1e-9) {
				alone[w], again = true, true
				load, weight = load-l, weight-worker.Weight
			}
		}
	}
}

func (b *balance) biggest(w int) float64 {
	if len(b.parts[w]) == 0 {
		return 0
	}
	return b.load[b.parts[w][0]]
}

// excess returns how much a worker exceeds its fair share if it gets a partition with this load. unit is the load of an excess
// of 1: the fair share or Config.Capacity. It is at least a quarter of the mean, because next to a hot key the rest can be tiny.
func (b *balance) excess(w int, load float64) (excess, unit float64) {
	weight := b.workers[w].Weight
	fair := b.level * weight
	if alone := max(b.biggest(w), load); alone > b.level*b.heaviest {
		fair = alone
	}
	unit = max(fair, weight*max(b.cfg.Capacity, b.total/b.weights/4))
	return (b.sum[w] + load - fair) / unit, unit
}

// worst returns the worker with the largest excess, and none if skip names all.
func (b *balance) worst(skip []bool) (worker int, excess float64) {
	worker, excess = none, math.Inf(-1)
	for w := range b.workers {
		if e, _ := b.excess(w, 0); e > excess && (skip == nil || !skip[w]) {
			worker, excess = w, e
		}
	}
	return worker, excess
}

func (b *balance) plan() Outcome {
	if _, excess := b.worst(nil); excess <= b.cfg.Tolerance {
		b.tidy()
		return Balanced
	}
	b.relieve()
	b.quiet = 0
	if _, excess := b.worst(nil); excess <= b.cfg.Tolerance {
		return Relieved
	} else if b.limited {
		return Limited
	} else if b.full {
		return Full
	}
	return Stuck
}

// relieve moves partitions from the workers with the largest excess, one at a time. It begins with those above the
// tolerance. If that helps, it brings all to the target.
func (b *balance) relieve() {
	target := b.target()
	above := max(target, b.cfg.Tolerance)
	stuck := make([]bool, len(b.workers))
	for {
		w, excess := b.worst(stuck)
		if w == none || excess <= above {
			return
		}
		if b.shed(w, target) {
			above = target + b.cfg.Tolerance/50
		} else {
			stuck[w] = true
		}
	}
}

// target returns the excess to reach: half of the tolerance, or as little as the budget allows. A budget that is nearly
// used up is left to grow, since small moves cost placements.
func (b *balance) target() float64 {
	for target := b.cfg.Tolerance / 2; ; target *= 1.02 {
		share := 0.0 // of the load above the target
		for w := range b.workers {
			excess, unit := b.excess(w, 0)
			share += max(0, excess-target) * unit / b.total
		}
		if share == 0 || share <= b.budget && (!b.limited || b.budget >= b.cfg.Churn/8) {
			return target
		}
		b.limited = true
	}
}

// shed moves one partition from a worker, and reports false if none can move. First come partitions that go home, because that
// ends placements; then the largest that is needed, because it costs the fewest; last the next larger ones.
func (b *balance) shed(from int, target float64) bool {
	parts := slices.Clone(b.parts[from])
	excess, unit := b.excess(from, 0)
	larger := 0
	for larger < len(parts) && b.load[parts[larger]] > (excess-target)*unit {
		larger++
	}
	for _, p := range parts[larger:] {
		if b.at[p] != none && b.fits(p, b.ring[p], min(target, excess)) && b.move(p, b.ring[p]) {
			return true
		}
	}
	slices.Reverse(parts[:larger])
	for _, p := range slices.Concat(parts[larger:], parts[:larger]) {
		before := b.sum[from] / b.workers[from].Weight
		to, after := int32(none), before
		for w, worker := range b.workers {
			if l := (b.sum[w] + b.load[p]) / worker.Weight; w != from && l < after {
				to, after = int32(w), l
			}
		}
		// If the target is out of reach, a move has to be worth its cost.
		if (after <= before*(1-b.cfg.Tolerance/2) || b.fits(p, to, min(target, excess))) && b.move(p, to) {
			return true
		}
	}
	return false
}

// fits reports whether a worker has at most this excess with a partition.
func (b *balance) fits(p int, to int32, most float64) bool {
	if to == none {
		return false
	}
	excess, _ := b.excess(int(to), b.load[p])
	return excess <= most
}

// tidy ends placements whose reason is gone, because their partitions fit at home. It does so once when nothing was relieved
// for patience rounds, and later only if one fits well, so that noise in the loads ends none. Two thirds of the budget are
// kept for more urgent moves.
func (b *balance) tidy() {
	spare := b.cfg.Churn / 3
	home := func(most float64) func(int) bool {
		return func(p int) bool {
			return b.at[p] != none && !b.fixed[p] && b.share(p) <= spare && b.fits(p, b.ring[p], most)
		}
	}
	b.quiet++
	if b.quiet < patience || b.quiet > patience && !slices.ContainsFunc(b.order, home(-b.cfg.Tolerance/4)) {
		return
	}
	b.budget -= b.cfg.Churn - spare
	fits := home(b.cfg.Tolerance / 4)
	for _, p := range slices.Backward(b.order) {
		if fits(p) && !b.move(p, b.ring[p]) {
			b.quiet = patience - 1 // the next round goes on
		}
	}
}

// move gives a partition to another worker. It reports false if a bound forbids that.
func (b *balance) move(p int, to int32) bool {
	share, placed, home := b.share(p), b.placed, to == b.ring[p]
	if b.at[p] == none {
		placed++
	}
	if home {
		placed--
	}
	switch {
	case b.fixed[p] || share == 0 && !home:
		return false
	case share > b.budget:
		b.limited = b.limited || share <= b.cfg.Churn
		return false
	case placed > max(b.placed, b.cfg.Placements):
		b.full = true
		return false
	}
	from := b.owner(p)
	b.moves = append(b.moves, Move{p, b.workers[from].Name, b.workers[to].Name, share})
	b.budget, b.placed, b.fixed[p] = b.budget-share, placed, true
	if b.at[p] = to; home {
		b.at[p] = none
	}
	i, _ := slices.BinarySearchFunc(b.parts[from], p, b.byLoad)
	b.parts[from] = slices.Delete(b.parts[from], i, i+1)
	i, _ = slices.BinarySearchFunc(b.parts[to], p, b.byLoad)
	b.parts[to] = slices.Insert(b.parts[to], i, p)
	b.sum[from] -= b.load[p]
	b.sum[to] += b.load[p]
	b.setLevel()
	return true
}
