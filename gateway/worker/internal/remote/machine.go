package remote

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/records"
)

// ID names a lock. The caller that asks for the lock draws it.
type ID [16]byte

// Lock is a key that a caller in another process holds, or waits for. A worker may have a million.
// The caller of [Machine.Acquire] sets the exported fields, except Token. All other fields belong
// to the Machine; state is one of those in the package documentation.
type Lock struct {
	ID     ID
	Key    string
	Label  string // for people
	From   string // address of the member that asked for it
	Token  int64
	Call   uint64        // number of the request that acquired it; 0 once another request has found it, or may have
	Lease  time.Duration // from each renewal on
	Shared bool          // it holds its key together with other shared locks

	state   state
	found   bool          // by another call than the one that acquired it, even one of the same request
	end     Event         // with which it ends when the store does not keep it any more
	place   int32         // in Machine.order
	cancels uint64        // Instant.Cancels when the key was asked for, or when the lock came
	expires time.Duration // on the clock of Instant
	due     time.Duration // when Tick looks at it next; not after expires
	stored  time.Duration // lease with which the store keeps it; 0 if it does not
	wanted  time.Duration // in the state keeping: the lease that the store should keep
}

// Left returns what is left of the lease.
func (l *Lock) Left(now time.Duration) time.Duration { return max(l.expires-now, 0) }

// Written reports whether the store keeps the lock.
func (l *Lock) Written() bool { return l.stored > 0 }

// Instant is when an input comes.
type Instant struct {
	Now     time.Duration // since the worker's start, on its monotonic clock
	Cancels uint64        // how often everything that the partition had admitted was cancelled by then
}

// Machine is the locks of one partition. Its user calls it under one mutex. Closed, it keeps its
// locks frozen; Open and Close change that.
type Machine struct {
	Host Host
	TTL  time.Duration // of a session

	open   bool         // the partition is served
	big    bool         // byID and order have had more than keepRoom
	byID   map[ID]*Lock // waiting, or their holders'
	order  byDue        // all but those that wait
	count  [states]int32
	size   int    // of the text of all, at most
	stored int    // locks that the store keeps
	done   memory // for a TTL after the latest change
	forget time.Duration
}

// Host is the partition on which a Machine acts.
type Host interface {
	Valid(key string) bool
	Holder(key string) (token int64)
	Install(key string, token int64, shared bool) (ok bool)
	Share(key string, token int64)                 // lets others share the key with the locks of that token
	SetRemote(key string, token int64) (late bool) // whether the table was closed since the key was won
	Unlock(key string, token int64)

	Write(list ...records.WrittenLock) // has the store keep locks, or remove those without a text
	Settle(l *Lock, made bool)         // what the store was asked for is done, or is not waited for any more
	EndWait(l *Lock)                   // the call of l is not to wait any longer
	Tell(l *Lock, e Event)
	Ended() // the last lock has ended that was frozen, or lost
}

// ended is an id that has ended: requests lock nothing by it any more.
type ended struct {
	id   ID
	call uint64 // of the only request for which it has ended, which has abandoned it; 0 after a release
}

// memory is the ids that ended last.
type memory struct {
	order []ended                 // the latest at the end
	was   map[ended]holder.Answer // to each: what a release is answered that is repeated
}

// add adds an id, unless it has ended before.
func (m *memory) add(e ended, was holder.Answer) {
	if _, ok := m.was[e]; ok {
		return
	}
	if m.was == nil {
		m.was = make(map[ended]holder.Answer)
	}
	if len(m.order) == maxEnded {
		delete(m.was, m.order[0])
		m.order = m.order[1:]
	}
	m.order, m.was[e] = append(m.order, e), was
}

// has reports whether an id has ended for a request.
func (m *memory) has(id ID, call uint64) bool {
	_, released := m.was[ended{id: id}]
	_, abandoned := m.was[ended{id, call}]
	return released || abandoned
}

