package remote

import (
	"math"
	"time"
)

const (
	tickMost = 128 // locks that one Tick looks at
	never    = math.MaxInt64
)

// Next returns when Tick has something to do, on the clock of Instant; 0 for never.
func (m *Machine) Next() time.Duration {
	next := time.Duration(never)
	if len(m.order) > 0 {
		next = m.order[0].due
	}
	if len(m.done) > 0 {
		next = min(next, m.forget)
	}
	if next == never {
		return 0
	}
	return next
}

// Tick ends locks whose leases are over, some at a time, and forgets releases. A renewal does not move its lock in the
// order: Tick does, when it finds that the lock goes on.
func (m *Machine) Tick(at Instant) {
	if m.forget <= at.Now {
		m.done = nil
	}
	for range tickMost {
		if len(m.order) == 0 || m.order[0].due > at.Now {
			return
		}
		l := m.order[0]
		if l.expires > at.Now {
			l.due = l.expires
			m.down(0)
			continue
		}
		m.finish(at, l, Expired)
	}
}

// push adds a lock to the order.
func (m *Machine) push(l *Lock) {
	m.order = append(m.order, l)
	m.up(len(m.order) - 1)
}

// pull removes a lock from the order.
func (m *Machine) pull(l *Lock) {
	i, last := int(l.place), len(m.order)-1
	m.put(i, m.order[last])
	m.order[last] = nil
	m.order = m.order[:last]
	if i < last {
		m.down(i)
		m.up(i)
	}
}

func (m *Machine) put(i int, l *Lock) { m.order[i], l.place = l, int32(i) }

// up moves the i-th lock to where those before it are due no later.
func (m *Machine) up(i int) {
	l := m.order[i]
	for i > 0 && m.order[(i-1)/2].due > l.due {
		m.put(i, m.order[(i-1)/2])
		i = (i - 1) / 2
	}
	m.put(i, l)
}

// down moves the i-th lock to where those behind it are due no earlier.
func (m *Machine) down(i int) {
	l := m.order[i]
	for {
		child := 2*i + 1
		if child+1 < len(m.order) && m.order[child+1].due < m.order[child].due {
			child++
		}
		if child >= len(m.order) || m.order[child].due >= l.due {
			break
		}
		m.put(i, m.order[child])
		i = child
	}
	m.put(i, l)
}
