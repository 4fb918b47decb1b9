package remote

import (
	"fmt"
	"slices"
)

// event is a kind of thing that may happen, so many times at most in a scope.
type event uint8

const (
	evTime   event = iota // a step of time
	evAsk                 // a caller asks for its key
	evRepeat              // a request is sent once more, with its number
	evAgain               // a caller asks with the same id in another request
	evOther               // likewise, in another mode
	evKey                 // likewise, for another key
	evRenew
	evExtend
	evRelease
	evAbandon // a caller gives back what it has asked for
	evLeave   // a caller's call ends
	evMove
	evResume // a move is not made
	evPass   // a partition that nobody has opened moves on
	evCut    // a worker is cut off from the store
	evForget // the store forgets the session of the owner, which has the partition in its next life
	evBehind // a worker's shell stands still
	evCrash
	evStart
	evUnlock // by an operator
	evLose   // a call of a client, or its answer, is lost
	evGiveUp // likewise, and the client makes no other
	evStop   // a client stands still
	evClose
	evDie
	events

	// What follows is bound to happen, or bounded by the others.
	evCommit
	evOpen
	evMoved
	evClaim
	evJoin
	evCatchUp
	evDeliver
	evStep
	evHear
	evStore
	evLearn // a client knows of another owner
	evBegin // a caller of a client begins to work
	evEnd
	evGo
	evLeft // a worker sees that nobody waits for a call
	evVain // a client sees that its call has reached nobody
	allEvents
)

var eventNames = [allEvents]string{
	evTime: "time", evAsk: "ask", evRepeat: "repeat", evAgain: "again", evOther: "other-mode", evKey: "other-key", evRenew: "renew",
	evExtend: "extend", evRelease: "release", evAbandon: "abandon", evLeave: "leave", evMove: "move", evResume: "resume",
	evPass: "pass", evCut: "cut", evForget: "forget", evBehind: "stop", evCrash: "crash", evStart: "start", evUnlock: "unlock", evCommit: "commit",
	evOpen: "open", evMoved: "moved", evClaim: "claim", evJoin: "join", evCatchUp: "catch-up", evDeliver: "deliver", evStep: "step",
	evHear: "hear", evStore: "store", evLose: "lose", evGiveUp: "give-up", evStop: "stand-still", evClose: "close", evDie: "die",
	evLearn: "learn", evBegin: "begin", evEnd: "end", evGo: "go-on", evLeft: "left", evVain: "in-vain",
}

// action is something that can happen next: to a caller, a call or a worker a, and a worker b.
type action struct {
	event event
	a, b  int8
}

// name names an action in transcripts.
func (w *world) name(a action) string {
	name := eventNames[a.event]
	worker := func(i int8) string { return w.workers[i].name() }
	switch a.event {
	case evTime, evCommit, evResume:
		return name
	case evAsk, evRepeat, evAgain, evOther, evKey, evRenew, evExtend, evRelease, evAbandon, evStop, evClose, evDie, evBegin, evEnd, evGo:
		return fmt.Sprint(name, " ", a.a)
	case evLearn:
		return fmt.Sprint(name, " ", a.a, " ", worker(a.b))
	case evLeave, evStep, evHear, evLose, evGiveUp, evLeft, evVain:
		return fmt.Sprintf("%s #%d", name, a.a)
	case evDeliver:
		return fmt.Sprintf("%s #%d %s", name, a.a, worker(a.b))
	case evMove, evPass:
		return fmt.Sprint(name, " ", worker(a.b))
	}
	return fmt.Sprint(name, " ", worker(a.a))
}