const (
	keepRoom = 8       // locks for which a machine without any keeps room
	maxText  = 1 << 20 // bytes of the text with which the locks of a partition travel
	maxEnded = 256     // ids whose end is remembered
)

// Errors of a Machine.
var (
	ErrOtherRequest = errors.New("worker: this name of a lock is taken by another request")
	ErrWaits        = errors.New("worker: another call with this name of a lock waits") // and its wait ends now
	ErrElsewhere    = errors.New("worker: the partition is not served")
	ErrEnded        = errors.New("worker: the lock has ended, and its key is not free yet")
	ErrNotHeld      = errors.New("worker: the caller does not hold the key")
	ErrFull         = errors.New("worker: the partition has the most held keys that can move with it")
	ErrKeepFirst    = errors.New("worker: the store has to keep the lock first") // see Machine.Extend
	ErrNoSession    = errors.New("worker: the session may be over")
)

// Serves reports whether the partition is served.
func (m *Machine) Serves() bool { return m.open }

// Len returns how many locks there are, how many calls wait, and how many locks the store keeps.
func (m *Machine) Len() (locks, waits, stored int) {
	return len(m.order), int(m.count[waiting]), m.stored
}

// All returns the locks of a partition that is served.
func (m *Machine) All() []*Lock {
	if !m.open {
		return nil
	}
	return slices.Clone(m.order)
}

// Lingers reports whether there are locks of a partition that is not served, or lost ones.
func (m *Machine) Lingers() bool { return !m.open && len(m.order) > 0 || m.count[lost] > 0 }

// Has reports whether l is its holder's, in a partition that is served.
func (m *Machine) Has(l *Lock) bool { return m.open && m.byID[l.ID] == l }

// KeyOf returns the key of a lock, or of the wait for one; "" if it is not known.
func (m *Machine) KeyOf(id ID) string {
	if l := m.byID[id]; l != nil {
		return l.Key
	}
	return ""
}

// Holder returns the lock that holds a key with that token. If several share the key, it returns the one with the
// longest rest of its lease, and their number.
func (m *Machine) Holder(key string, token int64) (l Lock, shared int, ok bool) {
	for _, other := range m.order {
		if other.Token != token || other.Key != key {
			continue
		}
		if other.Shared {
			shared++
		}
		if l.expires < other.expires {
			l, ok = *other, true
		}
	}
	return l, shared, ok
}

// vouches reports whether the holder of l may rely on its key: the store keeps the lock, or nothing
// was cancelled since the key was asked for. The shell reads the session's lease before at.Cancels:
// read later, the lease might be the next incarnation's.
func (m *Machine) vouches(at Instant, l *Lock) bool {
	switch l.state {
	case held, keeping, written:
		return l.stored > 0 || l.cancels == at.Cancels
	}
	return false
}

// find returns the holder's lock of that id, which may be about to end; nil if there is none. If the machine vouches for
// the lock no longer, the lock is lost from now on, so that it takes no other lock's place.
func (m *Machine) find(at Instant, id ID) *Lock {
	l := m.byID[id]
	switch {
	case l == nil || l.state == waiting:
		return nil
	case l.state == held && !m.vouches(at, l):
		m.lose(l)
		return nil
	}
	return l
}

// lose leaves nothing of a lock but what keeps its key from others.
func (m *Machine) lose(l *Lock) {
	delete(m.byID, l.ID)
	m.set(l, lost)
	m.Host.Tell(l, Lost)
}

// fits reports whether the text of locks may become that much longer.
func (m *Machine) fits(size int) bool { return m.size+size+maxEnded*endedSize <= maxText }

// remember records the end of an id for a TTL, unless maxEnded others come.
func (m *Machine) remember(at Instant, e ended, was holder.Answer) {
	m.done.add(e, was)
	m.forget = at.Now + m.TTL
}

