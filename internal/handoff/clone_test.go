package handoff

import (
	"github.com/keyway-go/keyway/internal/records"
	"maps"
	"slices"
)

// spares are worlds and machines that a search needs no more, to be written over
// in place of new ones.
type spares struct {
	worlds   []*world
	machines []*Machine
}

// take returns a spare one, or a new one.
func take[T any](from *[]*T) *T {
	if n := len(*from); n > 0 {
		x := (*from)[n-1]
		*from = (*from)[:n-1]
		return x
	}
	return new(T)
}

// clone returns a world that goes on from here by itself.
func (w *world) clone() *world {
	c := take(&w.spares.worlds)
	past, told, procs, msgs, last, held, served := c.past, c.told, c.procs, c.msgs, c.last, c.held, c.served
	*c = *w
	c.past = append(past[:0], w.past...)
	c.told = append(told[:0], w.told...)
	if procs == nil {
		procs = make([]*proc, len(w.procs))
		for i := range procs {
			procs[i] = new(proc)
		}
	}
	for i, p := range w.procs {
		p.cloneTo(procs[i], w.spares)
	}
	c.procs = procs
	c.msgs = append(msgs[:0], w.msgs...)
	c.last = append(last[:0], w.last...)
	c.held = append(held[:0], w.held...)
	c.served = append(served[:0], w.served...)
	return c
}

// drop gives up a world, which must not be used any more.
func (w *world) drop() {
	for _, p := range w.procs {
		if !p.shared && p.m != nil {
			w.spares.machines = append(w.spares.machines, p.m)
		}
		w.spares.machines = append(w.spares.machines, p.before...)
	}
	w.spares.worlds = append(w.spares.worlds, w)
}

func (p *proc) cloneTo(c *proc, s *spares) {
	tables, cancels, before, execs, locks := c.tables, c.cancels, c.before, c.execs, c.locks
	*c = *p
	p.shared, c.shared = true, true
	c.tables = append(tables[:0], p.tables...)
	c.cancels = append(cancels[:0], p.cancels...)
	c.before = before[:0]
	for _, m := range p.before {
		c.before = append(c.before, m.clone(s))
	}
	c.execs = append(execs[:0], p.execs...)
	c.locks = append(locks[:0], p.locks...)
}

// clone returns a machine that goes on from here by itself.
func (m *Machine) clone(s *spares) *Machine {
	c := take(&s.machines)
	peers, parts, fresh, awaited, running, inherited, listed, frozen := c.peers, c.parts, c.fresh, c.awaited, c.running, c.inherited, c.listed, c.frozen
	*c = *m
	c.peers = cloneTo(peers, m.peers)
	c.parts = append(parts[:0], m.parts...)
	c.fresh = cloneTo(fresh, m.fresh)
	c.awaited = cloneTo(awaited, m.awaited)
	c.running = cloneLists(running, m.running)
	c.inherited = cloneLists(inherited, m.inherited)
	c.clears = slices.Clone(m.clears)
	c.listed, c.frozen = cloneTo(listed, m.listed), cloneTo(frozen, m.frozen)
	c.moves = slices.Clone(m.moves)
	c.heard = slices.Clone(m.heard)
	return c // views, snapshots, changes and writes are never changed
}

func cloneTo[K comparable, V any](c, m map[K]V) map[K]V {
	if c == nil {
		return maps.Clone(m)
	}
	clear(c)
	maps.Copy(c, m)
	return c
}

func cloneLists(c, m map[int][]records.Residue) map[int][]records.Residue {
	c = cloneTo(c, m)
	for k, v := range c {
		c[k] = slices.Clone(v)
	}
	return c
}
