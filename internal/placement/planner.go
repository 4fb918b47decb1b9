package placement

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Round is the time between rounds that the defaults are made for.
const Round = 5 * time.Second

const (
	window   = time.Minute // Config.Churn bounds the moves of this time, in which a partition moves once
	rising   = 1.2         // growth of a partition's load in a round above which it waits until the average is true
	patience = 12          // rounds without need before placements end
	none     = -1          // no worker, or no partition
)

// Config says how a Planner balances. The zero value has the defaults.
type Config struct {
	// Capacity of a worker of weight 1, in the unit of the loads. An excess below Tolerance × Capacity does not matter. 0:
	// unknown; the fair share stands for it.
	Capacity float64

	// Tolerance is how far a worker may exceed its fair share, as a part of it. 0 means 0.1.
	Tolerance float64

	// Churn is the largest part of the load that the Planner moves in a minute. As much comes on top as others moved in
	// that minute, such as the ring when a worker joined or left. A partition with more load never moves. 0 means 0.085.
	Churn float64

	// Placements is the largest number of placements, pinned ones included. 0 means Most.
	Placements int
}

// Worker is a worker on the ring.
type Worker struct {
	Name   string
	Weight float64 // relative capacity between 1e-6 and 1e6; others, such as 0, count as 1
}

// Cluster is what is known at one moment.
type Cluster struct {
	Workers []Worker    // on the ring
	Ring    []int32     // by partition: the index in Workers of the owner by the ring without placements; -1 for none
	Loads   []float64   // by partition: decayed averages in any unit; loads outside of 1e-100 to 1e100 count as 0
	Placed  []Placement // in force, of different partitions
}

// Outcome is how a round ended.
type Outcome string

// The outcomes of a round.
const (
	Unknown  Outcome = "no load is known"
	Balanced Outcome = "balanced"
	Relieved Outcome = "relieved"                         // no worker exceeds the tolerance any more
	Limited  Outcome = "churn bound reached"              // one does
	Full     Outcome = "bound on placements reached"      // one does
	Stuck    Outcome = "no partition can move any better" // one does: its partitions are pinned, rest, or fit nowhere
)

// Report says why a round planned what it did.
type Report struct {
	Outcome       Outcome
	Mean          float64 // load of a worker of weight 1
	Worker        string  // with the largest excess before the round
	Before, After float64 // largest excess of a worker: 0.2 is a fifth above its fair share, or of Capacity if that is larger
	Moves         []Move
	Share         float64 // part of the load that they move
	Ended         int     // placements that ended without a move
	Placements    int     // after the round
}

func (r Report) String() string {
	return fmt.Sprintf("%s: %s had %.1f %% above its fair share, now at most %.1f %%; moved %d partitions with %.1f %% of the load; ended %d placements, %d are left",
		r.Outcome, r.Worker, 100*r.Before, 100*r.After, len(r.Moves), 100*r.Share, r.Ended, r.Placements)
}

// Move is a change of a partition's owner.
type Move struct {
	Partition int
	From, To  string
	Share     float64 // of the load
}

// Planner is the memory of a balancer between rounds. It is for one goroutine.
type Planner struct {
	cfg  Config
	past []change // younger than window
	last *balance // the round before, if there was one
}

// change is a move of a partition, or stands for many.
type change struct {
	at        time.Duration
	partition int     // or none
	share     float64 // of the load; below 0 if others moved it, which allows for as much
}

// New returns a Planner that has seen nothing.
func New(cfg Config) *Planner {
	return &Planner{cfg: Config{
		cfg.Capacity, cmp.Or(cfg.Tolerance, 0.1), cmp.Or(cfg.Churn, 0.085), cmp.Or(cfg.Placements, Most),
	}}
}

// Plan is a round. It returns the placements that should be in force, sorted by partition. now is read from a clock that
// never goes back. Placements end if the ring says the same, or if their worker is not on the ring, except pinned ones.
// Nothing else changes without workers or load. A Planner whose first round finds placements moves nothing for a minute,
// because another Planner may have moved as much as it may just before.
func (p *Planner) Plan(now time.Duration, c Cluster) (next []Placement, why Report) {
	if len(c.Workers) == 0 {
		return c.Placed, Report{Outcome: Unknown, Placements: len(c.Placed)}
	}
	b := newBalance(p.cfg, c)
	why = Report{Outcome: Unknown, Mean: b.total / b.weights, Ended: len(c.Placed) - b.placed}
	p.observe(now, b)
	if b.total > 0 {
		w, before := b.worst(nil)
		why.Worker, why.Before = b.workers[w].Name, before
		why.Outcome = b.plan()
		_, why.After = b.worst(nil)
	}
	for _, m := range b.moves {
		p.past = append(p.past, change{now, m.Partition, m.Share})
		why.Share += m.Share
	}
	p.last, why.Moves, why.Placements = b, b.moves, b.placed
	return b.placements(), why
}

// observe tells a round how much it may move, and which partitions rest.
func (p *Planner) observe(now time.Duration, b *balance) {
	p.past = slices.DeleteFunc(p.past, func(c change) bool { return now-c.at >= window })
	others := 0.0
	if b.quiet = patience; p.last != nil {
		b.quiet = p.last.quiet
	}
	for i := range b.ring {
		switch {
		case p.last == nil && b.at[i] != none:
			p.past = append(p.past, change{now, i, 0})
			others = -p.cfg.Churn
		case p.last != nil && i < len(p.last.ring):
			if b.name(i) != p.last.name(i) {
				others += b.share(i)
			}
			b.fixed[i] = b.fixed[i] || b.share(i) > max(rising*p.last.share(i), p.cfg.Churn/64)
		}
	}
	p.past = append(p.past, change{now, none, -others})
	b.budget = p.cfg.Churn
	for i, c := range p.past {
		if c.partition != none && c.partition < len(b.ring) {
			p.past[i].share = max(c.share, b.share(c.partition)) // the average may have risen since
			b.fixed[c.partition] = true
		}
		b.budget -= p.past[i].share
	}
}
