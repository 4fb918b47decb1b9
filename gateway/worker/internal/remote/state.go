package remote

import "fmt"

// state says whose a lock is, and where it is known.
type state uint8

// The states of a lock.
const (
	none     state = iota // no lock: not yet, or not any more
	waiting               // its call waits for the key
	held                  // its holder's, and known to this worker alone
	keeping               // its holder's, while the store is asked to keep it, or to keep it longer
	written               // its holder's, and the store keeps it
	removing              // ended, but the store may keep it: its key is not free yet
	blocked               // nobody's: it keeps its key from others until its lease ends
	lost                  // as blocked, and of a life of this worker that may have lost its session
	states
)

// transitions are the allowed ones. Machine.set, which alone writes a state, checks them.
var transitions = [states][states]bool{
	none:     {waiting: true, held: true, written: true, blocked: true},
	waiting:  {held: true, none: true},
	held:     {keeping: true, written: true, lost: true, none: true},
	keeping:  {written: true, held: true, removing: true, none: true},
	written:  {keeping: true, removing: true, none: true},
	removing: {none: true},
	blocked:  {none: true},
	lost:     {none: true},
}

func (s state) String() string {
	return [states]string{"none", "waiting", "held", "keeping", "written", "removing", "blocked", "lost"}[s]
}

// set moves a lock to another state.
func (m *Machine) set(l *Lock, s state) {
	if !transitions[l.state][s] {
		panic(fmt.Sprintf("remote: the lock of key %q was %v and cannot be %v", l.Key, l.state, s))
	}
	m.count[l.state]--
	m.count[s]++
	l.state = s
}

// Event is something that happens to a lock.
type Event uint8

// The events of a lock.
const (
	Granted Event = iota
	Renewed
	Released
	Expired
	MovedIn
	MovedOut
	Lost   // with its partition
	Forced // released by an operator
	Events
)

func (e Event) String() string {
	return [Events]string{"granted", "renewed", "released", "expired", "moved-in", "moved-out", "lost", "forced"}[e]
}
