package remote

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
)

// phase is what a caller does.
type phase uint8

const (
	idle phase = iota
	asks       // for its key
	holds
	releases
	abandons // what it asked for
)

func (p phase) String() string {
	return [...]string{"idle", "asks", "holds", "releases", "abandons"}[p]
}

// caller is a process elsewhere that locks a key, time and again: each time under another id, unless the scope says that it
// uses its first one again.
type caller struct {
	slot    int
	client  *client // nil for a caller that the explorer models
	id      ID
	key     string
	both    bool // it wants the keys l and k, all or none, without a wait, and gives back whatever it gets
	shared  bool
	lease   time.Duration
	phase   phase
	number  uint64 // of its latest request
	alone   bool   // no request but the latest has asked for the lock
	hold    hold
	ended   time.Duration // until when a repeated release is told what the first one was: that the lock was its own; 0 for not
	claimed bool          // a worker has died since the caller's latest step
}

// hold is what a caller believes in.
type hold struct {
	id            ID
	key           string
	token         int64
	shared        bool
	cancel, until time.Duration
}

func (c *caller) believes() bool { return c.phase == holds && c.hold.token != 0 }

// kind is what a call asks for.
type kind uint8

const (
	acquire kind = iota
	renew
	extend
	release
	abandon
)

func (k kind) String() string {
	return [...]string{"acquire", "renew", "extend", "release", "abandon"}[k]
}

// stage is how far a call has come.
type stage uint8

const (
	sent     stage = iota
	queued         // waits for its key
	retrying       // waits for the end of another call's wait
	won            // has its key, which is no lock yet
	granted        // has its lock, whose lease is not yet what it asked for
	storing        // waits for the store
	answered
)

func (s stage) String() string {
	return [...]string{"sent", "queued", "retrying", "won", "granted", "storing", "answered"}[s]
}

// call is one attempt of a request.
type call struct {
	caller *caller
	id     ID
	kind   kind
	number uint64
	sent   time.Duration
	key    string
	shared bool
	token  int64 // of the key that was won; in a release, of the caller's hold
	stage  stage
	at     int   // worker
	lock   *Lock // that it makes or waits for
	pushed bool  // its wait was ended
	gone   bool  // the caller has left
	back   *Lock // for the end of whose wait, or for whose place in the store, it waits
	cancel uint64
	answer answer

	lease time.Duration // that is asked for; 0 for that of a session

	// Of a client's call.
	to       int // the worker that it goes to, unless owner says that it goes to the owner
	owner    bool
	lost     bool // nobody waits for it any more
	repeated bool // an attempt before it may have had its effect
	turns    int
}

type answer struct {
	ok            bool
	what          holder.Answer // unless it is a grant
	grant         hold
	cancel, until time.Duration // of a grant, or renewal, counted from the call

	// To a client's call.
	freed   bool // the lock is released, and the store may keep it
	promise holder.Promise
	lease   time.Duration
	next    int64
	turns   int
}

func (c *call) String() string { return fmt.Sprintf("%v of caller %d", c.kind, c.caller.slot) }

// asking sends a call.
func (w *world) asking(c *caller, k kind) {
	key := c.key
	if k != acquire {
		key = cmp.Or(c.hold.key, key)
	}
	id := c.id
	if c.both && key == "k" {
		id[2] = 1
	}
	w.calls = append(w.calls, &call{caller: c, id: id, kind: k, number: c.number, sent: w.now, key: key, shared: c.shared, token: c.hold.token, lease: c.lease, at: -1})
}

// isEnding reports whether a call is under way that may end what c holds.
func (w *world) isEnding(c *caller) bool {
	return slices.ContainsFunc(w.calls, func(o *call) bool { return o.caller == c && o.kind >= release || o.caller == c && o.gone })
}

// answered notes that the store has removed what a release has ended, or may keep it.
func (c *call) answered(made bool) {
	c.stage = answered
	if !made {
		c.answer.freed = c.answer.what == holder.Held
		c.answer.what = holder.Elsewhere
	}
}

// deliver lets a call come to a worker.
func (w *world) deliver(c *call, x *worker) {
	if c.caller.client != nil {
		w.serve(c, x)
		return
	}
	c.at = x.slot
	c.stage = answered
	switch _, vouch := x.vouch(); c.kind {
	case acquire:
		w.enter(c, x)
	case renew:
		toCancel, toSurrender := x.vouch()
		c.answer.what = x.machine.Renew(x.at(), c.id, w.named(c), toSurrender > 0)
		if l := x.machine.byID[c.id]; c.answer.what == holder.Held {
			if named := w.named(c); named != 0 && named != l.Token {
				w.fail("L: %s renews the lock of token %s for caller %d, which names token %s", x.name(), tokenText(l.Token), c.caller.slot, tokenText(named))
			}
			w.limit(l, l.Lease)
			c.answer.ok = true
			if l.Written() {
				toCancel, toSurrender = l.Lease*8/10, l.Lease*95/100
			}
			c.answer.cancel, c.answer.until = min(toCancel, l.Lease*8/10), min(toSurrender, l.Lease*95/100)
			c.answer.grant.token = l.Token
		}
	case extend:
		c.lock = &Lock{ID: c.id}
		c.stage = granted
		w.finish(c, x)
	case release:
		w.release(c, x, vouch > 0)
	case abandon:
		if x.machine.Abandon(x.at(), c.id, c.number); x.machine.open {
			w.final(c.id, c.number)
		}
		if l := x.machine.find(x.at(), c.id); x.machine.open && c.caller.alone && c.number == c.caller.number && !c.caller.claimed && l != nil && l.state != removing {
			w.fail("L: %s keeps %s for caller %d, which has given it back", x.name(), l.Key, c.caller.slot)
		}
		c.answer.ok = x.machine.open
	}
	if w.log != nil {
		w.say("%s: %v: %s", x.name(), c, w.words(c))
	}
}

