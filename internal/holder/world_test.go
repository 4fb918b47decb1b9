package holder

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/keyway-go/keyway/internal/lease"
)

// Times of the explored worlds.
const (
	ttl  = time.Second
	slow = ttl / 5 // age at which a call is given up
)

// kind is a kind of call.
type kind uint8

const (
	none kind = iota
	acquire
	renewal
	extension
	release
)

var kindNames = [...]string{"none", "acquire", "renewal", "extension", "release"}

// call is a call under way, or the rest of one whose caller does not wait for it any more.
type call struct {
	kind     kind
	answered bool
	repeated bool // an attempt before may have had its effect
	to       int8 // worker; owner if it looks for that
	sent     lease.Instant
	term     time.Duration // of an extension, and in a store of any call

	state Answer
	grant Grant
}

const owner int8 = -1

// Calls under way, one of each; the last one is a request that nobody waits for.
const (
	inRenewal = iota
	inExtension
	inRelease
	inStray
	inAll
)

// budget is how often what may go wrong still does.
type budget struct {
	lost, stray, moves, crashes, cuts, heals, stalls, suspends, others, forgets, extends, deaths, closes, leaves int8
}

// remote is the lock as its owners know it.
type remote struct {
	live    bool
	written bool          // the store keeps it
	kept    bool          // the store keeps it, though it was released
	alien   bool          // a late request has made it, after the process has had its lock
	token   int64         // with which it was granted
	term    time.Duration // of its lease
	expires time.Duration
}

// world is a process with one lock, the owners of its key, and what is between them. It is comparable: it is copied by
// assignment.
type world struct {
	policy    *Policy
	step      time.Duration // by which time passes
	now       time.Duration
	suspended time.Duration // for how long the process's monotonic clock has stood still
	left      budget
	faults    bool // something went wrong

	// The process.
	l       Lock
	have    bool  // l was granted
	named   int64 // token with which it was
	dead    bool
	overdue bool // the caller's time has ended, and it may have been told
	waits   int8 // callers that wait for a turn
	begun   bool // the caller works, or has to end yet
	peer    int8 // worker that has confirmed l last
	told    Decision
	closed  bool
	extends [2]time.Duration
	ageless bool          // late calls may come after the lease that they are about
	prompt  bool          // the process is never kept from asking the owner
	heard   time.Duration // when a call about the lock was answered last, if prompt

	// The owners.
	lock     remote
	serving  int8 // worker; owner while there is none
	heir     int8 // worker that serves next
	session  time.Duration
	down     bool // the serving worker has crashed
	crashed  [2]bool
	cut      bool          // the serving worker's session is not renewed
	ghost    time.Duration // until when the key is blocked
	moved    time.Duration // until when the key stays blocked if the owner dies
	memory   time.Duration // until when the release is remembered
	released bool          // a release has ended the lock
	other    bool          // another client has the key
	forgot   bool          // the store has lost the lock, which the process does not know
	fast     time.Duration // of a term, by which the store's clock runs ahead
	token    int64         // latest
	seen     int64         // latest that a caller has worked with

	calls [inAll]call
	bad   string
}

func (w *world) instant() lease.Instant { return lease.Instant{Mono: w.now - w.suspended, Wall: w.now} }

func (w *world) fail(format string, args ...any) {
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
	}
}

