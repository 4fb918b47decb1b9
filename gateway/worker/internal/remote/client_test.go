package remote

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/ring/handoff"
	"github.com/keyway-go/keyway/ring/lease"
)

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

// is reports whether the machine of h has that state, or course.
func (h *holding) is(name string) bool { return h.state() == name || h.course() == name }

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

// took notes a transition.
func (w *world) took(who, from, to string) {
	if w.cover != nil {
		w.cover[transition{who, from, to}]++
	}
}

// transition is one that a lock has taken, of an owner or a holder.
type transition struct{ who, from, to string }

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

// keeps says who holds the lock of h for its holder; "" if nobody does.
func (w *world) keeps(h *holding) string {
	x := w.workers[w.part.owner]
	switch l := x.machine.byID[h.id]; {
	case !x.owns():
		if slices.ContainsFunc(w.part.written, func(k handoff.WrittenLock) bool { id, token := idOf(k); return id == h.id && token == h.token }) {
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

// calling sends a call about h, to the worker that has confirmed it last or to the owner.
func (w *world) calling(c *caller, h *holding, k kind, toOwner bool) {
	o := &call{caller: c, id: h.id, kind: k, number: 1, sent: w.now, key: "k", shared: h.shared, token: h.token, at: -1, to: h.peer, owner: toOwner}
	w.calls = append(w.calls, o)
}

// ask asks for the key.
func (w *world) ask(c *caller) {
	k := c.client
	c.id[1]++
	c.claimed = false
	k.asks, k.waits = true, k.turns
	w.calls = append(w.calls, &call{caller: c, id: c.id, kind: acquire, number: 1, sent: w.now, key: "k", shared: c.shared, lease: c.lease, turns: k.turns, at: -1, owner: true})
}

// target is the worker to which a call of a client goes.
func (c *call) target() int {
	if c.owner && !c.lost {
		return c.caller.client.table
	}
	return c.to
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
		k.stopped = false
		w.tickClient(c)
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

// lose has nobody wait for a call of a client.
func (c *call) lose() {
	if c.stage == sent {
		c.to = c.target()
	}
	c.lost = true
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
		k.holds = append(k.holds, holding{lock: holder.New(ttl, w.instant(), holder.Grant{Lease: ttl}), id: c.id, shared: c.shared, peer: at})
		w.end(c, &k.holds[len(k.holds)-1])
	}
}

// taker is the worker that may have taken a call.
func (c *call) taker() int {
	if c.at >= 0 {
		return c.at
	}
	return c.target()
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

// see notes that a caller begins to work.
func (w *world) see(token int64, shared bool) {
	if s := &w.seen; token < s.token || token == s.token && !(shared && s.shared) {
		w.fail("S2: a caller begins with token %s after %s", tokenText(token), tokenText(s.token))
	} else {
		*s = told{token: token, shared: shared}
	}
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
		w.let(c, h, "tick", func(l *holder.Lock) holder.Decision { return l.Tick(w.instant(), false) })
	}
}

// takes reports whether a worker takes a call that was sent.
func (w *world) takes(c *call) bool {
	x := w.workers[c.target()]
	return x.up && (x.machine.open || !c.owner)
}

// callActions appends what can happen to a call of a client next, but for what its worker does.
func (w *world) callActions(i int, c *call, add func(e event, a, b int)) {
	k := c.caller.client
	switch {
	case k.quick:
		return
	case c.stage == sent && w.takes(c):
		add(evDeliver, i, c.target())
	case c.stage == sent && !c.owner && !c.lost && !w.workers[c.to].up && !k.stopped:
		add(evVain, i, 0)
	case c.lost && c.kind == acquire && !c.gone && (c.stage == queued || c.stage == retrying || c.stage == storing):
		add(evLeft, i, 0)
	}
	if c.lost || k.stopped {
		return
	}
	if c.stage == answered {
		add(evHear, i, 0)
	}
	if c.stage != sent || w.takes(c) {
		add(evLose, i, 0)
		if c.kind != acquire && (c.owner || c.kind == release) {
			add(evGiveUp, i, 0)
		}
	}
}

// serve has a worker take a call of a client.
func (w *world) serve(c *call, x *worker) {
	c.at, c.stage = x.slot, answered
	_, vouch := x.vouch()
	switch c.kind {
	case acquire:
		w.enter(c, x)
	case renew:
		c.answer.grant.token = c.token
		c.answer.promise.Cancel, c.answer.promise.Surrender = x.vouch()
		if c.answer.what = x.machine.Renew(x.at(), c.id, c.token, vouch > 0); c.answer.what == Held {
			l := x.machine.byID[c.id]
			w.limit(l, l.Lease)
		}
	case extend:
		c.lock = &Lock{ID: c.id}
		c.stage = granted
		w.finish(c, x)
	case release:
		what, removed := x.machine.Release(x.at(), c.id, c.token, vouch > 0)
		if c.answer.what = what; what == Held {
			for i := range c.caller.client.holds {
				h := &c.caller.client.holds[i]
				if h.id != c.id {
					continue
				}
				if h.token != 0 && !h.released && w.seen.token > h.lock.Token() {
					w.fail("L: %s says that client %d had token %s up to now, after %s", x.name(), c.caller.slot, tokenText(h.lock.Token()), tokenText(w.seen.token))
				}
				if !h.released && removed == nil {
					h.sure = w.now + ttl
				}
				h.released = true
			}
		}
		if removed != nil {
			c.stage, c.back = storing, removed
		}
	}
	w.say("%s: %v: %s", x.name(), c, w.words(c))
}

// isRefused reports whether an answer says that another worker is to be asked.
func (c *call) isRefused() bool {
	return c.kind == acquire && !c.answer.ok || c.owner && c.answer.what == Elsewhere && !c.answer.freed && !c.answer.ok
}

// receive lets a client have an answer.
func (w *world) receive(o *call) {
	c := o.caller
	k := c.client
	if o.isRefused() {
		w.learn(c, w.part.owner)
		w.calls = append(w.calls, o.again(w.now))
		return
	}
	now, asked, a := w.instant(), lease.Instant{Mono: o.sent, Wall: o.sent}, &o.answer
	grant := holder.Grant{Promise: a.promise, Token: a.grant.token, Lease: a.lease, Next: a.next, Turns: a.turns}
	if o.kind == acquire {
		k.asks, k.unsure = false, nil
		k.holds = append(k.holds, holding{lock: holder.New(ttl, asked, grant), id: o.id, token: a.grant.token, shared: o.shared, peer: o.at})
		w.confirm(c, &k.holds[len(k.holds)-1])
		return
	}
	h := k.holdOf(o)
	if o.owner && o.kind != release && h.lock.Has(h.lock.Token()) && (o.kind == renew || a.ok) {
		h.peer = o.at
	}
	says := [...]holder.Answer{Gone: holder.Gone, Held: holder.Held, Elsewhere: holder.Elsewhere}[a.what]
	if a.freed {
		says = holder.Released
	}
	switch o.kind {
	case renew:
		w.let(c, h, "renewed", func(l *holder.Lock) holder.Decision { return l.Renewed(now, asked, says, a.promise) })
		w.confirm(c, k.find(o.id))
		w.tickClient(c) // it looks at its locks again soon
	case extend:
		if a.ok {
			w.let(c, h, "extended", func(l *holder.Lock) holder.Decision { return l.Extended(now, asked, grant, o.repeated) })
		}
		h.lock.Unextended()
		if !a.ok {
			w.let(c, h, "lose", func(l *holder.Lock) holder.Decision { return l.Lose() })
		}
	case release:
		w.let(c, h, "answered", func(l *holder.Lock) holder.Decision { return l.Answered(says, o.repeated) })
	}
}

// holdOf returns the lock that a call is about.
func (k *client) holdOf(o *call) *holding {
	for i := range k.holds {
		if h := &k.holds[i]; h.id == o.id && (h.token != 0 || h.peer == o.to) {
			return h
		}
	}
	return nil
}

// again returns another attempt of a call to the owner.
func (c *call) again(now time.Duration) *call {
	return &call{
		caller: c.caller, id: c.id, kind: c.kind, number: c.number, sent: now, key: c.key, shared: c.shared, token: c.token, lease: c.lease, turns: c.turns,
		at: -1, to: c.to, owner: true, repeated: c.repeated,
	}
}

// fails ends a call of a client without an answer. started says that a worker may have taken it; giveUp that it is not
// made again.
func (w *world) fails(o *call, started, giveUp bool) {
	c := o.caller
	k := c.client
	h, away := k.holdOf(o), !o.owner && k.table != o.to
	if k.faults = k.faults || started; o.owner && !giveUp {
		if o.kind == acquire {
			k.unsure = append(k.unsure, o.taker())
		}
		again := o.again(w.now)
		again.repeated = true
		o.lose()
		w.calls = append(w.calls, again)
		return
	}
	o.lose()
	repeated := started || o.repeated
	switch o.kind {
	case renew:
		w.let(c, h, "failed", func(l *holder.Lock) holder.Decision { l.Failed(away); return holder.Wait })
		w.confirm(c, h)
		w.tickClient(c)
	case extend:
		h.lock.Unextended()
	case release:
		w.let(c, h, "unanswered", func(l *holder.Lock) holder.Decision {
			d := l.Unanswered(repeated, away)
			if d == holder.Release && (o.owner || giveUp) {
				d = l.GiveUp(w.instant(), k.closed)
			}
			return d
		})
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
			if h.lock.Left(w.instant(), h.lock.Token()) == 0 || h.is("lost") || !h.lock.Has(h.lock.Token()) {
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
	case v.Type() == instantType:
		p.times(time.Duration(v.Field(0).Int()))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			p.fields(v.Field(i))
		}
	case v.Kind() == reflect.Bool:
		p.bools(v.Bool())
	case v.CanInt():
		p.int(v.Int())
	default:
		p.int(int64(v.Uint()))
	}
}

// fair lets a world go on without anything more that goes wrong, until nobody waits and no key is held.
func (s *search) fair(w *world) error {
	left := w.left
	w.left = [events]int8{}
	h := s.fingerprint(w)
	known := s.isGood(h)
	path := []uint64{h}
	if !known {
		was := w
		w = w.clone()
		w.log, w.cover = nil, nil
		was.left = left
		for end, n := w.now+6*ttl, 0; !known; n++ {
			switch {
			case w.now >= end:
				return fmt.Errorf("waits for ever: %s", w.unquiet())
			case n == 60 || !w.goesOn(n > 30): // what is refused is asked again, and again
				w.do(action{event: evTime})
				n = 0
			}
			if w.bad != nil {
				return fmt.Errorf("%w, in a fair run", w.bad)
			}
			h := s.fingerprint(w)
			path = append(path, h)
			known = s.isGood(h) || w.unquiet() == ""
		}
	} else {
		w.left = left
	}
	for _, h := range path {
		s.good[h] = struct{}{}
	}
	return nil
}

func (s *search) isGood(h uint64) bool {
	_, ok := s.good[h]
	return ok
}

// goesOn lets something happen that takes no time, and reports whether there was anything.
func (w *world) goesOn(again bool) bool {
	p := &w.part
	anybody := slices.ContainsFunc(w.workers, func(x *worker) bool { return x.up })
	for _, x := range w.workers {
		if !x.up && !anybody {
			w.do(action{evStart, int8(x.slot), 0})
			return true
		}
	}
	if owner := w.workers[p.owner]; p.to >= 0 && owner.owns() && owner.alive() && !w.workers[p.to].alive() {
		w.do(action{event: evResume})
		return true
	}
	for _, c := range w.callers {
		if c.client == nil && c.phase != idle && c.phase != holds && !slices.ContainsFunc(w.calls, func(o *call) bool { return o.caller == c }) {
			c.phase = idle
			return true
		}
	}
	for i, c := range w.calls {
		if c.lost && c.kind == acquire && c.stage != sent && !c.gone {
			c.gone = true
			return true
		}
		if c.lost && c.stage == sent && !w.takes(c) {
			w.calls = slices.Delete(w.calls, i, i+1)
			return true
		}
	}
	list := w.actions(nil)
	slices.Reverse(list) // workers come before those who call them
	i := slices.IndexFunc(list, func(a action) bool { return a.event > events && a.event != evVain })
	if i < 0 && again {
		return false
	}
	if i < 0 {
		i = slices.IndexFunc(list, func(a action) bool { return a.event == evVain })
	}
	if i < 0 {
		return false
	}
	w.do(list[i])
	return true
}

// unquiet says who waits, or holds a key; "" if nobody does.
func (w *world) unquiet() string {
	if len(w.calls) > 0 {
		return fmt.Sprintf("%v is %v", w.calls[0], w.calls[0].stage)
	}
	for _, c := range w.callers {
		switch k := c.client; {
		case k == nil && c.phase != idle:
			return fmt.Sprintf("caller %d %v", c.slot, c.phase)
		case k != nil && (k.asks || len(k.holds) > 0 || k.waits > 0):
			return fmt.Sprintf("client %d has %d locks, and %d wait", c.slot, len(k.holds), k.waits)
		}
	}
	for _, x := range w.workers {
		if x.up && (len(x.machine.order) > 0 || len(x.machine.byID) > 0) {
			return fmt.Sprintf("%s has %v", x.name(), &x.machine)
		}
	}
	if p := &w.part; !p.opened || p.to >= 0 || len(p.written) > 0 {
		return "the partition is not served"
	}
	return ""
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
