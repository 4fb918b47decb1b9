package handoff

import (
	"github.com/keyway-go/keyway/internal/records"
	"maps"
	"slices"
	"unique"
)

// takeView replaces the view; partitions move by it once it has settled.
func (m *Machine) takeView(v View) {
	if len(v.Owners) != len(m.parts) {
		v.Owners = nil
	}
	if v.Digest != m.view.Digest || m.view.Owners == nil {
		m.settled = m.now.Mono + m.cfg.Settle
	}
	m.view = v
	m.suspect()
	m.floor = max(m.floor, v.Floor)
	m.highest = max(m.highest, m.floor)
	m.recheck = true
}

// wanted returns the incarnation that the view wants to own p; "" for none.
func (m *Machine) wanted(p int) string {
	if m.view.Owners == nil {
		return ""
	}
	i := m.view.Owners[p]
	if i < 0 || int(i) >= len(m.view.Workers) {
		return ""
	}
	return m.view.Workers[i].Incarnation
}

// takes reports whether an incarnation can be given partitions now: it is not ours, it lives, it
// sees the same view as we do, and that view has settled.
func (m *Machine) takes(inc string) bool {
	if inc == "" || inc == m.me() || !m.alive(inc) && m.on(guardAlive) {
		return false
	}
	return m.agrees(inc) && (m.over(m.settled) || !m.on(guardSettle))
}

func (m *Machine) agrees(inc string) bool {
	agreeing := Peer{Incarnation: inc, View: m.view.Digest}
	return slices.Contains(m.view.Workers, agreeing) || !m.on(guardAgreement)
}

// takeState learns what the store says of a partition. Within a generation
// epochs only go up, so a lower one is an older answer.
func (m *Machine) takeState(s records.PartitionState) {
	if !m.valid(s.Partition) || s.Record.Epoch < m.parts[s.Partition].record.Epoch && m.on(guardOlder) {
		return
	}
	s.Record.Owner = unique.Make(s.Record.Owner).Value() // else each scan reads a text for each partition
	part := &m.parts[s.Partition]
	known := part.known
	part.known = max(known, s.Record.Epoch)
	m.highest = max(m.highest, s.Record.Epoch)
	if part.record != s.Record {
		part.record = s.Record
		m.fresh[s.Partition] = struct{}{}
		m.emit(Owner{Partition: s.Partition, Record: s.Record})
	}
	m.takeMoved(s)
	m.clearStale(s)
	if s.Record.Owner == m.me() {
		m.takeOurs(s, s.Record.Epoch > known || !m.on(guardFence))
	} else {
		m.takeTheirs(s)
	}
}

// takeOurs acts on a record that names us. A closed table may open only at a fresh epoch, one
// higher than all that we knew. A record with any other epoch is from before a move that we may
// have sent, or came back from the past.
func (m *Machine) takeOurs(s records.PartitionState, fresh bool) {
	part := &m.parts[s.Partition]
	switch part.state {
	case stateServing:
		if s.Record.Epoch > part.epoch {
			part.epoch = s.Record.Epoch
			part.advance = false
			m.emit(Advance{Partition: s.Partition, Epoch: part.epoch})
		}
		m.reblock(s)
	case stateRemote, stateClaiming, stateParked, stateMoving:
		switch {
		case fresh:
			m.open(s)
		case part.state == stateRemote:
			m.setState(s.Partition, stateParked)
		}
	}
}

// takeTheirs acts on a record that does not name us.
func (m *Machine) takeTheirs(s records.PartitionState) {
	part := &m.parts[s.Partition]
	switch part.state {
	case stateServing:
		if s.Record.Epoch >= part.epoch {
			m.close(s.Partition)
			m.emit(CancelHandlers{Partition: s.Partition})
		}
	case stateClaiming:
		ours := func(c records.Change) bool { return c.Partition == s.Partition && c.From == s.Record }
		if !slices.ContainsFunc(m.changes, ours) { // the claim under way is of another record
			m.setState(s.Partition, stateRemote)
		}
	case stateParked, stateMoving:
		m.setState(s.Partition, stateRemote)
	}
}