// fingerprint is equal for worlds in which the same may happen: they differ in the time, and in what nobody compares any more.
func (w *world) fingerprint(seed maphash.Seed) uint64 {
	f := *w
	at := w.instant()
	for _, i := range []*lease.Instant{&f.l.own.Admit, &f.l.own.Cancel, &f.l.own.Surrender, &f.l.lease.Admit, &f.l.lease.Cancel, &f.l.lease.Surrender} {
		*i = lease.Instant{Mono: max(i.Mono-at.Mono, 0), Wall: max(i.Wall-at.Wall, 0)}
	}
	since := func(i *lease.Instant) { i.Mono, i.Wall = max(i.Mono-at.Mono, -ttl), max(i.Wall-at.Wall, -ttl) }
	f.l.sent = lease.Instant{Mono: max(f.l.sent.Mono-at.Mono, -ttl/2)}
	if f.l.granted = max(f.l.granted-at.Mono, -ttl); f.policy.TurnsFor == Never {
		f.l.granted = 0
	}
	if f.l.state >= lost {
		f.l = Lock{policy: f.policy, loss: f.l.loss, state: f.l.state, course: f.l.course, token: f.l.token, lease: lease.Lease{Surrender: f.l.lease.Surrender}}
	}
	for i := range f.calls {
		c := &f.calls[i]
		since(&c.sent)
		if c.kind == renewal && f.l.state >= lost {
			c.sent, c.grant = lease.Instant{}, Grant{}
		}
		if c.grant.Token != 0 {
			c.grant.Token, c.grant.Next = c.grant.Token-f.token, c.grant.Next-f.token
		}
	}
	for _, d := range []*time.Duration{&f.lock.expires, &f.ghost, &f.moved, &f.memory} {
		*d = max(*d-w.now, 0)
	}
	if !f.lock.live && !f.lock.kept {
		f.lock = remote{}
	}
	f.session = max(f.session-w.now, -ttl)
	f.l.token, f.l.next, f.seen = f.l.token-f.token, f.l.next-f.token, f.seen-f.token
	f.named, f.lock.token, f.token = f.named-f.token, f.lock.token-f.token, 0
	if f.policy.Persist { // there is no end of tokens: only their order counts
		f.l.token, f.seen, f.named = 0, int64(cmp.Compare(f.seen, f.l.token)), 0
		if f.l.turns == 0 {
			f.l.next = 0
		}
		if !f.lock.live {
			f.lock.token = 0
		}
	}
	if !f.prompt {
		f.heard = f.now
	}
	f.heard = max(f.heard-f.now, -ttl)
	f.now, f.suspended = 0, 0
	return maphash.Comparable(seed, f)
}

// believes reports whether the caller may still work: what was cancelled ends by the surrender.
func (w *world) believes() bool {
	return w.begun && !w.dead && !w.forgot && !w.l.lease.Surrender.Passed(w.instant())
}

// free reports whether another client may get the key.
func (w *world) free() bool {
	return w.serving != owner && !w.down && !w.other && !w.lock.live && !w.lock.kept && w.ghost <= w.now && (!w.cut || w.now < w.session+ttl*7/10)
}

// check looks at what must hold in every state.
func (w *world) check() {
	if w.believes() && w.seen > w.l.Token() && (w.other || !w.policy.Persist) {
		w.fail("two holders: a caller works with token %d, and another client has got the key with token %d", w.l.Token(), w.seen)
	}
	if w.have && w.begun && w.l.Left(w.instant()) > 0 && w.l.lease.Cancel.Passed(w.instant()) {
		w.fail("a lock that is overdue lasts")
	}
	if over := w.begun && w.l.held() && !w.policy.Persist && w.l.lease.Cancel.Passed(w.instant()); w.overdue && w.l.held() && !over {
		w.fail("a lock that was overdue lasts again")
	} else {
		w.overdue = over
	}
	if w.waits > 0 && w.told != Wait {
		w.fail("callers wait for a lock that is over")
	}
}

// expire ends what ends by time alone, at the owners.
func (w *world) expire() {
	if w.lock.live && w.lock.expires <= w.now {
		w.lock.live, w.lock.written = false, false
	}
	if w.lock.kept && w.lock.expires <= w.now {
		w.lock.kept = false
	}
	if !w.cut && !w.down {
		w.session = w.now
	}
	if w.cut && !w.lock.written && w.lock.live && w.session+ttl*8/10 <= w.now { // its executions are cancelled
		w.lock.live, w.ghost = false, w.lock.expires
	}
}

// see notes that a caller begins to work.
func (w *world) see(token int64) {
	if token <= w.seen && !w.forgot {
		w.fail("token %d after %d", token, w.seen)
	}
	w.seen = token
}

func (w *world) promise() Promise {
	return Promise{Cancel: max(w.session+ttl*8/10-w.now, 0), Surrender: max(w.session+ttl*95/100-w.now, 0)}
}

