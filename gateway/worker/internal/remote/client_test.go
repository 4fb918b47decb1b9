package remote

import (
	"reflect"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/lease"
)

// policy is that of all clients' locks.
var policy = holder.Policy{TTL: ttl, TurnsFor: holder.Never}

// client is a process elsewhere that holds its locks by the machines of package holder, and the shell around them: what
// the holdings of gateway/router do. One caller after the other has its key.
type client struct {
	table   int  // the worker that it takes for the owner of the partition
	asks    bool // a call for the key is under way
	turns   int  // callers that it asks for, without the first
	waits   int  // callers that wait for their turns
	unsure  []int
	holds   []holding
	term    time.Duration // that it has asked for last
	faults  bool          // a call has been lost
	stopped bool          // the process stands still
	dead    bool
	closed  bool
	quick   bool // its calls take no time
}

// holding is a lock that a client holds, or gives back.
type holding struct {
	lock     holder.Lock
	id       ID
	token    int64 // with which it was granted; 0 if the owner has not answered
	shared   bool
	peer     int           // the worker that has confirmed it last
	begun    bool          // its caller works
	released bool          // an owner has released it
	sure     time.Duration // until when owners remember that, unless one dies
}

func (w *world) instant() lease.Instant { return lease.Instant{Mono: w.now, Wall: w.now} }

// field is a field of the machine, which the tests of this package may only read.
func (h *holding) field(index int) reflect.Value { return reflect.ValueOf(&h.lock).Elem().Field(index) }

func fieldOf(name string) int {
	f, _ := reflect.TypeFor[holder.Lock]().FieldByName(name)
	return f.Index[0]
}

var heldState, heldCourse, heldLease = fieldOf("state"), fieldOf("course"), fieldOf("lease")

// surrender is when the caller of h must have ended.
func (h *holding) surrender() time.Duration {
	return time.Duration(h.field(heldLease).Field(2).Field(0).Int()) // the last instant of a lease
}

// is reports whether the machine of h has that state.
func (h *holding) is(state string) bool { return h.state() == state }

const heldReleasing = 5 // the state from which on nobody has a lock

var (
	heldStates  = [...]string{"granted", "passing", "working", "lost", "closed", "releasing", "repeating", "freed", "over"}
	heldCourses = [...]string{"known", "renewing", "away", "seeking"}
)

func (h *holding) state() string {
	return heldStates[h.field(heldState).Uint()]
}

func (h *holding) course() string {
	return heldCourses[h.field(heldCourse).Uint()]
}

// works reports whether a caller may work with h.
func (h *holding) works(now time.Duration) bool { return h.begun && now < h.surrender() }

// find returns the lock of that id; nil if there is none.
func (k *client) find(id ID) *holding {
	if i := slices.IndexFunc(k.holds, func(h holding) bool { return h.id == id }); i >= 0 {
		return &k.holds[i]
	}
	return nil
}

// has returns the lock that callers have, or are to have; nil if there is none.
func (k *client) has() *holding {
	for i := range k.holds {
		if h := &k.holds[i]; h.field(heldState).Uint() < heldReleasing {
			return h
		}
	}
	return nil
}

// let gives the machine of h an input, and does what it decides.
func (w *world) let(c *caller, h *holding, name string, input func(l *holder.Lock) holder.Decision) {
	state, course := h.state(), h.course()
	d := input(&h.lock)
	if now := h.state(); now != state || d == holder.Pass {
		w.took("holder", state, now)
	}
	if now := h.course(); now != course {
		w.took("holder", course, now)
	}
	if w.log != nil {
		w.say("client %d: lock %s, %s: %s; %s, %s", c.slot, idText(h.id), name, decisionNames[d], h.state(), h.course())
	}
	k := c.client
	switch d {
	case holder.Renew:
		w.calling(c, h, renew, false)
	case holder.Seek:
		w.calling(c, h, renew, true)
	case holder.CancelOverdue, holder.CancelGone:
		if by := w.keeps(h); d == holder.CancelGone && by != "" {
			w.fail("L: client %d is told that lock %s is gone, and %s holds it", c.slot, idText(h.id), by)
		}
		if k.waits = 0; state == "granted" {
			w.end(c, h)
		}
	case holder.Pass:
		k.waits--
	case holder.Release:
		k.waits = 0
		w.calling(c, h, release, false)
	case holder.ReleaseAtOwner:
		w.calling(c, h, release, true)
	case holder.TellReleased, holder.TellNotOwner, holder.TellUnknown, holder.TellUnanswered:
		w.tell(c, h, d)
		for _, o := range w.calls {
			if o.caller == c && k.holdOf(o) == h {
				o.lose()
			}
		}
		k.holds = slices.DeleteFunc(k.holds, func(o holding) bool { return o.is("over") })
	}
}

