package remote

import (
	"reflect"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/records"
)

// took notes a transition.
func (w *world) took(who, from, to string) {
	if w.cover != nil {
		w.cover[transition{who, from, to}]++
	}
}

// transition is one that a lock has taken, of an owner or a holder.
type transition struct{ who, from, to string }

// keeps says who holds the lock of h for its holder; "" if nobody does.
func (w *world) keeps(h *holding) string {
	x := w.workers[w.part.owner]
	switch l := x.machine.byID[h.id]; {
	case !x.owns():
		if slices.ContainsFunc(w.part.written, func(k records.WrittenLock) bool { id, token := idOf(k); return id == h.id && token == h.token }) {
			return "the store"
		}
	case x.machine.open && l != nil && l.Token == h.token && l.expires > w.now && l.state != removing && x.machine.vouches(x.at(), l):
		return "worker " + x.name()
	}
	return ""
}

// tell has Unlock return.
func (w *world) tell(c *caller, h *holding, d holder.Decision) {
	if h.token == 0 {
		return // nobody waits for that
	}
	switch by := w.keeps(h); {
	case d == holder.TellReleased && !h.released:
		w.fail("L: client %d is told that lock %s was released, and it was not", c.slot, idText(h.id))
	case d == holder.TellNotOwner && h.released:
		w.fail("L: client %d is told that lock %s was not its own, and it has released it", c.slot, idText(h.id))
	case d <= holder.TellNotOwner && by != "":
		w.fail("L: client %d is told that lock %s has ended, and %s holds it", c.slot, idText(h.id), by)
	case d == holder.TellUnanswered && h.released && !c.claimed && w.now < h.sure:
		w.fail("L: client %d knows nothing of lock %s, and its owner has released it", c.slot, idText(h.id))
	case d >= holder.TellUnknown && !c.client.faults && !c.client.closed:
		w.fail("L: client %d knows nothing of lock %s, and no call was lost", c.slot, idText(h.id))
	}
}

// see notes that a caller begins to work.
func (w *world) see(token int64, shared bool) {
	if s := &w.seen; token < s.token || token == s.token && !(shared && s.shared) {
		w.fail("S2: a caller begins with token %s after %s", tokenText(token), tokenText(s.token))
	} else {
		*s = told{token: token, shared: shared}
	}
}

// checkClients holds the world to what clients believe.
func (w *world) checkClients() {
	type belief struct {
		who    int
		token  int64
		shared bool
	}
	var all [4]belief
	list := all[:0]
	for _, c := range w.callers {
		if c.client == nil {
			if c.believes() && c.hold.key == "k" {
				list = append(list, belief{c.slot, c.hold.token, c.hold.shared})
			}
			continue
		}
		for i := range c.client.holds {
			if h := &c.client.holds[i]; h.works(w.now) {
				list = append(list, belief{c.slot, h.lock.Token(), h.shared})
				if x := w.workers[w.part.owner]; x.owns() && x.admits() && x.keys.admits("k", !h.shared) {
					w.fail("S1: client %d works with token %s, and %s gives the key to others", c.slot, tokenText(h.lock.Token()), x.name())
				}
			}
		}
	}
	for i, a := range list {
		for _, b := range list[:i] {
			if !(a.shared && b.shared) {
				w.fail("S1: callers %d and %d both work, with tokens %s and %s", b.who, a.who, tokenText(b.token), tokenText(a.token))
			}
		}
	}
}

// checkClientsKept fails if a planned move has lost a lock that a client works under.
func (w *world) checkClientsKept(x *worker) {
	for _, c := range w.callers {
		if c.client == nil || c.client.dead {
			continue
		}
		for i := range c.client.holds {
			h := &c.client.holds[i]
			if h.lock.Left(w.instant()) == 0 || h.is("lost") || !h.lock.HasCaller() {
				continue
			}
			if l := x.machine.byID[h.id]; l == nil || l.Token != h.token || !x.machine.vouches(x.at(), l) {
				w.fail("M: lock %s of client %d is lost in a planned move to %s", idText(h.id), c.slot, x.name())
			}
		}
	}
}

func (p *printer) client(c *caller) {
	k := c.client
	p.int(int64(k.table), int64(k.waits), int64(len(k.holds)), int64(k.term))
	p.bools(c.claimed, k.asks, k.faults, k.stopped, k.dead, k.closed)
	for _, at := range k.unsure {
		p.int(int64(at))
	}
	for i := range k.holds {
		h := &k.holds[i]
		p.int(int64(h.id[1]), h.token, int64(h.peer))
		if p.bools(h.shared, h.begun, h.released); h.released {
			p.times(h.sure)
		}
		v := reflect.ValueOf(&h.lock).Elem()
		if state := v.Field(heldState).Uint(); state >= 3 { // lost
			p.int(int64(state), int64(v.Field(heldCourse).Uint()), h.lock.Token())
			p.times(h.surrender())
			continue
		}
		p.fields(v)
	}
}

var instantType = reflect.TypeFor[lease.Instant]()

// fields writes down a machine of package holder: its clocks show the world's time.
func (p *printer) fields(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Pointer: // the policy
	case v.Type() == instantType:
		p.times(time.Duration(v.Field(0).Int()))
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			p.fields(field)
		}
	case v.Kind() == reflect.Bool:
		p.bools(v.Bool())
	case v.CanInt():
		p.int(v.Int())
	default:
		p.int(int64(v.Uint()))
	}
}

// lockStates returns the states of the locks of all workers.
func (w *world) lockStates() map[*Lock]state {
	all := make(map[*Lock]state)
	for _, x := range w.workers {
		for _, l := range x.machine.order {
			all[l] = l.state
		}
		for _, l := range x.machine.byID {
			all[l] = l.state
		}
	}
	return all
}

// noteStates notes which transitions locks have taken in an action. A lock that was not there has waited for its key, if it
// did not come with its partition.
func (w *world) noteStates(before map[*Lock]state, e event) {
	for l, s := range before {
		if s == waiting && l.state > held {
			w.took("owner", "waiting", "held")
			s = held
		}
		if l.state != s {
			w.took("owner", s.String(), l.state.String())
		}
	}
	for l, s := range w.lockStates() {
		switch _, was := before[l]; {
		case was:
		case e == evOpen || e == evClaim:
			w.took("owner", "none", s.String())
		default:
			w.took("owner", "none", "waiting")
			if s != waiting {
				w.took("owner", "waiting", "held")
			}
		}
	}
}
