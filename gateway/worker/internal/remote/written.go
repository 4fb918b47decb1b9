package remote

import (
	"encoding/hex"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/records"
)

// Extension asks for a lease of a lock, from now on and from each renewal on.
type Extension struct {
	ID    ID
	Token int64 // with which the lock was granted to the call that acquires it; 0 for whichever lock has the ID
	Key   string
	Lease time.Duration
	Firm  bool          // the holder does not renew
	Keep  bool          // ask the store first, if it has to keep the lock
	Vouch time.Duration // for how long the worker's session vouches, read before Instant
}

// Extend gives a lock another lease, but never shortens what is left. The store must keep a lock
// whose lease is longer than a session's, or, for a holder that does not renew, longer than the
// session vouches for now. If it does not, Extend returns the lock and ErrKeepFirst. After x.Keep, call
// it again after Host.Settle. firm reports whether the lock outlives the worker's session.
func (m *Machine) Extend(at Instant, x Extension) (l *Lock, firm bool, err error) {
	l = m.find(at, x.ID)
	switch {
	case !m.open:
		return nil, false, ErrElsewhere
	case x.Vouch == 0: // others may have it
		return nil, false, ErrNoSession
	case l == nil, !m.vouches(at, l), !l.has(x.Token):
		return nil, false, ErrNotHeld
	case l.isFor(x.Key, l.Shared) != nil:
		return nil, false, l.isFor(x.Key, l.Shared)
	case l.stored < x.Lease && (x.Lease > m.TTL || x.Firm && x.Lease > x.Vouch):
		if x.Keep && l.state != keeping {
			m.askStore(l, keeping, x.Lease)
		}
		return l, false, ErrKeepFirst
	}
	l.Lease, l.expires = x.Lease, max(l.expires, at.Now+x.Lease)
	if x.Token == 0 {
		m.Host.Tell(l, Renewed)
	}
	return l, l.stored >= x.Lease || x.Firm, nil
}

// MayBeKept reports whether the store may keep a lock, so that its end waits for the store.
func (m *Machine) MayBeKept(id ID) bool {
	l := m.byID[id]
	return l != nil && l.state >= keeping
}

// keep records the lease that the store keeps a lock for; 0 if it does not.
func (m *Machine) keep(l *Lock, lease time.Duration) {
	if l.Written() {
		m.stored--
	}
	if l.stored = lease; lease > 0 {
		m.stored++
	}
}

// askStore asks the store to keep l with a lease, or to remove it. Calls that wait for an earlier change look again.
func (m *Machine) askStore(l *Lock, s state, lease time.Duration) {
	m.set(l, s)
	m.Host.Settle(l, false)
	l.wanted = lease
	m.Host.Write(l.kept(lease))
}

// kept is l as the store keeps it with a lease.
func (l *Lock) kept(lease time.Duration) records.WrittenLock {
	k := records.WrittenLock{ID: hex.EncodeToString(l.ID[:])}
	if lease > 0 {
		as := *l
		as.Lease, as.expires, as.stored, as.Call = lease, lease, 0, 0 // what may change is not in it
		k.Text = encode([]*Lock{&as}, memory{}, 0)
	}
	return k
}

// Stored records what the store keeps, or does not keep any more.
func (m *Machine) Stored(list []records.WrittenLock) {
	for _, k := range list {
		var id ID
		_, _ = hex.Decode(id[:], []byte(k.ID)) // it is from here
		l := m.byID[id]
		if l == nil || l.state != keeping && l.state != removing || l.kept(l.wanted) != k {
			continue // it was asked for before something else was
		}
		if l.state == removing {
			m.remove(l, l.end)
		} else {
			m.keep(l, l.wanted)
			m.set(l, written)
		}
		m.Host.Settle(l, true)
	}
}

// WriteAgain asks the store again to keep what it kept, and for all that is under way.
func (m *Machine) WriteAgain() {
	var list []records.WrittenLock
	for _, l := range m.order {
		switch l.state {
		case keeping, removing:
			list = append(list, l.kept(l.wanted))
		case written:
			list = append(list, l.kept(l.stored))
		}
	}
	if m.open && len(list) > 0 {
		m.Host.Write(list...)
	}
}

// dropStored drops the locks of a closing partition that the store keeps: the next owner finds them there. Changes under
// way are not waited for.
func (m *Machine) dropStored() {
	for _, l := range slices.Clone(m.order) {
		m.Host.Settle(l, false)
		switch {
		case l.stored > 0 || l.state == removing:
			m.remove(l, MovedOut)
		case l.state == keeping:
			m.set(l, held)
		}
	}
}