// refusal returns the error of a call that arrives after the id of its lock has ended; nil for other calls.
func (m *Machine) refusal(l *Lock) error {
	if m.done.has(l.ID, l.Call) {
		return fmt.Errorf("%w: %q: this lock was released, and a new lock needs a new id", ErrNotHeld, l.Key)
	}
	return nil
}

// Acquire asks for the key of l. If there is a lock with the id of l, Acquire returns it, with a
// new lease. If that lock's call still waits, the error is ErrWaits and the wait ends: ask again
// after that. Otherwise it returns nil, and l waits until [Machine.Won] or [Machine.Refused].
func (m *Machine) Acquire(at Instant, l *Lock) (*Lock, error) {
	if err := m.refusal(l); err != nil {
		return nil, err
	}
	mine := m.find(at, l.ID)
	before := m.byID[l.ID]
	if before != nil {
		if err := before.isFor(l.Key, l.Shared); err != nil {
			return nil, err
		}
	}
	switch {
	case mine != nil && !m.open:
		return nil, ErrElsewhere
	case mine != nil && !m.vouches(at, mine):
		return nil, ErrEnded
	case mine != nil:
		if mine.found = true; mine.Call != l.Call {
			mine.Call = 0
		}
		mine.expires = max(mine.expires, at.Now+mine.Lease)
		return mine, nil
	case before != nil:
		m.Host.EndWait(before)
		return before, ErrWaits
	case !m.fits(l.size()):
		return nil, ErrFull
	}
	m.set(l, waiting)
	m.name(l)
	return nil, nil
}

// Won makes l, whose key was won with that token, a lock. cancels is Instant.Cancels from before the key was asked for.
// If Won returns an error, l is none, and the caller has the key to free.
func (m *Machine) Won(at Instant, l *Lock, token int64, cancels uint64) error {
	err := m.refusal(l)
	switch {
	case err != nil:
	case !m.fits(l.size()):
		err = ErrFull
	case m.Host.SetRemote(l.Key, token):
		err = ErrElsewhere
	}
	if err != nil {
		m.Refused(l)
		return err
	}
	l.Token, l.cancels, l.expires = token, cancels, at.Now+l.Lease
	m.add(l, held, Granted)
	return nil
}

// Refused ends the wait of l. It reports whether a lock of that id has come with the partition meanwhile.
func (m *Machine) Refused(l *Lock) (again bool) {
	m.set(l, none)
	m.unname(l)
	other := m.byID[l.ID]
	return other != nil && other.state != waiting
}

// name makes l the lock that is found by its id.
func (m *Machine) name(l *Lock) {
	if m.byID == nil {
		m.byID = make(map[ID]*Lock)
	}
	m.byID[l.ID] = l
}

// unname makes l unknown by its id.
func (m *Machine) unname(l *Lock) {
	if m.byID[l.ID] == l {
		delete(m.byID, l.ID)
	}
	if m.big && len(m.order)+len(m.byID) == 0 {
		m.byID, m.order, m.big = nil, nil, false
	}
}

// add adds a lock, whose key is held with its token.
func (m *Machine) add(l *Lock, s state, e Event) {
	m.set(l, s)
	m.size += l.size()
	if l.Written() {
		m.stored++
	}
	l.due = l.expires
	heap.Push(&m.order, l)
	m.big = m.big || len(m.order) > keepRoom
	m.Host.Tell(l, e)
}

// remove removes a lock, and frees its key.
func (m *Machine) remove(l *Lock, e Event) {
	last := l.state == lost && m.count[lost] == 1
	m.size -= l.size()
	heap.Remove(&m.order, int(l.place))
	m.keep(l, 0)
	m.set(l, none)
	m.unname(l)
	m.Host.Tell(l, e)
	m.Host.Unlock(l.Key, l.Token)
	if last || !m.open && len(m.order) == 0 {
		m.Host.Ended()
	}
}