var decisionNames = [...]string{
	"wait", "begin", "renew", "seek", "cancel, overdue", "cancel, gone", "pass", "release", "release at the owner",
	"released", "not owner", "unknown", "unanswered",
}

// ask asks for the key.
func (w *world) ask(c *caller) {
	k := c.client
	c.id[1]++
	c.claimed = false
	k.asks, k.waits = true, k.turns
	w.calls = append(w.calls, &call{caller: c, id: c.id, kind: acquire, sent: w.now, key: "k", shared: c.shared, lease: c.lease, turns: k.turns, at: -1, owner: true})
}

// clientActions appends what a client can do next.
func (w *world) clientActions(c *caller, add func(e event, a, b int)) {
	k := c.client
	switch {
	case k.dead:
		return
	case k.stopped:
		add(evGo, c.slot, 0)
		return
	}
	h := k.has()
	switch {
	case h == nil && !k.asks && !k.closed && (c.slot == 0 || c.id[1] > 0 || !w.isAlike(c)):
		add(evAsk, c.slot, 0)
	case h == nil:
	case h.begun:
		add(evEnd, c.slot, 0)
	case h.is("passing"):
		add(evBegin, c.slot, 0)
		add(evEnd, c.slot, 0)
	case !h.is("granted"):
		add(evEnd, c.slot, 0)
	}
	if k.quick {
		return
	}
	if h != nil && h.begun && h.is("working") && !slices.ContainsFunc(w.calls, func(o *call) bool { return o.id == h.id && o.kind == extend && !o.lost }) {
		add(evExtend, c.slot, 0)
	}
	if k.asks || h != nil && h.is("granted") {
		add(evAbandon, c.slot, 0)
	}
	for _, x := range w.workers { // whoever the ring names, while nobody else is known
		if x.slot != k.table && (x.slot == w.part.owner || !w.workers[k.table].up && x.machine.open) {
			add(evLearn, c.slot, x.slot)
		}
	}
	add(evDie, c.slot, 0)
	add(evStop, c.slot, 0)
	if h != nil && !k.closed {
		add(evClose, c.slot, 0)
	}
}

// isAlike reports whether the caller before c does what c does, and has not asked yet: which of the two is first makes no
// difference.
func (w *world) isAlike(c *caller) bool {
	before := w.callers[c.slot-1]
	return w.sc.callers[c.slot] == w.sc.callers[c.slot-1] && before.id[1] == 0
}

// hurry lets the calls of quick clients go on.
func (w *world) hurry() {
	for i := 0; i < len(w.calls); i++ {
		c := w.calls[i]
		if c.caller.client == nil || !c.caller.client.quick || c.lost {
			continue
		}
		if k := c.caller.client; k.table != w.part.owner {
			w.learn(c.caller, w.part.owner)
		}
		switch {
		case c.stage == sent && w.takes(c):
			w.serve(c, w.workers[c.target()])
		case c.stage == sent && !c.owner && !w.workers[c.to].up && c.caller.client.table != c.to:
			w.calls = slices.Delete(w.calls, i, i+1)
			w.fails(c, false, false)
		case c.stage == answered && !c.isRefused():
			w.calls = slices.Delete(w.calls, i, i+1)
			w.receive(c)
		case c.stage == answered && w.takes(c.again(w.now)):
			w.calls = slices.Delete(w.calls, i, i+1)
			w.receive(c)
			continue
		case c.stage != answered && w.canStep(c):
			w.step(c)
		default:
			continue
		}
		w.goOn(c)
		i = -1
	}
}

