package main

import (
	"slices"

	"github.com/keyway-go/keyway/internal/cmd/chaos/fabric"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// pair is an ordered pair of hosts.
type pair struct{ from, to string }

// pairs returns those from near to far hosts and back, as far as a direction
// says.
func pairs(near, far []string, way trial.Direction) (all []pair) {
	for _, a := range near {
		for _, b := range far {
			if way != trial.Inward {
				all = append(all, pair{a, b})
			}
			if way != trial.Outward {
				all = append(all, pair{b, a})
			}
		}
	}
	return all
}

// apply puts a rule in force for pairs, beside those that are, until the
// returned function is called.
func (c *cast) apply(all []pair, r fabric.Rule) (heal func()) {
	one := &r
	set := func(change func([]*fabric.Rule) []*fabric.Rule) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, p := range all {
			c.rules[p] = change(c.rules[p])
			if err := c.network.Set(p.from, p.to, c.sumLocked(p)); err != nil {
				panic(err) // all hosts are there
			}
		}
	}
	set(func(rules []*fabric.Rule) []*fabric.Rule { return append(rules, one) })
	return func() {
		set(func(rules []*fabric.Rule) []*fabric.Rule {
			return slices.DeleteFunc(slices.Clone(rules), func(r *fabric.Rule) bool { return r == one })
		})
	}
}

// sumLocked returns what the rules in force for a pair come to.
func (c *cast) sumLocked(p pair) (sum fabric.Rule) {
	for _, r := range c.rules[p] {
		sum = merge(sum, *r)
	}
	return sum
}

// merge returns a rule that is as bad as two together.
func merge(a, b fabric.Rule) fabric.Rule {
	r := fabric.Rule{
		Cut: a.Cut || b.Cut, Loss: 1 - (1-a.Loss)*(1-b.Loss), Duplicate: max(a.Duplicate, b.Duplicate), Reorder: max(a.Reorder, b.Reorder),
		Rate: max(a.Rate, b.Rate), Queue: max(a.Queue, b.Queue), Delay: a.Delay + b.Delay, Jitter: a.Jitter + b.Jitter,
	}
	if a.Rate > 0 && b.Rate > 0 {
		r.Rate = min(a.Rate, b.Rate)
	}
	return r
}
