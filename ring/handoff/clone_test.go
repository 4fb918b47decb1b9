package handoff

import (
	"maps"
	"slices"
)

// clone returns a machine that goes on from here by itself.
func (m *Machine) clone() *Machine {
	c := *m
	c.peers = maps.Clone(m.peers)
	c.parts = slices.Clone(m.parts)
	c.running = cloneLists(m.running)
	c.inherited = cloneLists(m.inherited)
	c.clears = slices.Clone(m.clears)
	c.listed, c.frozen = maps.Clone(m.listed), maps.Clone(m.frozen)
	c.moves = slices.Clone(m.moves)
	return &c // views, snapshots, changes and writes are never changed
}

func cloneLists(m map[int][]Residue) map[int][]Residue {
	c := make(map[int][]Residue, len(m))
	for k, v := range m {
		c[k] = slices.Clone(v)
	}
	return c
}
