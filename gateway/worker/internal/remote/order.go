package remote

import (
	"container/heap"
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
	if len(m.done.order) > 0 {
		next = min(next, m.forget)
	}
	if next == never {
		return 0
	}
	return next
}

// Tick ends locks whose leases are over, some at a time, and forgets releases. A renewal does not
// move its lock in the order: Tick does, when it finds that the lock continues.
func (m *Machine) Tick(at Instant) {
	if m.forget <= at.Now {
		m.done = memory{}
	}
	for range tickMost {
		if len(m.order) == 0 || m.order[0].due > at.Now {
			return
		}
		l := m.order[0]
		if l.expires > at.Now {
			l.due = l.expires
			heap.Fix(&m.order, 0)
			continue
		}
		m.finish(l, Expired)
	}
}

// byDue is a heap. The lock at its head is due first.
type byDue []*Lock

func (o byDue) Len() int           { return len(o) }
func (o byDue) Less(i, j int) bool { return o[i].due < o[j].due }

func (o byDue) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].place, o[j].place = int32(i), int32(j)
}

func (o *byDue) Push(x any) {
	l := x.(*Lock)
	l.place = int32(len(*o))
	*o = append(*o, l)
}

func (o *byDue) Pop() any {
	last := len(*o) - 1
	l := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	return l
}
