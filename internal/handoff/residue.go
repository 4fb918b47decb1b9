package handoff

import (
	"github.com/keyway-go/keyway/internal/records"
	"maps"
	"slices"
)

// clearing is an entry of residue to remove from the store.
type clearing struct {
	partition int
	residue   records.Residue
}

// list records the executions that still run in a closed table. A table that opened again meanwhile
// may list executions that an earlier Closed listed.
func (m *Machine) list(in Closed) {
	for _, e := range in.Running {
		r := records.Residue{Key: e.Key, Holder: m.me(), Token: e.Token}
		if !slices.Contains(m.running[in.Partition], r) {
			m.running[in.Partition] = append(m.running[in.Partition], r)
			if !m.on(guardReturn) {
				m.clearLater(in.Partition, r)
			}
		}
	}
}

func (m *Machine) takeFinished(in Finished) {
	r := records.Residue{Key: in.Key, Holder: m.me(), Token: in.Token}
	i := slices.Index(m.running[in.Partition], r)
	if i < 0 {
		return
	}
	m.put(m.running, in.Partition, slices.Delete(m.running[in.Partition], i, i+1))
	m.clearLater(in.Partition, r)
}

// clearStale removes entries of ours whose executions have ended: written by
// a call that was overtaken, or come back with the store's past.
func (m *Machine) clearStale(s records.PartitionState) {
	for _, r := range s.Residue {
		if r.Holder == m.me() && !slices.Contains(m.running[s.Partition], r) && m.on(guardStale) {
			m.clearLater(s.Partition, r)
		}
	}
}

// clearLater has an entry removed from the store. That the clear under way
// removes it already does not count: the entry may have been written after it.
func (m *Machine) clearLater(p int, r records.Residue) {
	c := clearing{p, r}
	covered := m.clears[m.sent:]
	if !m.on(guardResend) {
		covered = m.clears
	}
	if m.held() && !slices.Contains(covered, c) {
		m.clears = append(m.clears, c)
	}
}

// sweep clears the residue of one partition at a time.
func (m *Machine) sweep() {
	if len(m.clears) == 0 || !m.ready(&m.clear) {
		return
	}
	p := m.clears[0].partition
	var first, rest []clearing
	var rs []records.Residue
	for _, c := range m.clears {
		if c.partition == p && len(rs) < m.cfg.Batch {
			first, rs = append(first, c), append(rs, c.residue)
		} else {
			rest = append(rest, c)
		}
	}
	m.clears, m.sent = append(first, rest...), len(rs)
	m.emit(Clear{m.beginCall(&m.clear), p, rs})
}

func (m *Machine) takeClear(r Reply) {
	n := m.cleared(&m.clear, &m.sent, r)
	m.clears = slices.Delete(m.clears, 0, n)
}

// cleared returns how many of the entries sent with a call the store has removed.
func (m *Machine) cleared(call *storeCall, sent *int, r Reply) (n int) {
	n, *sent = *sent, 0
	if r.Err == nil {
		return n
	}
	if !m.refused(r.Err) {
		call.next = m.now.Mono + m.retryEvery
	}
	return 0
}

// ofOthers returns the residue whose holders are other incarnations.
func (m *Machine) ofOthers(residue []records.Residue) []records.Residue {
	return slices.DeleteFunc(slices.Clone(residue), func(r records.Residue) bool { return r.Holder == m.me() })
}

// block records the residue of a partition that opens, and returns it without the keys that still
// run here: the local mutex holds those.
func (m *Machine) block(s records.PartitionState) []records.Residue {
	blocks := m.ofOthers(s.Residue)
	if !m.on(guardResidue) {
		blocks = nil
	}
	m.put(m.inherited, s.Partition, blocks)
	return slices.Clone(blocks)
}

// reblock records the residue of others that a partition that we serve still has, and unblocks the
// keys whose entry is gone. An entry that was absent when we opened the partition blocks nothing:
// it came back with the store's past. We remove it once its holder is dead.
func (m *Machine) reblock(s records.PartitionState) {
	left := m.ofOthers(s.Residue)
	if !m.on(guardInherited) && len(m.inherited[s.Partition]) == 0 {
		left = nil
	}
	for _, g := range m.inherited[s.Partition] {
		if !slices.ContainsFunc(left, func(r records.Residue) bool { return r.Key == g.Key }) {
			m.emit(Unblock{Partition: s.Partition, Key: g.Key})
		}
	}
	if len(left) > 0 {
		m.fresh[s.Partition] = struct{}{}
	}
	m.put(m.inherited, s.Partition, left)
}

// unblock frees the keys whose holders are dead, here and in the store.
func (m *Machine) unblock() {
	for _, p := range slices.Sorted(maps.Keys(m.inherited)) {
		var left []records.Residue
		for _, g := range m.inherited[p] {
			if !m.dead(g.Holder) {
				left = append(left, g)
				continue
			}
			m.emit(Unblock{Partition: p, Key: g.Key})
			m.clearLater(p, g)
		}
		m.put(m.inherited, p, left)
	}
}

// put sets the residue of a partition in running or inherited.
func (m *Machine) put(in map[int][]records.Residue, p int, rs []records.Residue) {
	if len(rs) == 0 {
		delete(in, p)
	} else {
		in[p] = rs
	}
}
