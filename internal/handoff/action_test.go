package handoff

import (
	"slices"
	"time"
)

// actionKind is one kind of thing that may happen next in a world.
type actionKind uint8

const (
	actCarry     actionKind = iota // message a is carried out and answered
	actTimeout                     // message a: the caller gives up, the request stays under way
	actDuplicate                   // message a is carried out and answered, a copy stays under way
	actSlow                        // message a takes its time
	actApply                       // message a is carried out, its answer is under way
	actAnswer                      // the answer to message a arrives
	actTell                        // gossip reaches worker a
	actPass                        // time passes
	actLock                        // worker a: a request wins the mutex of key b
	actStart                       // worker a: execution b starts
	actEnd                         // worker a: execution b ends
	actShut                        // worker a: the table of partition b is closed, after it was listed
	actCrash                       // worker a dies
	actPause                       // worker a is suspended
	actResume                      // worker a goes on
	actNotice                      // the others notice that worker a is down
	actSpawn                       // worker a starts again
	actView                        // the ring changes
	actLeave                       // worker a is told to leave
	actAdvance                     // worker a: the tokens of partition b run low
	actRestart                     // the store restarts
	actRollback                    // the store loses its latest a+1 writes
	actFlush                       // the store loses everything
	actStoreStep                   // the store's clock steps ahead
	actExpire                      // session a of the store expires early
	actWallStep                    // worker a's wall clock steps back
	actBlind                       // worker a's reads fail from here on
	actSight                       // worker a's reads work again
	actFail                        // message a, a read, fails
	actHold                        // worker a locks key b for a holder elsewhere
	actRenew                       // worker a renews its lock b
	actFree                        // worker a releases its lock b
	actHint                        // hint b reaches worker a, late or once more
)

type action struct {
	kind actionKind
	a, b int8
}

// actions appends everything that may happen next.
func (w *world) actions(as []action) []action {
	for i, msg := range w.msgs {
		if w.urgent(msg) {
			return w.messageActions(as, i)
		}
	}
	for i := range w.msgs {
		as = w.messageActions(as, i)
	}
	for i, p := range w.procs {
		as = w.procActions(as, int8(i), p)
	}
	as = w.storeActions(as)
	if w.ring+1 < len(w.sc.views) && w.left[evView] > 0 {
		as = append(as, action{kind: actView})
	}
	if w.quiet() && (w.sc.until == 0 || w.now < w.stop) {
		as = append(as, action{kind: actPass})
	}
	return as
}

// urgent reports whether a call is settled before anything else: calls whose
// order with others at the same instant does not matter.
func (w *world) urgent(msg message) bool {
	if msg.slow || msg.stray || w.procs[msg.from].paused >= 0 {
		return false
	}
	switch msg.call.(type) {
	case Renew, FetchGeneration:
		return true
	case Observe:
		return !w.sc.poll
	}
	return false
}

// quiet reports whether time may pass: nothing is under way that takes none.
func (w *world) quiet() bool {
	for _, msg := range w.msgs {
		if !msg.slow && !msg.stray && w.procs[msg.from].paused < 0 {
			return false
		}
	}
	for _, p := range w.procs {
		if !p.up || p.paused >= 0 {
			continue
		}
		if slices.ContainsFunc(p.tables, func(t table) bool { return t.closing }) {
			return false
		}
		if p.seen != w.truth(p) && !w.sc.lag || !w.sc.lives && slices.ContainsFunc(p.execs, func(e exec) bool { return !e.running }) {
			return false
		}
	}
	return true
}

// can reports whether a scope allows one more event of a kind.
func (w *world) can(k eventKind) bool {
	return w.left[k] > 0 && (k > eventFaults || w.faults > 0)
}

func (w *world) spend(k eventKind) {
	w.left[k]--
	if k < eventFaults {
		w.faults--
	}
}

func (w *world) messageActions(as []action, i int) []action {
	msg := w.msgs[i]
	add := func(k actionKind) { as = append(as, action{kind: k, a: int8(i)}) }
	paused := w.procs[msg.from].paused >= 0
	_, reads := msg.call.(Observe)
	fails := reads && w.procs[msg.from].blind
	switch {
	case msg.stray, paused && !msg.done:
		add(actApply)
	case paused:
	case msg.done:
		add(actAnswer)
	case fails:
		add(actFail)
	case msg.slow:
		add(actApply)
	default:
		add(actCarry)
		_, fetches := msg.call.(FetchGeneration)
		picked := w.sc.target == nil || w.sc.target(msg.call)
		if !reads && !fetches && picked && w.can(evTimeout) {
			add(actTimeout)
		}
		if !reads && !fetches && picked && w.can(evDuplicate) {
			add(actDuplicate)
		}
		if !fetches && picked && w.can(evSlow) {
			add(actSlow)
		}
	}
	return as
}