// apply has a worker carry out a request, and reports whether it answers. often says whether the store is slow.
func (w *world) apply(c *call, slowStore bool) bool {
	at := c.to
	if at == owner {
		at = w.serving
	}
	if at == owner || w.crashed[at] {
		return false
	}
	if w.policy.Keeper == Store {
		c.to = at
		return w.applyInStore(c)
	}
	serves := at == w.serving
	if !serves {
		c.state, c.answered = Elsewhere, true
		return c.kind != acquire && c.kind != extension
	}
	c.to, c.answered = at, true
	switch c.kind {
	case acquire:
		if !w.lock.live {
			if !w.free() {
				c.to, c.answered = owner, false
				return false
			}
			w.token++
			w.lock = remote{live: true, token: w.token, term: ttl, alien: w.have}
		}
		w.lock.expires = max(w.lock.expires, w.now+w.lock.term)
		c.grant.Token, c.grant.Lease, c.grant.Promise = w.lock.token, w.lock.term, w.promise()
		c.grant.Next, c.grant.Turns = w.token+1, 2
		w.token += 2
	case renewal:
		if c.state = Gone; w.lock.live && w.lock.token == w.named {
			c.state = Held
			w.lock.expires = max(w.lock.expires, w.now+w.lock.term)
		}
		c.grant = Grant{Promise: w.promise()}
	case extension:
		if c.state = Gone; w.lock.live {
			c.state = Held
			w.lock.term, w.lock.written = c.term, w.lock.written || c.term > ttl
			w.lock.expires = max(w.lock.expires, w.now+c.term)
		}
		c.grant = Grant{Lease: c.term, Promise: w.promise()}
	case release:
		switch {
		case w.lock.live && w.promise().Surrender == 0:
			c.state = Elsewhere
		case w.lock.live && w.lock.token != w.named:
			c.state, w.lock.live = Gone, false
		case w.lock.live, w.lock.kept:
			w.released, w.memory = w.released || !w.lock.alien, w.now+ttl
			w.lock.kept = w.lock.written && slowStore
			if c.state = Held; w.lock.kept {
				c.state = Released
			}
			w.lock.live = false
		case w.memory > w.now:
			c.state = Held
		default:
			c.state = Gone
		}
	}
	return true
}

// applyInStore has the store carry out a request. A tombstone of the lock's owner stays when it is released.
func (w *world) applyInStore(c *call) bool {
	c.answered, c.state = true, Held
	switch {
	case c.kind == release && !w.lock.live:
		c.state, w.memory = Gone, w.now+2*ttl
	case c.kind == release:
		w.released, w.memory = w.released || !w.lock.alien, w.now+2*ttl
		w.lock.live = false
	case w.lock.live:
		w.lock.expires = max(w.lock.expires, w.now+c.term-w.fast)
		c.grant = Grant{Token: w.lock.token, Lease: c.term, Next: w.lock.token + 1, Turns: 2}
	case c.kind == acquire && w.free() && w.memory <= w.now:
		w.token++
		w.lock = remote{live: true, token: w.token, term: c.term, alien: w.have && w.l.state >= lost, expires: w.now + c.term - w.fast}
		c.grant = Grant{Token: w.token, Lease: c.term, Next: w.token + 1, Turns: 2}
		w.token += 2
	case c.kind == acquire && !w.have:
		c.answered = false
	case c.kind == acquire, w.other:
		c.state = Taken
	default:
		c.state = Gone
	}
	return c.answered
}

// send begins a call.
func (w *world) send(slot int, k kind, to int8) {
	if w.calls[slot].kind != none {
		w.fail("two calls at once: %s", kindNames[k])
	}
	w.calls[slot] = call{kind: k, to: to, sent: w.instant()}
	if w.policy.Keeper == Store {
		w.calls[slot].term = w.l.Term()
	}
}

// obey carries out a decision.
func (w *world) obey(d Decision) {
	switch d {
	case Renew:
		w.send(inRenewal, renewal, w.peer)
	case Seek:
		w.send(inRenewal, renewal, owner)
	case CancelOverdue, CancelGone:
		w.waits = 0 // they are asked for anew
	case Pass:
		w.waits--
	case Release:
		w.waits = 0
		w.send(inRelease, release, w.peer)
	case Retake:
		w.send(inRenewal, acquire, w.peer)
	case ReleaseAtOwner:
		w.send(inRelease, release, owner)
	case TellReleased, TellNotOwner, TellUnknown, TellUnanswered:
		w.tell(d)
	}
}

func (w *world) tell(d Decision) {
	switch w.told = d; {
	case w.lock.alien: // it is nobody's
	case d == TellReleased && w.forgot && w.l.loss == Wait: // who forgets cannot tell
	case d == TellReleased && (!w.released || w.lock.live || w.lock.kept):
		w.fail("Unlock says released, and the lock was not")
	case d == TellNotOwner && (w.released || w.lock.live) && !w.policy.Persist:
		w.fail("Unlock says not owner, and a release has ended the lock")
	case d >= TellUnknown && !w.faults && !w.closed:
		w.fail("Unlock knows nothing, and no call was lost")
	}
}