// open starts to serve a partition that has been granted to us.
func (m *Machine) open(s records.PartitionState) {
	part := &m.parts[s.Partition]
	m.setState(s.Partition, stateServing)
	o := OpenTable{Partition: s.Partition, Epoch: s.Record.Epoch, Blocked: m.block(s)}
	m.openLocks(s, &o)
	part.here = true
	part.opened, part.epoch = s.Record.Epoch, s.Record.Epoch
	part.advance = false
	delete(m.awaited, s.Partition)
	m.emit(o)
}

// close stops to serve a partition.
func (m *Machine) close(p int) {
	m.setState(p, stateClosing)
	delete(m.inherited, p)
	m.emit(CloseTable{Partition: p})
}

func (m *Machine) takeClosed(in Closed) {
	if !m.valid(in.Partition) || m.parts[in.Partition].state != stateClosing {
		return
	}
	m.list(in)
	m.freeze(in)
	part := &m.parts[in.Partition]
	if m.phase == phaseLive && part.record.Owner == m.me() {
		m.setState(in.Partition, stateParked)
	} else {
		m.setState(in.Partition, stateRemote)
	}
}

// stale reports whether partitions wait for a scan.
func (m *Machine) stale() bool { return m.recheck || len(m.fresh) > 0 }

// scan visits the partitions that changed by themselves and, after a change that all depend on, every
// partition, those first that callers wait for. It sends the changes that they need. It closes and
// moves one batch at a time, so that each partition has no owner for about one round trip.
func (m *Machine) scan() {
	if m.scanAt > 0 && m.over(m.scanAt) {
		m.recheck, m.scanAt = true, 0
	}
	if !m.stale() || m.in[stateClosing] > 0 || !m.ready(&m.apply) || !m.observed {
		return
	}
	m.unblock()
	dead := make(map[string]bool)
	for inc := range m.peers {
		if m.provenDead(inc) {
			dead[inc] = true
		}
	}
	first, rest := m.fresh, 0
	if m.recheck {
		first, rest = m.awaited, len(m.parts)
	}
	order := slices.Sorted(maps.Keys(first))
	m.recheck = false
	clear(m.fresh)
	var leave []int
	visit := func(p, most int) {
		switch {
		case m.full(most):
			m.recheck = true
		case m.parts[p].state == stateServing && m.goes(p):
			leave = append(leave, p)
		default:
			m.decide(p, dead)
		}
	}
	for _, p := range order {
		visit(p, m.cfg.Changes)
	}
	most := m.cfg.Changes
	if len(m.changes) > 0 {
		most = m.cfg.Batch // which is done sooner
	}
	for p := 0; p < rest && !m.recheck; p++ {
		visit(p, most)
	}
	m.scanAt = m.nextScan()
	if len(m.changes) > 0 {
		m.recheck = m.recheck || len(leave) > 0
		m.emit(Apply{m.beginCall(&m.apply), m.changes})
		return
	}
	now := min(len(leave), m.cfg.Batch)
	m.recheck = now < len(leave)
	for _, p := range leave[:now] {
		m.close(p)
	}
}

// maxLocks is about how many bytes of locks one Apply may move.
const maxLocks = 4 << 20

// full reports whether an Apply can take no more changes.
func (m *Machine) full(most int) bool {
	locks := 0
	for _, c := range m.changes {
		locks += len(c.Locks)
	}
	return len(m.changes) >= most || locks >= maxLocks
}

// goes reports whether a partition that we serve must be given away now.
func (m *Machine) goes(p int) bool {
	return m.takes(m.wanted(p)) || m.abandons()
}

// abandons reports whether we leave without handing over: because we were told to, or because we
// are off the ring and no other worker is on it.
func (m *Machine) abandons() bool {
	return m.leaving && (m.leaveBy || m.over(m.settled) && len(m.view.Workers) == 0)
}

// unclaimed reports whether nothing is left to hand over.
func (m *Machine) unclaimed() bool { return m.abandons() || m.in[stateRemote] == len(m.parts) }