func (w *world) procActions(as []action, i int8, p *proc) []action {
	add := func(k actionKind, b int) { as = append(as, action{kind: k, a: i, b: int8(b)}) }
	if !p.up {
		if p.life > 0 && !p.noticed {
			add(actNotice, 0)
		}
		if w.can(evSpawn) && (!p.leaving || p.done) {
			add(actSpawn, 0)
		}
		return as
	}
	if p.paused >= 0 {
		add(actResume, 0)
		return as
	}
	if p.lost && len(p.execs) == 0 && w.can(evSpawn) {
		add(actSpawn, 0)
	}
	if p.seen != w.truth(p) {
		add(actTell, 0)
	}
	for j, e := range p.execs {
		if e.running {
			add(actEnd, j)
		} else {
			add(actStart, j)
		}
	}
	for part, t := range p.tables {
		if t.closing {
			add(actShut, part)
		}
	}
	if w.starts > 0 {
		for k, part := range w.sc.keys {
			if p.tables[part].open && w.admits(p) {
				add(actLock, k)
			}
		}
	}
	as = w.lockActions(as, i, p)
	if w.can(evCrash) {
		add(actCrash, 0)
	}
	if w.can(evPause) {
		add(actPause, 0)
	}
	if w.can(evWallStep) {
		add(actWallStep, 0)
	}
	if p.blind {
		add(actSight, 0)
	} else if w.can(evBlind) {
		add(actBlind, 0)
	}
	if w.can(evLate) {
		for j := range w.told {
			add(actHint, j)
		}
	}
	if w.can(evLeave) && !p.leaving {
		add(actLeave, 0)
	}
	if w.can(evAdvance) {
		for part := range p.tables {
			if p.tables[part].open {
				add(actAdvance, part)
			}
		}
	}
	return as
}

func (w *world) lockActions(as []action, i int8, p *proc) []action {
	if w.can(evHold) {
		for k, part := range w.sc.keys {
			if p.tables[part].open && w.admits(p) && p.lockOf(k) < 0 {
				as = append(as, action{kind: actHold, a: i, b: int8(k)})
			}
		}
	}
	for j, l := range p.locks {
		if !w.reaches(p, l) || p.lease == (Lease{}) || p.lease.Surrender.Passed(w.instant(p)) {
			continue
		}
		if w.can(evRenew) {
			as = append(as, action{kind: actRenew, a: i, b: int8(j)})
		}
		if w.can(evFree) && !l.frozen && !l.ending {
			as = append(as, action{kind: actFree, a: i, b: int8(j)})
		}
	}
	return as
}

func (w *world) storeActions(as []action) []action {
	if w.can(evRestart) {
		as = append(as, action{kind: actRestart})
	}
	if w.can(evRollback) {
		for i := range w.past {
			as = append(as, action{kind: actRollback, a: int8(i)})
		}
	}
	if w.can(evFlush) {
		as = append(as, action{kind: actFlush})
	}
	if w.can(evStoreStep) {
		as = append(as, action{kind: actStoreStep})
	}
	if w.can(evExpire) {
		for i := range w.store.sessions {
			as = append(as, action{kind: actExpire, a: int8(i)})
		}
	}
	return as
}

// do lets one action happen.
func (w *world) do(a action) {
	switch a.kind {
	case actCarry, actTimeout, actDuplicate, actSlow, actApply, actAnswer, actFail:
		w.doMessage(a.kind, int(a.a))
	case actPass:
		d := w.pass()
		w.say("%s pass; now %s", clockText(d, w.store.ttl), clockText(w.now, w.store.ttl))
	case actView:
		w.spend(evView)
		w.ring++
		w.say("the ring becomes view %d", w.ring)
	case actRestart, actRollback, actFlush, actStoreStep, actExpire:
		w.doStore(a)
	default:
		w.doProc(a, w.procs[a.a])
	}
}

func (w *world) doMessage(kind actionKind, i int) {
	msg := &w.msgs[i]
	switch kind {
	case actCarry:
		w.say("%s is carried out and answered", msg)
		w.carryOut(i)
		w.answer(i)
	case actTimeout:
		w.spend(evTimeout)
		w.say("%s times out; its request is still under way", msg)
		w.timeout(i)
	case actDuplicate:
		w.spend(evDuplicate)
		w.say("%s is carried out and answered; a copy of it is still under way", msg)
		twin := *msg
		twin.stray = true
		w.msgs = append(w.msgs, twin)
		w.carryOut(i)
		w.answer(i)
	case actSlow:
		w.spend(evSlow)
		w.say("%s takes its time", msg)
		msg.slow = true
	case actApply:
		w.say("%s is carried out late", msg)
		w.carryOut(i)
		w.dropStrays()
	case actAnswer:
		w.say("%s is answered", msg)
		w.answer(i)
	case actFail:
		w.say("%s fails", msg)
		msg.reply = Reply{ID: callID(msg.call), Err: errUnknown}
		w.answer(i)
	}
}