// actions appends what can happen next.
func (w *world) actions(list []action) []action {
	add := func(e event, a, b int) {
		if e > events || w.left[e] > 0 {
			list = append(list, action{e, int8(a), int8(b)})
		}
	}
	p := &w.part
	owner := w.workers[p.owner]
	for i, c := range w.callers {
		if c.client != nil {
			w.clientActions(c, add)
			continue
		}
		switch c.phase {
		case idle:
			add(evAsk, i, 0)
		case holds:
			add(evRenew, i, 0)
			add(evExtend, i, 0)
			add(evRelease, i, 0)
			fallthrough
		case asks:
			add(evOther, i, 0)
			add(evKey, i, 0)
			add(evAbandon, i, 0)
			fallthrough
		case abandons:
			add(evAgain, i, 0)
			fallthrough
		case releases:
			add(evRepeat, i, 0)
		}
	}
	for i, c := range w.calls {
		if c.caller.client != nil {
			if w.callActions(i, c, add); c.stage != answered && w.canStep(c) {
				add(evStep, i, 0)
			}
			continue
		}
		switch {
		case c.stage == sent:
			for _, x := range w.workers {
				if x.up && (x.machine.open || w.sc.early && c.kind == acquire) {
					add(evDeliver, i, x.slot)
				}
			}
		case c.stage == answered:
			add(evHear, i, 0)
		case w.canStep(c):
			add(evStep, i, 0)
			fallthrough
		case c.kind == acquire && !c.gone:
			add(evLeave, i, 0)
		}
	}
	for _, x := range w.workers {
		w.workerActions(x, add)
	}
	switch {
	case owner.owns() && !owner.behind && p.to < 0 && p.opened && owner.machine.open:
		for _, x := range w.workers {
			if x != owner && x.alive() {
				add(evMove, owner.slot, x.slot)
			}
		}
	case p.to >= 0 && owner.owns() && owner.alive():
		if w.workers[p.to].alive() {
			add(evCommit, 0, 0)
		}
		add(evResume, 0, 0)
	case !p.opened && owner.owns() && owner.alive():
		add(evOpen, owner.slot, 0)
		for _, x := range w.workers {
			if x != owner && x.alive() {
				add(evPass, owner.slot, x.slot)
			}
		}
	}
	if w.sessionOver() {
		for _, x := range w.workers {
			if x.alive() {
				add(evClaim, x.slot, 0)
			}
		}
	}
	add(evTime, 0, 0)
	return list
}

func (w *world) workerActions(x *worker, add func(e event, a, b int)) {
	if !x.up {
		add(evStart, x.slot, 0)
		return
	}
	add(evCrash, x.slot, 0)
	if x.behind {
		add(evCatchUp, x.slot, 0)
	} else {
		add(evBehind, x.slot, 0)
	}
	if x.cut {
		add(evJoin, x.slot, 0)
	} else {
		add(evCut, x.slot, 0)
		if x.owns() && !x.behind {
			add(evForget, x.slot, 0)
		}
	}
	if x.owes && x.alive() {
		add(evMoved, x.slot, 0)
	}
	if len(x.writes) > 0 && x.alive() {
		add(evStore, x.slot, 0)
	}
	if x.machine.open && len(x.machine.order) > 0 {
		add(evUnlock, x.slot, 0)
	}
}

// canStep reports whether a call can go on at its worker.
func (w *world) canStep(c *call) bool {
	switch x := w.workers[max(c.at, 0)]; c.stage {
	case queued:
		return c.pushed || c.gone || x.keys.closed || w.first(x, c.key) == c && x.keys.admits(c.key, c.shared)
	case retrying:
		return c.gone || !slices.ContainsFunc(w.calls, func(o *call) bool { return o.lock == c.back && (o.stage == queued || o.stage == won) })
	case won, granted:
		return true
	case storing:
		return c.gone
	}
	return false
}

