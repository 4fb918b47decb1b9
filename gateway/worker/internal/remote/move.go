package remote

import (
	"cmp"
	"errors"
	"slices"

	"github.com/keyway-go/keyway/internal/handoff"
)

// arrival is a lock that comes with a partition, and the state that it has then.
type arrival struct {
	*Lock
	as state
}

// Close freezes the locks and returns the text that carries them to the next owner. It drops locks
// that the store keeps. The caller closes the partition's keytable.Table at the same moment.
func (m *Machine) Close(at Instant) (list string, frozen bool) {
	list = encode(m.order, m.done, at.Now)
	m.dropStored()
	m.open = false
	return list, len(m.order) > 0
}

// Open serves the partition with the locks that moved along. Frozen locks continue if the partition
// is resumed; otherwise they have ended elsewhere or moved along. Locks of a life that lost its
// session block their keys until they end. Locks that the store keeps continue in any case. The
// error names the locks that cannot be read.
func (m *Machine) Open(at Instant, o handoff.OpenTable) error {
	listed, done, err := decode(o.Locks, m.TTL, m.Host.Valid)
	if !o.Resumed {
		m.dropFrozen(at)
		m.done, m.forget = done, at.Now+m.TTL
	}
	came, unread := m.arrivals(at, o, listed)
	for _, l := range came {
		if !m.install(l.Lock) {
			if l.stored > 0 {
				m.Host.Write(l.kept(0))
			}
			continue
		}
		if l.as != blocked {
			if wait := m.byID[l.ID]; wait != nil && wait.state == waiting { // for the lock itself
				m.Host.EndWait(wait)
			}
			m.name(l.Lock)
		}
		l.cancels, l.expires = at.Cancels, at.Now+l.expires
		m.add(l.Lock, l.as, MovedIn)
	}
	for _, l := range m.order {
		if l.Shared && m.vouches(at, l) {
			m.Host.Share(l.Key, l.Token)
		}
	}
	m.open = true
	return errors.Join(err, unread)
}

// install makes a lock that has come along hold its key, and reports whether it does. An execution of this worker that
// was given up before the lock was granted elsewhere may still hold the key: then both have to end before others get it.
func (m *Machine) install(l *Lock) bool {
	holder := m.Host.Holder(l.Key)
	if holder > l.Token {
		return false // it had ended before
	}
	if holder != 0 && !(l.Shared && holder == l.Token) {
		for _, before := range slices.Clone(m.order) {
			if before.Token == holder && before.Key == l.Key {
				m.remove(before, Lost) // as l shows, which was granted after it
			}
		}
	}
	return m.Host.Install(l.Key, l.Token, l.Shared)
}

// arrivals returns the locks that a partition brings when it opens. The store keeps some of them; a
// move has listed the others. A lock that is frozen here continues.
func (m *Machine) arrivals(at Instant, o handoff.OpenTable, listed []arrival) (came []arrival, unread error) {
	left := make(map[ID]*Lock)
	for _, l := range listed {
		left[l.ID] = l.Lock
	}
	for _, k := range o.Written {
		list, _, err := decode(k.Text, 0, m.Host.Valid)
		if err != nil || len(list) != 1 {
			unread = errors.Join(unread, cmp.Or(err, errText))
			continue
		}
		l, before := list[0], m.find(at, list[0].ID)
		l.stored, l.as = l.Lease, written
		if move := left[l.ID]; move != nil && o.Renewable {
			l.expires, l.Lease, l.Call = move.expires, move.Lease, move.Call
		}
		delete(left, l.ID)
		if before != nil {
			m.keep(before, l.stored)
			m.set(before, written)
			continue
		}
		came = append(came, l)
	}
	for _, l := range listed {
		if left[l.ID] != nil && l.stored == 0 && !o.Resumed {
			if !o.Renewable {
				l.as = blocked
			}
			came = append(came, l)
		}
	}
	return came, unread
}

// dropFrozen drops the frozen locks of a partition that others have served meanwhile, except those of a life before.
func (m *Machine) dropFrozen(at Instant) {
	for _, l := range slices.Clone(m.order) {
		switch {
		case m.vouches(at, l), l.state == blocked:
			m.remove(l, Lost)
		case l.state == held:
			m.lose(l)
		}
	}
}

// Drop drops the locks that are frozen: they are their next owner's.
func (m *Machine) Drop() {
	for !m.open && len(m.order) > 0 {
		m.remove(m.order[len(m.order)-1], MovedOut)
	}
}