func (w *world) words(c *call) string {
	switch {
	case c.stage != answered:
		return c.stage.String()
	case c.kind == acquire || c.kind == extend:
		if c.answer.ok {
			return fmt.Sprintf("token %s, for %v", tokenText(c.answer.grant.token), c.answer.until)
		}
		return "refused"
	case c.kind == abandon:
		return "done"
	}
	return [...]string{"gone", "held", "elsewhere"}[c.answer.what]
}

func keyIndex(key string) int { return int(key[0] - 'k') }

func (w *world) limit(l *Lock, lease time.Duration) {
	of := w.limitOf(l.ID, l.Token)
	of.until = max(of.until, w.now+lease)
}

// enter is locks.enter of package worker, and takes the key if it is free.
func (w *world) enter(c *call, x *worker) {
	own := &Lock{ID: c.id, Key: c.key, Call: c.number, Lease: min(cmp.Or(c.lease, ttl), ttl), Shared: c.shared}
	held, err := x.machine.Acquire(x.at(), own)
	c.pushed, c.lock, c.back = false, nil, nil
	switch {
	case err == ErrWaits:
		c.stage, c.back = retrying, held
	case err != nil:
		c.stage, c.answer = answered, answer{}
	case held != nil:
		c.stage, c.lock = granted, held
		w.limit(held, held.Lease)
	case c.caller.both && !x.keys.admits(c.key, c.shared):
		x.machine.Refused(own)
		c.stage, c.answer = answered, answer{}
	default:
		c.stage, c.lock, c.cancel = queued, own, x.cancels
		if first := w.first(x, c.key); first == c && x.keys.admits(c.key, c.shared) {
			w.win(c, x)
		}
	}
}

// first returns the call that waits first for a key.
func (w *world) first(x *worker, key string) *call {
	for _, c := range w.calls {
		if c.at == x.slot && c.stage == queued && c.key == key {
			return c
		}
	}
	return nil
}

// win gives a call its key, if the worker's lease admits.
func (w *world) win(c *call, x *worker) {
	if !x.admits() || c.cancel != x.cancels {
		w.leave(c, x)
		return
	}
	c.stage, c.token = won, x.keys.take(c.key, c.shared)
}

// leave ends a wait without the key.
func (w *world) leave(c *call, x *worker) {
	again := x.machine.Refused(c.lock)
	if c.stage, c.answer = answered, (answer{}); again && !c.gone {
		w.enter(c, x)
	}
}

// settle makes a key that was won a lock.
func (w *world) settle(c *call, x *worker) {
	if err := x.machine.Won(x.at(), c.lock, c.token, c.cancel); err != nil {
		x.keys.unlock(c.key, c.token)
		c.stage, c.answer = answered, answer{}
		return
	}
	w.limit(c.lock, c.lock.Lease)
	c.stage = granted
}

// finish is locks.prolong of package worker, and what follows it.
func (w *world) finish(c *call, x *worker) {
	toCancel, toSurrender := x.vouch()
	e := Extension{ID: c.lock.ID, Token: c.lock.Token, Key: c.key, Lease: cmp.Or(c.lease, ttl), Vouch: toSurrender, Keep: true}
	l, firm, err := x.machine.Extend(x.at(), e)
	if errors.Is(err, ErrKeepFirst) {
		c.stage, c.back = storing, l
		return
	}
	if err == nil {
		w.limit(l, e.Lease)
	}
	c.stage = answered
	if err != nil || c.pushed || c.gone {
		if c.answer.what = holder.Elsewhere; errors.Is(err, ErrNotHeld) {
			c.answer.what = holder.Gone
		}
		if c.kind == acquire {
			x.machine.GiveUp(x.at(), c.lock)
		}
		return
	}
	promise := holder.Promise{Cancel: toCancel, Surrender: toSurrender}
	if firm {
		promise = holder.Promise{Cancel: e.Lease, Surrender: e.Lease}
		toCancel, toSurrender = e.Lease*8/10, e.Lease*95/100
	}
	c.answer = answer{ok: true, cancel: min(toCancel, e.Lease*8/10), until: min(toSurrender, e.Lease*95/100)}
	c.answer.grant = hold{id: l.ID, key: c.key, token: l.Token, shared: c.shared}
	if c.answer.promise, c.answer.lease = promise, l.Lease; c.turns > 0 && x.machine.Has(l) {
		c.answer.next, c.answer.turns = x.keys.reserve(c.turns)
	}
	before := &w.told[keyIndex(c.key)]
	if l.Token < before.token || l.Token == before.token && before.caller != c.caller.slot && !(before.shared && c.shared) {
		w.fail("S2: %s tells caller %d of token %s of %s after %s", x.name(), c.caller.slot, tokenText(l.Token), c.key, tokenText(before.token))
	}
	*before = told{l.Token, c.caller.slot, c.shared}
	if c.kind == acquire && slices.ContainsFunc(w.over, func(o over) bool { return o.id == c.id && (o.number == 0 || o.number == c.number) && w.now < o.until }) {
		w.fail("R: %s grants %s to caller %d, which has released it", x.name(), c.key, c.caller.slot)
	}
}