// do lets an action happen.
func (w *world) do(a action) {
	if a.event < events {
		w.left[a.event]--
	}
	var before map[*Lock]state
	if w.cover != nil {
		before = w.lockStates()
	}
	p := &w.part
	x := w.workers[min(int(max(a.a, 0)), len(w.workers)-1)]
	to := w.workers[a.b]
	switch a.event {
	case evTime:
		w.pass()
	case evAsk, evRepeat, evAgain, evOther, evKey, evRenew, evExtend, evRelease, evAbandon:
		w.callerDoes(w.callers[a.a], a.event)
	case evStop, evClose, evDie, evLearn, evBegin, evEnd, evGo:
		w.clientDoes(w.callers[a.a], a.event, int(a.b))
	case evLose, evGiveUp:
		w.fails(w.calls[a.a], true, a.event == evGiveUp)
	case evVain:
		c := w.calls[a.a]
		w.calls = slices.Delete(w.calls, int(a.a), int(a.a)+1)
		w.fails(c, false, false)
	case evLeave, evLeft:
		w.calls[a.a].gone = true
	case evDeliver:
		w.deliver(w.calls[a.a], to)
		w.goOn(w.calls[a.a])
	case evStep:
		w.step(w.calls[a.a])
		w.goOn(w.calls[a.a])
	case evHear:
		c := w.calls[a.a]
		w.calls = slices.Delete(w.calls, int(a.a), int(a.a)+1)
		if c.caller.client != nil {
			w.receive(c)
			break
		}
		w.hear(c)
		w.say("caller %d %v", c.caller.slot, c.caller.phase)
	case evMove:
		p.to = to.slot
		w.close(x)
	case evCommit:
		from := w.workers[p.owner]
		p.locks, p.listedAt = from.listed, p.closedAt
		from.owes = true
		w.give(w.workers[p.to], true)
	case evResume:
		from := w.workers[p.owner]
		p.to = -1
		p.epoch++
		w.open(from, true)
	case evPass:
		w.give(to, true)
	case evOpen:
		w.open(x, false)
	case evMoved:
		x.owes = false
		x.machine.Drop()
	case evClaim:
		w.give(x, false)
		w.forgive()
		w.open(x, false)
	case evCut:
		x.cut = true
	case evJoin:
		x.cut = false
		if !x.behind {
			w.tick(x)
		}
	case evForget:
		w.loseSession(x)
		x.lost, x.confirmed = false, w.now
		w.give(x, false)
		w.forgive()
		w.open(x, false)
	case evBehind:
		x.behind = true
	case evCatchUp:
		x.behind = false
		w.tick(x)
	case evCrash:
		w.crash(x)
	case evStart:
		w.start(x)
	case evStore:
		w.store(x)
	case evUnlock:
		for _, c := range w.callers { // the operator answers for them
			if c.phase == holds && c.hold.key == "k" {
				c.phase = idle
			}
		}
		for _, o := range w.calls { // and for what they have been told, and do not know
			o.gone = o.gone || o.stage == answered && o.kind <= extend
		}
		x.machine.Unlock(x.at(), "k", func(*Lock) {})
	}
	w.hurry()
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool { return c.stage == answered && (c.gone || c.isFutile()) })
	if w.cover != nil {
		w.noteStates(before, a.event)
	}
	w.check()
}

// goOn lets a call that has its key go on at once, unless the scope looks at what may come in between.
func (w *world) goOn(c *call) {
	for !w.sc.fine && (c.stage == won || c.stage == granted) {
		w.step(c)
	}
}

// forgive says that a worker has died, and with it what only it remembered.
func (w *world) forgive() {
	w.over = nil
	for _, c := range w.callers {
		c.claimed = true
	}
}

func (w *world) callerDoes(c *caller, e event) {
	if c.client != nil {
		w.clientDoes(c, e, 0)
		return
	}
	switch e {
	case evAsk:
		c.phase, c.alone, c.hold, c.ended = asks, c.number == 0, hold{}, 0
		if c.number++; !w.sc.reuse {
			c.id[1], c.alone = c.id[1]+1, true
		}
		w.asking(c, acquire)
	case evRepeat:
		w.asking(c, map[phase]kind{asks: acquire, holds: acquire, releases: release, abandons: abandon}[c.phase])
	case evAgain, evOther, evKey:
		c.number++
		if c.alone = false; c.phase == abandons {
			c.phase, c.hold = asks, hold{}
		}
		if e == evOther {
			c.shared = !c.shared
		} else if e == evKey {
			c.key = "l"
		}
		w.asking(c, acquire)
	case evRenew:
		w.asking(c, renew)
	case evExtend:
		c.lease = 2 * ttl
		w.asking(c, extend)
	case evRelease:
		c.phase, c.ended, c.claimed = releases, 0, false
		w.asking(c, release)
	case evAbandon:
		c.phase = abandons
		for _, o := range w.calls { // its calls end before it gives back
			o.gone = o.gone || o.caller == c && o.kind == acquire && o.stage != sent
		}
		w.asking(c, abandon)
	}
}

// step lets a call go on at its worker.
func (w *world) step(c *call) {
	x := w.workers[c.at]
	switch {
	case c.stage == queued && (c.pushed || c.gone || x.keys.closed):
		w.leave(c, x)
	case c.stage == queued:
		w.win(c, x)
	case c.stage == retrying && !c.gone:
		w.enter(c, x)
	case c.stage == won:
		w.settle(c, x)
	case c.stage == granted:
		w.finish(c, x)
	case c.kind == acquire: // gone while it waits
		if c.stage = answered; c.lock != nil {
			x.machine.GiveUp(x.at(), c.lock)
		}
	}
	if w.log != nil {
		w.say("%s: %v: %s", x.name(), c, w.words(c))
	}
}