func (w *world) doStore(a action) {
	w.ownStore()
	switch a.kind {
	case actRestart:
		w.spend(evRestart)
		w.say("the store restarts")
		w.store.restart()
	case actRollback:
		w.spend(evRollback)
		w.say("the store loses its latest %d writes", len(w.past)-int(a.a))
		life := w.store.life
		w.store = w.past[a.a].clone()
		w.store.life = life
		w.store.restart()
		w.past = nil
	case actFlush:
		w.spend(evFlush)
		w.say("the store loses everything")
		old := w.store
		w.store = newModelStore(len(old.parts), old.ttl)
		w.store.off, w.store.second, w.store.life = old.off, old.second, old.life
		w.store.restart()
		w.past = nil
	case actStoreStep:
		w.spend(evStoreStep)
		w.say("the store's clock steps ahead by a TTL")
		w.skew += w.store.ttl
	case actExpire:
		w.spend(evExpire)
		w.say("the session of %s expires early", w.store.sessions[a.a].Incarnation)
		inc := w.store.sessions[a.a].Incarnation
		w.store.end(func(m modelSession) bool { return m.Incarnation == inc })
	}
}

func (w *world) doProc(a action, p *proc) {
	switch a.kind {
	case actTell:
		w.say("gossip reaches %s", p.name)
		w.tell(p)
	case actLock:
		w.starts--
		if w.lock(p, int(a.b)) {
			e := p.execs[len(p.execs)-1]
			w.say("%s: a request wins %s, token %s", p.name, keyName(e.key), token(e.token))
			if !w.sc.split && !w.sc.lives {
				w.start(p, len(p.execs)-1, true)
			}
		}
	case actStart:
		w.say("%s: the request for %s starts, if admitted", p.name, keyName(p.execs[a.b].key))
		w.goOn(p, int(a.b), p.m.off&guardRecheck == 0)
	case actEnd:
		w.say("%s: the handler of %s ends", p.name, keyName(p.execs[a.b].key))
		w.end(p, int(a.b))
	case actShut:
		w.say("%s: the table of p%d closes, after it was listed", p.name, a.b)
		p.tables[a.b].open, p.tables[a.b].closing = false, false
	case actHold:
		w.spend(evHold)
		if w.hold(p, int(a.b)) {
			w.say("%s: %s is locked, token %s", p.name, keyName(int(a.b)), token(p.locks[p.lockOf(int(a.b))].token))
		}
	case actRenew:
		w.spend(evRenew)
		w.say("%s: the lock of %s is renewed", p.name, keyName(p.locks[a.b].key))
		w.renew(p, int(a.b))
	case actFree:
		w.spend(evFree)
		w.say("%s: the lock of %s is released", p.name, keyName(p.locks[a.b].key))
		w.free(p, int(a.b))
	case actCrash:
		w.spend(evCrash)
		w.say("%s crashes", p.name)
		w.endProcess(p)
	case actPause:
		w.spend(evPause)
		w.say("%s is suspended", p.name)
		p.paused = w.now
	case actResume:
		w.say("%s goes on", p.name)
		p.mono -= w.rate(p).shown(w.now) - w.rate(p).shown(p.paused)
		p.paused = -1
		p.resumed = true
		if w.now >= p.surrender {
			for i := range p.execs {
				p.execs[i].void = true
			}
		}
	case actNotice:
		w.say("the others notice that %s is down", p.name)
		p.noticed = true
	case actSpawn:
		w.spend(evSpawn)
		w.respawn(p)
	case actHint:
		w.spend(evLate)
		w.say("%s gets the hint of version %d", p.name, w.told[a.b].Version)
		w.takeHint(p, w.told[a.b], true)
	case actLeave:
		w.spend(evLeave)
		w.say("%s is told to leave", p.name)
		p.leaving = true
		w.step(p, Leave{Now: w.sc.atOnce})
	case actAdvance:
		w.spend(evAdvance)
		w.say("%s: the tokens of p%d run low", p.name, a.b)
		w.step(p, SequenceLow{Partition: int(a.b)})
	case actWallStep:
		w.spend(evWallStep)
		w.say("%s's wall clock steps back by a TTL", p.name)
		p.wall -= w.store.ttl
	case actBlind:
		w.spend(evBlind)
		w.say("%s's reads fail from here on", p.name)
		p.blind = true
	case actSight:
		w.say("%s's reads work again", p.name)
		p.blind = false
	}
}

// respawn starts a worker's next life in place of one that is over.
func (w *world) respawn(p *proc) {
	old, promised := p.name, p.promised
	if p.up {
		w.endProcess(p)
	}
	if w.sc.proof && p.life > 0 && !promised {
		w.ownStore()
		w.store.call(w.now+w.skew, Release{Call{Incarnation: old}})
	}
	w.say("%s starts", lifeName(p.slot, p.life+1))
	w.spawn(p.slot)
}

// settle lets everything happen that is due, without faults, for d.
func (w *world) settle(d time.Duration) {
	for end := w.now + d; w.now < end; {
		w.drain()
		w.pass()
	}
	w.drain()
}

// drain spreads gossip and carries out calls until nothing is left to do.
func (w *world) drain() {
	for busy := true; busy; {
		busy = false
		for _, p := range w.procs {
			if p.up && p.paused < 0 && p.seen != w.truth(p) {
				w.tell(p)
				busy = true
			}
		}
		for i, msg := range w.msgs {
			if w.procs[msg.from].paused >= 0 && !msg.stray {
				continue
			}
			if !msg.done {
				w.carryOut(i)
			}
			w.answer(i)
			busy = true
			break
		}
	}
}
