package keytable

import (
	"cmp"
	"maps"
	"slices"
)

// turns says whose turn it is, in the plain way: of all clients that wait for a key,
// the one that has waited longest since it came or had its last turn, and of its
// callers the one that came first. A caller of no client is a client by itself.
type turns struct {
	since map[turn]int
	clock int
}

// turn names a client at a key, or a caller of no client by its arrival.
type turn struct {
	key     string
	client  uint64
	arrival int
}

// place is where a caller waits, and since when.
type place struct {
	key     string
	client  uint64
	arrival int
}

// asker is a caller of one of the tests.
type asker interface {
	comparable
	where() *place
}

func (p *place) where() *place { return p }

func (p *place) turn() turn {
	if p.client == 0 {
		return turn{p.key, 0, p.arrival}
	}
	return turn{p.key, p.client, 0}
}

// come notes that a waits from now on, where here wait already.
func come[A asker](t *turns, a A, here []A) {
	t.clock++
	p := a.where()
	p.arrival = t.clock
	if !slices.ContainsFunc(here, func(b A) bool { return b.where().turn() == p.turn() }) {
		t.since[p.turn()] = t.clock
	}
}

// had notes that p's client has had its turn.
func (t *turns) had(p *place) {
	t.clock++
	t.since[p.turn()] = t.clock
}

// inTurn returns those who wait for a key in the order in which they are to get it.
func inTurn[A asker](t *turns, here []A) (order []A) {
	later := turns{maps.Clone(t.since), t.clock}
	for here = slices.Clone(here); len(here) > 0; {
		first := slices.MinFunc(here, func(a, b A) int {
			p, q := a.where(), b.where()
			return cmp.Or(later.since[p.turn()]-later.since[q.turn()], p.arrival-q.arrival)
		})
		here = slices.DeleteFunc(here, func(a A) bool { return a == first })
		later.had(first.where())
		order = append(order, first)
	}
	return order
}

// givesWay returns who of those here gives way to a newcomer, if as many wait for the
// key as may: the last of the client that has most, and two more than the newcomer's
// at least; of two such, the one whose turn comes later.
func givesWay[A asker](t *turns, a A, here []A) (gives A, found bool) {
	counts := map[turn]int{}
	for _, b := range here {
		counts[b.where().turn()]++
	}
	rank := func(b A) [3]int {
		p := b.where()
		return [3]int{counts[p.turn()], t.since[p.turn()], p.arrival}
	}
	for _, b := range here {
		if counts[b.where().turn()] < counts[a.where().turn()]+2 {
			continue
		}
		if rb, rg := rank(b), rank(cmp.Or(gives, b)); slices.Compare(rb[:], rg[:]) >= 0 {
			gives, found = b, true
		}
	}
	return gives, found
}

// overfull reports whether a has to be refused whoever gives way to it, since as many
// wait as may in all, or for its client.
func overfull[A asker](q *Queue, a A, all []A) bool {
	total := cmp.Or(q.Total, DefaultTotal)
	own := 0
	for _, b := range all {
		if client := a.where().client; client != 0 && b.where().client == client {
			own++
		}
	}
	return len(all) >= total || own >= (total+1)/2
}
