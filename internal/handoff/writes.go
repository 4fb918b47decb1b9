package handoff

import "github.com/keyway-go/keyway/internal/records"

// maxWrites is how many locks one WriteLocks writes or removes at most.
const maxWrites = 1024

// takeWrite queues a write of a partition's locks.
func (m *Machine) takeWrite(in Write) {
	if m.valid(in.Partition) && m.parts[in.Partition].state == stateServing {
		m.queue = append(m.queue, records.LockWrite{Partition: in.Partition, Locks: in.Locks})
	}
}

// sendWrites writes what is queued: one call at a time, which is repeated as it was until
// its outcome is known. So what is asked for later is applied later, or not at all.
func (m *Machine) sendWrites() {
	if !m.ready(&m.writeLocks) {
		return
	}
	if len(m.writing) == 0 && len(m.queue) > 0 {
		m.gather()
	}
	if len(m.writing) > 0 {
		m.emit(WriteLocks{m.beginCall(&m.writeLocks), m.writing})
	}
}

// gather takes the next writes off the queue, and gives each partition's a number.
func (m *Machine) gather() {
	m.number++
	at := make(map[int]int) // by partition: its index of writing
	locks, size := 0, 0
	for len(m.queue) > 0 {
		w := m.queue[0]
		for _, l := range w.Locks {
			size += len(l.ID) + len(l.Text)
		}
		if locks += len(w.Locks); len(m.writing) > 0 && (locks > maxWrites || size > maxLocks) {
			return
		}
		m.queue = m.queue[1:]
		if m.parts[w.Partition].state != stateServing {
			continue
		}
		i, ok := at[w.Partition]
		if !ok {
			i = len(m.writing)
			at[w.Partition] = i
			m.writing = append(m.writing, records.LockWrite{Partition: w.Partition, Number: records.WriteNumber{Epoch: m.parts[w.Partition].epoch, Number: m.number}})
		}
		m.writing[i].Locks = append(m.writing[i].Locks, w.Locks...)
	}
}

// takeWriteLocks tells the request path which locks are written. A refused lock is written again,
// unless its partition has been closed. The store refuses because the epoch was raised, or because
// the partition belongs to another worker, as we are about to learn.
func (m *Machine) takeWriteLocks(r Reply) {
	if r.Err != nil {
		if m.refused(r.Err) {
			return
		}
		m.writeLocks.next = m.now.Mono + m.retryEvery
		if m.on(guardOutcome) {
			return
		}
	}
	sent := m.writing
	m.writing = nil
	var again []records.LockWrite
	for i, w := range sent {
		part := &m.parts[w.Partition]
		switch {
		case part.state != stateServing || part.opened > w.Number.Epoch:
		case i < len(r.Wrote) && r.Wrote[i] == w.Number, r.Err != nil:
			m.emit(LocksWritten{Partition: w.Partition, Locks: w.Locks})
		default:
			again = append(again, records.LockWrite{Partition: w.Partition, Locks: w.Locks})
		}
	}
	if len(again) > 0 {
		m.queue = append(again, m.queue...)
		m.writeLocks.next = m.now.Mono + m.retryEvery
		m.lookSoon()
	}
}
