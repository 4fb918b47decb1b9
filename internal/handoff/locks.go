package handoff

import (
	"github.com/keyway-go/keyway/internal/records"
	"time"
)

// writtenLocks are locks that the store keeps for a partition that we serve.
type writtenLocks struct {
	move  records.Move
	until time.Duration // Mono until which a successor of ours needs to know of them
}

// freeze records the locks that a table listed when it was closed.
func (m *Machine) freeze(in Closed) {
	m.thaw(in.Partition)
	if in.Locks != "" {
		m.listed[in.Partition] = in.Locks
	}
	if in.Frozen {
		m.frozen[in.Partition] = struct{}{}
	}
}

// thaw forgets the locks that a table has listed.
func (m *Machine) thaw(p int) {
	delete(m.listed, p)
	delete(m.frozen, p)
}

// moveLocks lets a move take along the locks that are frozen here. Those from
// before the store lost data have no holders any more: we waited for a TTL.
func (m *Machine) moveLocks(c *records.Change) {
	if c.Served = m.servedAt(c.Partition); c.Served > 0 {
		c.Locks = m.listed[c.Partition]
	}
}

// servedAt returns the epoch at which we last served a partition in this generation, or 0. If
// another worker served it later, a move at a higher epoch came before, since others claim only
// from the dead.
func (m *Machine) servedAt(p int) int64 {
	if !m.parts[p].here {
		return 0
	}
	return m.parts[p].epoch
}

// takeMoved drops frozen locks of ours that have moved: a move at a higher epoch
// than that at which we served their partition has taken them along. Without any that
// are frozen, the list is of no use once the partition is another one's.
func (m *Machine) takeMoved(s records.PartitionState) {
	_, frozen := m.frozen[s.Partition]
	switch {
	case frozen && s.Moved > m.parts[s.Partition].epoch:
		m.thaw(s.Partition)
		m.emit(LocksMoved{Partition: s.Partition})
	case !frozen && s.Record.Owner != m.me():
		m.thaw(s.Partition)
	}
}

// openLocks decides about the locks of a partition that opens: those frozen here, and those that
// the store has. The store must keep the latter until the promises that were made before we had
// them have ended. If we die earlier, our successor may be here sooner, since our session may have
// been last renewed before the partition came.
func (m *Machine) openLocks(s records.PartitionState, o *OpenTable) {
	listed := m.listed[s.Partition]
	m.thaw(s.Partition)
	o.Written = s.Written
	served := m.servedAt(s.Partition)
	if o.Resumed = served > 0 && (s.Moved <= served || !m.on(guardResumed)); o.Resumed {
		o.Locks, o.Renewable = listed, true
	}
	if s.Locks == "" || s.Moved <= served {
		return
	}
	until := m.now.Mono + m.cfg.TTL
	if !m.on(guardSuccessor) {
		until = m.now.Mono
	}
	m.moves = append(m.moves, writtenLocks{records.Move{Partition: s.Partition, Epoch: s.Moved}, until})
	if !o.Resumed {
		o.Locks = s.Locks
		o.Renewable = s.Moved == s.Record.Epoch || !m.on(guardRenewable)
	}
}

// sweepLocks removes locks from the store that no worker needs any more.
func (m *Machine) sweepLocks() {
	if m.clearLocks.id != 0 || m.now.Mono < m.clearLocks.next {
		return
	}
	var due []records.Move
	for _, w := range m.moves {
		if !m.over(w.until) || len(due) == m.cfg.Batch {
			break
		}
		due = append(due, w.move)
	}
	if len(due) > 0 {
		m.movesSent = len(due)
		m.emit(ClearLocks{m.beginCall(&m.clearLocks), due})
	}
}

func (m *Machine) takeClearLocks(r Reply) {
	n := m.cleared(&m.clearLocks, &m.movesSent, r)
	m.moves = m.moves[n:]
}