// finish ends a lock of a partition that is served. If the store may keep the lock, it ends once the store has removed
// it, and finish returns the lock.
func (m *Machine) finish(l *Lock, e Event) *Lock {
	switch l.state {
	case held, blocked, lost:
		m.remove(l, e)
		return nil
	case keeping, written:
		l.end, l.due = e, never
		heap.Fix(&m.order, int(l.place))
		m.askStore(l, removing, 0)
	}
	return l
}

// Renew renews a lock for its lease from now on. A worker that is not sure of its own session knows
// of no lock, since others may serve the partition; sure is read before at.
func (m *Machine) Renew(at Instant, id ID, token int64, sure bool) holder.Answer {
	l := m.find(at, id)
	switch {
	case !m.open, !sure:
		return holder.Elsewhere
	case l == nil, !m.vouches(at, l), !l.has(token):
		return holder.Gone
	}
	l.expires = max(l.expires, at.Now+l.Lease)
	m.Host.Tell(l, Renewed)
	return holder.Held
}

// has reports whether l was granted with that token. It also does for 0, from a caller that does
// not know its token. A late call may have acquired another lock of the same id.
func (l *Lock) has(token int64) bool { return token == 0 || token == l.Token }

// Release ends a lock, or the wait for it, as well as a lock of its id with another token. If it returns a lock, the answer is
// true once the store has removed that lock. A worker that is not sure of its own session ends no lock, as in Renew.
func (m *Machine) Release(at Instant, id ID, token int64, sure bool) (holder.Answer, *Lock) {
	l := m.find(at, id)
	wait := m.byID[id]
	waits := l == nil && wait != nil
	if waits {
		m.Host.EndWait(wait)
	}
	if !m.open || !sure {
		return holder.Elsewhere, nil
	}
	a, again := m.done.was[ended{id: id}]
	if !again {
		if waits && token == 0 || l != nil && l.has(token) && (m.vouches(at, l) || l.state == removing && l.end == Released) {
			a = holder.Held
		}
		m.remember(at, ended{id: id}, a)
	}
	switch {
	case l == nil:
		return a, nil
	case a == holder.Held:
		return a, m.finish(l, Released)
	}
	return a, m.finish(l, Lost)
}

// Abandon ends what a request has locked, unless another request has found it, and makes late attempts of the request lock
// nothing. A frozen lock stays, since its next owner may have it already.
func (m *Machine) Abandon(at Instant, id ID, call uint64) {
	if !m.open {
		return
	}
	m.remember(at, ended{id, call}, holder.Gone)
	if l := m.find(at, id); l != nil && l.Call == call {
		m.finish(l, Released)
	}
}

// GiveUp ends a lock whose call has ended, unless another call has found it. A frozen lock stays.
func (m *Machine) GiveUp(at Instant, l *Lock) {
	if m.open && m.find(at, l.ID) == l && !l.found {
		m.finish(l, Released)
	}
}

// Unlock ends all locks of a key in a served partition, regardless of holder, and calls ending
// before each ends. It returns the locks that the store may keep.
func (m *Machine) Unlock(at Instant, key string, ending func(*Lock)) (removed []*Lock) {
	for _, l := range m.All() {
		if l.Key == key {
			ending(l)
			removed = append(removed, m.finish(l, Forced))
		}
	}
	return slices.DeleteFunc(removed, func(l *Lock) bool { return l == nil })
}

// isFor reports whether a call for that key, to share it or not, asks for l: the error says what differs. All calls that
// find a lock by its id ask it.
func (l *Lock) isFor(key string, shared bool) error {
	switch {
	case l.Key != key:
		return fmt.Errorf("%w: it is of another key than %q", ErrOtherRequest, key)
	case l.Shared && !shared:
		return fmt.Errorf("%w: it locks key %q for reading, and this call asks for writing", ErrOtherRequest, key)
	case shared && !l.Shared:
		return fmt.Errorf("%w: it locks key %q for writing, and this call asks for reading", ErrOtherRequest, key)
	}
	return nil
}