// clientDoes lets a client do something.
func (w *world) clientDoes(c *caller, e event, x int) {
	k := c.client
	h := k.has()
	switch e {
	case evAsk:
		w.ask(c)
	case evBegin:
		w.begin(c, h)
	case evEnd:
		w.end(c, h)
	case evExtend:
		term := time.Duration(0)
		w.let(c, h, "extend", func(l *holder.Lock) holder.Decision { term = l.Extend(c.extension()); return holder.Wait })
		w.calling(c, h, extend, true)
		w.calls[len(w.calls)-1].lease = term
	case evAbandon:
		w.giveBack(c, h)
	case evLearn:
		w.learn(c, x)
	case evStop:
		k.stopped = true
	case evGo:
		k.stopped = false // it looks at its locks later
	case evClose:
		k.closed, k.waits = true, 0
		if !h.is("granted") { // nobody else has it
			w.closeHold(c, h)
		}
	case evDie:
		*k = client{table: k.table, dead: true}
		for _, o := range w.calls {
			if o.caller == c {
				o.lose()
			}
		}
	}
}

// extension is the lease that a client asks for next: a shorter one in place of a long one, or else longer and longer ones.
func (c *caller) extension() time.Duration {
	if c.lease > ttl {
		return 2 * ttl / 5
	}
	c.client.term = max(c.client.term, ttl) + ttl
	return c.client.term
}

// learn lets a client take a worker for the owner. Calls that no worker has taken go there.
func (w *world) learn(c *caller, owner int) {
	c.client.table = owner
	for _, o := range w.calls {
		if o.caller == c && o.owner && !o.lost && o.stage == sent {
			o.sent = w.now
		}
	}
}

// giveBack ends an acquisition before anybody works with the lock. What an owner may have granted is released.
func (w *world) giveBack(c *caller, h *holding) {
	k := c.client
	if !k.asks {
		k.waits = 0
		w.end(c, h)
		return
	}
	for _, o := range w.calls {
		if o.caller == c && o.kind == acquire && !o.lost {
			k.unsure = append(k.unsure, o.taker())
			o.lose()
		}
	}
	slices.Sort(k.unsure)
	unsure := slices.Compact(k.unsure)
	k.asks, k.waits, k.unsure, k.faults = false, 0, nil, true
	for _, at := range unsure {
		k.holds = append(k.holds, holding{lock: holder.New(&policy, w.instant(), holder.Grant{Lease: ttl}), id: c.id, shared: c.shared, peer: at})
		w.end(c, &k.holds[len(k.holds)-1])
	}
}

// confirm goes on with a lock that was granted, as the shell does at once.
func (w *world) confirm(c *caller, h *holding) {
	if h == nil || !h.is("granted") || h.token == 0 || slices.ContainsFunc(w.calls, func(o *call) bool { return o.id == h.id && o.kind == renew && !o.lost }) {
		return
	}
	begins := false
	w.let(c, h, "confirm", func(l *holder.Lock) holder.Decision {
		d := l.Confirm(w.instant())
		begins = d == holder.Begin
		return d
	})
	switch k := c.client; {
	case !begins:
	case k.turns > 0:
		w.let(c, h, "give", func(l *holder.Lock) holder.Decision { l.Give(); return holder.Wait })
	default:
		w.begin(c, h)
	}
}

func (w *world) begin(c *caller, h *holding) {
	begins := false
	if c.client.closed && !h.is("closed") {
		w.closeHold(c, h)
	}
	w.let(c, h, "begin", func(l *holder.Lock) holder.Decision {
		d := l.Begin(w.instant())
		begins = d == holder.Begin
		return d
	})
	if !begins {
		w.end(c, h)
		return
	}
	h.begun = true
	w.see(h.lock.Token(), h.shared)
}

func (w *world) closeHold(c *caller, h *holding) {
	w.let(c, h, "close", func(l *holder.Lock) holder.Decision { l.Close(); return holder.Wait })
}

func (w *world) end(c *caller, h *holding) {
	h.begun = false
	k := c.client
	w.let(c, h, "end", func(l *holder.Lock) holder.Decision { return l.End(w.instant(), k.waits > 0) })
}

// tickClient is holdings.tick of gateway/router.
func (w *world) tickClient(c *caller) {
	k := c.client
	if h := k.has(); h != nil && !k.stopped && !k.dead && !k.closed {
		w.let(c, h, "tick", func(l *holder.Lock) holder.Decision { return l.Tick(w.instant()) })
	}
}