// confirm goes on with a lock that was granted.
func (w *world) confirm() {
	if w.l.state != granted || w.calls[inRenewal].kind != none {
		return
	}
	switch d := w.l.Confirm(w.instant()); {
	case d == Begin && w.waits > 0:
		w.l.Give()
		w.waits--
	case d == Begin:
		w.begin()
	default:
		w.obey(d)
	}
}

func (w *world) begin() {
	if w.l.Begin(w.instant()) != Begin {
		w.end()
		return
	}
	w.begun = true
	w.see(w.l.Token())
	if !w.lock.live && w.other && !w.forgot {
		w.fail("a caller begins while another client has the key")
	}
}

// leave has another process go on with the lock, which holds it from there on.
func (w *world) leave() {
	if d := w.l.Leave(w.instant()); d != Wait {
		w.obey(d)
		return
	}
	if !w.lock.live {
		w.fail("another process goes on with what nobody has")
	}
	w.begun, w.waits, w.told, w.lock.live = false, 0, TellReleased, false
}

func (w *world) end() {
	w.begun = false
	d := w.l.End(w.instant(), w.waits > 0)
	if d == Pass && (w.l.lease.Cancel.Passed(w.instant()) || w.other && !w.forgot) {
		w.fail("a lost lock is passed on")
	}
	if d == Pass && w.instant().Mono-w.l.granted > w.policy.TurnsFor {
		w.fail("a lock is passed on for too long")
	}
	w.obey(d)
}

// receive takes the answer to a call.
func (w *world) receive(slot int) {
	c := w.calls[slot]
	w.calls[slot] = call{}
	now := w.instant()
	w.heard = w.now
	if slot != inRelease && c.state != Elsewhere {
		w.peer = c.to
	}
	switch c.kind {
	case acquire:
		if w.have && c.state == Held {
			w.l.Retaken(c.sent, c.grant)
			w.forgot = !w.lock.live
			return
		} else if w.have {
			w.obey(w.l.Renewed(now, c.sent, c.state, Promise{}))
			return
		}
		w.l, w.have, w.named = New(w.policy, c.sent, c.grant), true, c.grant.Token
	case renewal:
		w.obey(w.l.Renewed(now, c.sent, c.state, c.grant.Promise))
	case extension:
		if c.state == Gone {
			w.l.Unextended()
			w.obey(w.l.Lose())
			return
		}
		w.obey(w.l.Extended(now, c.sent, c.grant, c.repeated))
	case release:
		w.obey(w.l.Answered(now, c.state, c.repeated))
	}
}

// lose ends a call without an answer. Looked for, an owner is asked again unless its caller gives up.
func (w *world) lose(slot int, started, elsewhere, giveUp bool) {
	c := &w.calls[slot]
	w.faults = true
	if c.kind == acquire && !w.have || c.to == owner && !giveUp {
		again := call{kind: c.kind, to: owner, sent: w.instant(), term: c.term, repeated: c.repeated || started}
		*c = again
		return
	}
	kind, repeated := c.kind, started || c.repeated
	*c = call{}
	switch kind {
	case renewal, acquire:
		w.l.Failed(elsewhere)
	case extension:
		w.l.Unextended()
	case release:
		d := w.l.Unanswered(repeated, elsewhere)
		if d == Release && giveUp {
			d = w.l.GiveUp(w.instant(), w.closed || w.policy.Keeper == Store)
		}
		w.obey(d)
	}
}

// pass lets time pass.
func (w *world) pass(suspend bool) {
	if w.now += w.step; suspend {
		w.suspended += w.step
	}
	w.expire()
}

func (w *world) tick() {
	if !w.have || w.dead {
		return
	}
	d := w.l.Tick(w.instant())
	switch {
	case d == Renew && w.policy.Every == Never:
		w.fail("it renews itself")
	case d == CancelOverdue && w.prompt && w.calls[inRenewal].kind == none && w.now-w.heard > w.step:
		w.fail("a lock is overdue, and its owner was not asked in time")
	}
	w.obey(d)
}

var errEndless = errors.New("nothing ends the lock")