// named is the token that a call names; 0 where callers use an id for several requests, as those of the lock service may.
func (w *world) named(c *call) int64 {
	if sc := w.sc; sc.reuse || sc.limits[evAgain]+sc.limits[evOther]+sc.limits[evKey] > 0 {
		return 0
	}
	return c.token
}

// release is locks.release of package worker.
func (w *world) release(c *call, x *worker, sure bool) {
	l, named := x.machine.find(x.at(), c.id), w.named(c)
	same := l == nil || l.Token == c.token || named != 0
	if l := x.machine.byID[c.id]; l != nil && l.state == waiting && named == 0 {
		same = false // it ends a wait, and knows of no lock: docs/protocol-checks.md says so
	}
	what, removed := x.machine.Release(x.at(), c.id, named, sure)
	if c.answer.what = what; what == holder.Held && named != 0 && l != nil && l.Token != named {
		w.fail("L: %s says that caller %d had the lock of token %s up to now, and has ended that of token %s", x.name(), c.caller.slot, tokenText(named), tokenText(l.Token))
	}
	if what != holder.Elsewhere {
		w.final(c.id, 0)
	}
	switch caller := c.caller; {
	case c.id != caller.id:
	case what == holder.Held && caller.phase == releases && caller.ended == 0:
		if before := &w.told[keyIndex(c.key)]; same && c.token != 0 && before.token > c.token && before.caller != caller.slot {
			w.fail("L: %s says that caller %d had %s up to now, with token %s, and another caller has had token %s", x.name(), caller.slot, c.key, tokenText(c.token), tokenText(before.token))
		}
		caller.ended, caller.claimed = w.now+ttl, false
	case what == holder.Gone && caller.phase == releases && w.now < caller.ended && !caller.claimed && c.number == caller.number:
		w.fail("L: %s says that %s is gone, and caller %d was told before that it was its own", x.name(), c.key, caller.slot)
	}
	if removed != nil {
		c.stage, c.back = storing, removed
	}
}

// hear lets a caller have an answer.
func (w *world) hear(o *call) {
	c := o.caller
	cancel, until := o.sent+o.answer.cancel, o.sent+o.answer.until
	switch o.kind {
	case acquire:
		if c.both {
			w.hearBoth(o)
			return
		}
		c.phase, c.hold = holds, o.answer.grant
		if c.hold.cancel, c.hold.until = cancel, until; w.now >= until {
			c.phase = idle
		}
	case renew, extend:
		if !o.answer.ok {
			c.phase = idle
			return
		}
		c.hold.cancel, c.hold.until = max(c.hold.cancel, cancel), max(c.hold.until, until)
	case release, abandon:
		c.phase = idle
	}
}

// hearBoth goes on with the next key, or gives back what the request has got: all of it, if that comes too late.
func (w *world) hearBoth(o *call) {
	c := o.caller
	if o.answer.ok && c.key == "l" {
		c.key = "k"
		w.asking(c, acquire)
		return
	}
	c.phase = idle
	for _, key := range []string{"l", "k"} {
		if key != c.key && c.key == "k" || key == c.key && o.answer.ok {
			c.phase, c.hold = abandons, hold{key: key}
			w.asking(c, abandon)
		}
	}
	c.key, c.hold = "l", hold{}
}

// isFutile reports whether an answer tells its caller nothing.
func (o *call) isFutile() bool {
	c, a := o.caller, &o.answer
	if c.client != nil {
		return o.lost
	}
	switch o.kind {
	case acquire:
		if c.both {
			return o.number != c.number || c.phase != asks || o.key != c.key
		}
		return !a.ok || o.number != c.number || c.phase != asks && c.phase != holds
	case renew, extend:
		return c.phase != holds || o.token != c.hold.token || a.ok && a.grant.token != c.hold.token || !a.ok && (o.kind == extend || a.what != holder.Gone)
	case release:
		return a.what == holder.Elsewhere || c.phase != releases || o.number != c.number
	}
	return !a.ok || c.phase != abandons || o.number != c.number
}