// decide adds the change that is due for a partition, if any. dead are the incarnations that are provenDead.
func (m *Machine) decide(p int, dead map[string]bool) {
	part := &m.parts[p]
	switch part.state {
	case stateServing:
		if part.advance {
			m.change(records.Change{Op: records.OpAdvance, Partition: p, From: part.record})
		}
	case stateParked:
		m.goForward(p)
	case stateRemote:
		switch {
		case part.record.Owner == m.me():
			m.setState(p, stateParked)
			m.goForward(p)
		case m.wanted(p) == m.me() && !m.leaving && (m.over(m.settled) || m.released(part.record.Owner)) && m.claimable(part.record):
			m.claim(p)
		case dead[part.record.Owner] && m.wanted(p) != m.me():
			m.deadPeer = part.record.Owner
		}
	}
}

// goForward resolves a partition whose record names us although its table is closed. The partition
// moves to the owner that the view wants, or else returns to us at a new epoch, which invalidates a
// move that may still be under way.
func (m *Machine) goForward(p int) {
	part := &m.parts[p]
	if !part.here && !m.pastQuarantine() {
		return
	}
	to := m.wanted(p)
	switch {
	case m.takes(to):
		m.setState(p, stateMoving)
		c := records.Change{Op: records.OpMove, Partition: p, From: part.record, To: to, Residue: slices.Clone(m.running[p])}
		m.moveLocks(&c)
		epoch := m.change(c)
		if m.on(guardKnown) {
			part.known = epoch
		}
	case !m.abandons() && m.on(guardForward):
		m.claim(p)
	}
}

func (m *Machine) claim(p int) {
	part := &m.parts[p]
	m.setState(p, stateClaiming)
	m.change(records.Change{Op: records.OpClaim, Partition: p, From: part.record, Served: m.servedAt(p)})
}

// change adds a change to those to be sent, at an epoch higher than all that we
// know of, and returns the lowest that it may have.
func (m *Machine) change(c records.Change) int64 {
	c.Floor = max(m.parts[c.Partition].known, m.floor) + 1
	m.highest = max(m.highest, c.Floor)
	m.changes = append(m.changes, c)
	return c.Floor
}

// takeSequenceLow records that a partition needs another epoch. Its tokens may be of a higher epoch
// than it is served at, if the store went back meanwhile.
func (m *Machine) takeSequenceLow(in SequenceLow) {
	if !m.valid(in.Partition) || m.parts[in.Partition].state != stateServing {
		return
	}
	part := &m.parts[in.Partition]
	part.known = max(part.known, in.Epoch)
	m.highest = max(m.highest, in.Epoch)
	part.advance = true
	m.fresh[in.Partition] = struct{}{}
}

// pastQuarantine reports whether the store's data is as old as our own quarantine asks
// for, and its own quarantine is over.
func (m *Machine) pastQuarantine() bool {
	return m.stored() && (m.over(m.quarantine) || !m.on(guardQuarantine))
}

func (m *Machine) stored() bool {
	return m.snapshot.Quarantine <= 0 || !m.on(guardStoreQuarantine)
}

// claimable reports whether the owner that a record names can run nothing of
// the partition any more.
func (m *Machine) claimable(r records.Record) bool {
	switch {
	case r.Owner == "":
		return m.pastQuarantine()
	case m.released(r.Owner):
		return m.pastQuarantine() || m.first && m.stored() || !m.on(guardReleased)
	}
	return m.dead(r.Owner) && m.pastQuarantine()
}

func (m *Machine) takeApply(r Reply) {
	for _, c := range m.changes {
		m.fresh[c.Partition] = struct{}{}
	}
	if r.Err != nil && m.refused(r.Err) {
		return
	}
	m.takeStates(r.States)
	m.settleChanges(r.Err == nil)
}

// settleChanges ends the changes that did not have the effect that we wanted,
// as far as we know: because the store refused them, or did not answer.
func (m *Machine) settleChanges(refused bool) {
	for _, c := range m.changes {
		part := &m.parts[c.Partition]
		undecided := part.state == stateMoving || part.state == stateClaiming
		if !undecided && !(part.state == stateServing && part.advance) {
			continue
		}
		m.lookSoon()
		switch {
		case !refused || part.state != stateMoving:
			m.apply.next = m.now.Mono + m.retryEvery
		case part.record == c.From && m.peers[c.To].present:
			m.vanish(c.To) // or else the move would have been made
		}
		switch {
		case undecided && part.record.Owner == m.me():
			m.setState(c.Partition, stateParked)
		case undecided:
			m.setState(c.Partition, stateRemote)
		}
	}
	m.changes = nil
}
