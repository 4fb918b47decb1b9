package handoff

import (
	"slices"
	"time"
)

// Views of the ring: by partition, the workers in order of preference.
var (
	ringA  = [][]int{{0, 1, 2}}
	ringB  = [][]int{{1, 0, 2}}
	ringC  = [][]int{{2, 0, 1}}
	ringAA = [][]int{{0, 1, 2}, {0, 1, 2}}
	ringBC = [][]int{{1, 0, 2}, {2, 0, 1}}
	ringAB = [][]int{{0, 1, 2}, {1, 0, 2}}
	ringBA = [][]int{{1, 0, 2}, {0, 1, 2}}
	ringBB = [][]int{{1, 0, 2}, {1, 0, 2}}
)

// limits says how often each kind of event may happen.
type limits map[eventKind]int

func (l limits) array() (a [eventKinds]int) {
	for k, n := range l {
		a[k] = n
	}
	return a
}

func newScope(name string, procs, starts, faults int, l limits, views ...[][]int) *scope {
	l[evView] = len(views) - 1
	keys := []int{0}
	if len(views[0]) > 1 {
		keys = []int{0, 1}
	}
	return &scope{
		name: name, procs: procs, starts: starts, faults: faults, limit: l.array(),
		views: views, keys: keys, timing: timing,
	}
}

func (sc *scope) with(change func(*scope)) *scope {
	change(sc)
	return sc
}

// slowTiming renews a session, or tries to, every so many percent of the TTL
// only, but looks more often.
func slowTiming(renew, poll int) func(*scope) {
	return func(sc *scope) {
		sc.timing = func(m *Machine) {
			m.renewEvery = m.cfg.TTL / 100 * time.Duration(renew)
			m.retryEvery = m.renewEvery
			m.pollEvery = m.cfg.TTL / 100 * time.Duration(poll)
			m.drift = m.pollEvery
		}
	}
}

// draining begins with k0 running at worker a while b serves its partition,
// and with a store that has just restarted.
func draining(sc *scope) {
	sc.begin = func(w *world) {
		w.do(action{kind: actLock})
		w.do(action{kind: actView})
		w.settle(ttl / 5)
		w.do(action{kind: actRestart})
	}
}

// locked lets a key be locked for a holder elsewhere, which asks for it so many
// times more and releases it so many times.
func locked(renews, frees int) func(*scope) {
	return func(sc *scope) { sc.limit[evHold], sc.limit[evRenew], sc.limit[evFree] = 1, renews, frees }
}

// held begins with k0 locked at worker a.
func held(sc *scope) {
	sc.begin = func(w *world) { w.do(action{kind: actHold}) }
}

// kept begins with k0 locked at worker a, and written.
func kept(sc *scope) {
	sc.begin = func(w *world) {
		w.do(action{kind: actHold})
		w.settle(ttl / 10)
	}
}

// lostAll begins with k0 locked at worker a, written again after the store lost its data,
// and renewed.
func lostAll(sc *scope) {
	sc.begin = func(w *world) {
		w.do(action{kind: actHold})
		w.settle(ttl / 10)
		w.do(action{kind: actFlush})
		w.settle(ttl / 2)
		w.do(action{kind: actRenew})
	}
}

// travelled begins with k0 locked at worker a, and moved to b a while later.
func travelled(sc *scope) {
	sc.begin = func(w *world) {
		w.do(action{kind: actHold})
		w.settle(ttl * 3 / 10)
		w.do(action{kind: actView})
		w.settle(ttl / 10)
	}
}

// justMoved begins with k0 locked at worker a just after a renewed its session,
// and moved to b, whose latest renewal was before that and seen at once.
func justMoved(sc *scope) {
	slowTiming(30, 15)(sc)
	sc.warm = []int{0}
	sc.begin = func(w *world) {
		w.passUntil(w.now + ttl*14/100)
		w.spawn(1)
		w.settle(ttl)
		for a := w.procs[0]; a.m.renew.sent != w.instant(a); w.drain() {
			w.pass()
		}
		w.do(action{kind: actHold})
		w.do(action{kind: actView})
		for w.drain(); !w.procs[1].tables[0].open; w.drain() {
			w.pass()
		}
	}
}

// lateMove begins with k0 locked at worker a and moved to b by a request that a
// had given up, after which it had made another.
func lateMove(sc *scope) {
	sc.begin = func(w *world) {
		w.do(action{kind: actHold})
		w.do(action{kind: actView})
		pending := func() int {
			return slices.IndexFunc(w.msgs, func(m message) bool { _, ok := m.call.(Apply); return ok && !m.stray })
		}
		for range 2 {
			for pending() < 0 {
				for _, p := range w.procs {
					w.tell(p)
				}
				for i := len(w.msgs) - 1; i >= 0; i = len(w.msgs) - 1 {
					if w.msgs[i].stray || pending() >= 0 {
						break
					}
					w.carryOut(i)
					w.answer(i)
				}
				if pending() < 0 {
					w.pass()
				}
			}
			if len(w.msgs) == 1 {
				w.timeout(pending())
			}
		}
		w.settle(ttl / 10)
	}
}

// renewalsOfA lets a faulty network pick on the renewals of worker a alone.
func renewalsOfA(sc *scope) {
	sc.target = func(e Effect) bool { r, ok := e.(Renew); return ok && r.Incarnation[0] == 'a' }
}

// sessionOfA lets it pick on worker a's registrations and renewals.
func sessionOfA(sc *scope) {
	sc.target = func(e Effect) bool {
		switch e := e.(type) {
		case Register:
			return e.Session.Incarnation[0] == 'a'
		case Renew:
			return e.Incarnation[0] == 'a'
		}
		return false
	}
}

func only[E Effect](sc *scope) {
	sc.target = func(e Effect) bool { _, ok := e.(E); return ok }
}

// runs lets a worker's clocks show ticks while true passes.
func runs(worker int, ticks, true time.Duration) func(*scope) {
	return func(sc *scope) { sc.rates[worker] = rate{ticks, true} }
}

// within ends the search that long after its begin. Clocks of different rates
// hardly ever come to show again what they showed before, so without an end
// their worlds are as many as the ways in which two heartbeats can meet.
func within(d time.Duration) func(*scope) {
	return func(sc *scope) { sc.until = d }
}

// aAlone begins with worker a alone.
func aAlone(sc *scope) { sc.warm = []int{0} }

// scopes are the worlds that the explorer searches.
func scopes() []*scope {
	split := func(sc *scope) { sc.split = true }
	lives := func(sc *scope) { sc.lives = true }
	cold := func(sc *scope) { sc.cold = true }
	suspect := func(sc *scope) { sc.suspect = true }
	lag := func(sc *scope) { sc.lag = true }
	poll := func(sc *scope) { sc.poll = true }
	bare := func(sc *scope) { sc.bare = true }
	proof := func(sc *scope) { sc.proof = true }
	trust := func(sc *scope) { sc.trust = true }
	mute := func(sc *scope) { sc.mute = true }
	long := func(sc *scope) { sc.long = true }
	twoHolds := func(sc *scope) { sc.limit[evHold] = 2 }
	atOnce := func(sc *scope) { sc.atOnce = true }
	one := func(sc *scope) { sc.batch = 1 }
	twoKeys := func(sc *scope) { sc.keys = []int{0, 0} }
	seconds := func(sc *scope) { sc.second = ttl / 4 }
	untimed := func(sc *scope) {
		sc.untimed = true
		sc.off = guardCancel | guardSurrender | guardSilence
	}
	return []*scope{
		newScope("move, calls lost or late", 2, 2, 1, limits{evTimeout: 1, evDuplicate: 1}, ringA, ringB),
		newScope("move, slow network", 2, 2, 1, limits{evSlow: 1}, ringA, ringB),
		newScope("move, polled store", 2, 1, 1, limits{evTimeout: 1, evDuplicate: 1}, ringA, ringB).with(poll),
		newScope("move, renewals lost", 2, 2, 2, limits{evTimeout: 2}, ringA, ringB).with(slowTiming(60, 10)).with(renewalsOfA),
		newScope("false suspicion", 2, 2, 2, limits{evTimeout: 1, evDuplicate: 1, evSlow: 1}, ringA).with(suspect),
		newScope("false suspicion, renewals show nothing", 2, 2, 2, limits{evTimeout: 1, evDuplicate: 1}, ringA).with(suspect).with(mute),
		newScope("false suspicion, renewals lost", 2, 2, 2, limits{evTimeout: 2}, ringA).with(slowTiming(60, 20)).with(renewalsOfA).with(suspect),
		newScope("false suspicion, renewal slow, then lost", 2, 2, 2, limits{evSlow: 1, evTimeout: 1}, ringA).with(slowTiming(60, 20)).with(renewalsOfA).with(suspect).with(poll),
		newScope("flap", 2, 2, 1, limits{evTimeout: 1, evDuplicate: 1}, ringA, ringB, ringA),
		newScope("flap, slow reads", 2, 1, 1, limits{evSlow: 1}, ringA, ringB, ringA).with(only[Observe]),
		newScope("flap, late clears", 2, 3, 1, limits{evDuplicate: 1}, ringA, ringB, ringA).with(only[Clear]),
		newScope("crash in a move", 2, 2, 1, limits{evCrash: 1}, ringA, ringB),
		newScope("crash and a lost call", 2, 1, 2, limits{evCrash: 1, evTimeout: 1}, ringA, ringB),
		newScope("crash and a lost call, renewals show nothing", 2, 1, 2, limits{evCrash: 1, evTimeout: 1}, ringA, ringB).with(mute),
		newScope("crash and restart", 2, 1, 1, limits{evCrash: 1, evSpawn: 1}, ringA, ringB),
		newScope("restart with proof", 2, 1, 1, limits{evCrash: 1, evSpawn: 1}, ringA, ringB).with(proof),
		newScope("suspended worker", 2, 2, 1, limits{evPause: 1}, ringA, ringB).with(split),
		newScope("store restarts", 2, 2, 1, limits{evRestart: 1}, ringA, ringB),
		newScope("store restarts, late registration", 2, 2, 2, limits{evRestart: 1, evDuplicate: 1}, ringA, ringB).with(only[Register]),
		newScope("store restarts, flap, late registration", 2, 3, 2, limits{evRestart: 1, evDuplicate: 1}, ringA, ringB, ringA).with(only[Register]),
		newScope("store restarts in a move, flap, late registration", 2, 3, 2, limits{evRestart: 1, evDuplicate: 1}, ringA, ringB, ringA).with(only[Register]).with(draining),
		newScope("lost writes", 2, 2, 1, limits{evRollback: 1}, ringA, ringB),
		newScope("lost writes, store's clock steps", 2, 2, 2, limits{evRollback: 1, evStoreStep: 1}, ringA, ringB).with(seconds),
		newScope("lost writes, lost call, crash", 2, 0, 3, limits{evRollback: 1, evTimeout: 1, evCrash: 1}, ringA, ringB).with(only[Apply]).with(poll),
		newScope("lost writes and a crash", 2, 1, 2, limits{evRollback: 1, evCrash: 1}, ringA, ringB).with(seconds),
		newScope("lost writes and a leave", 2, 1, 1, limits{evRollback: 1, evLeave: 1, evSpawn: 1}, ringA, ringB).with(seconds),
		newScope("lost writes, slow reads", 2, 2, 2, limits{evRollback: 1, evSlow: 1}, ringA, ringB).with(only[Observe]),
		newScope("lost writes, reads fail", 2, 2, 2, limits{evRollback: 1, evBlind: 1}, ringA, ringB),
		newScope("everything lost, reads fail", 2, 2, 2, limits{evFlush: 1, evBlind: 1}, ringA, ringB),
		newScope("reads fail, crash", 2, 1, 2, limits{evBlind: 1, evCrash: 1}, ringA, ringB),
		newScope("reads fail late, crash", 2, 1, 3, limits{evBlind: 1, evSlow: 1, evCrash: 1}, ringA).with(only[Observe]).with(suspect),
		newScope("everything lost", 2, 2, 1, limits{evFlush: 1}, ringA, ringB),
		newScope("store's clock steps", 2, 1, 2, limits{evStoreStep: 1, evCrash: 1}, ringA, ringB),
		newScope("store's clock steps, slow network", 2, 1, 2, limits{evStoreStep: 1, evSlow: 1}, ringA),
		newScope("session expires early", 2, 2, 1, limits{evExpire: 1}, ringA, ringB).with(lag),
		newScope("session expires early, unseen renewal", 2, 2, 1, limits{evExpire: 1}, ringA).with(slowTiming(60, 20)).with(suspect),
		newScope("session expires early, crash", 2, 1, 2, limits{evExpire: 1, evCrash: 1}, ringA, ringB),
		newScope("session expires early, renewed at the last moment", 2, 2, 2, limits{evExpire: 1, evTimeout: 1}, ringA).with(slowTiming(49, 7)).with(suspect).with(renewalsOfA),
		newScope("wall clock steps back", 2, 1, 2, limits{evWallStep: 1, evCrash: 1}, ringA, ringB),
		newScope("clock 4.8 percent slow, renewal lost", 2, 2, 1, limits{evTimeout: 1}, ringA).with(slowTiming(60, 18)).with(renewalsOfA).with(suspect).with(runs(0, 20, 21)).with(mute),
		newScope("a worker joins, clock 4.8 percent slow, renewal lost", 2, 2, 1, limits{evSpawn: 1, evTimeout: 1}, ringB).with(slowTiming(60, 20)).with(bare).with(renewalsOfA).with(aAlone).with(runs(0, 20, 21)).with(within(2 * ttl)).with(mute),
		newScope("claimant's clock a third fast, renewal lost", 2, 2, 1, limits{evTimeout: 1}, ringA).with(slowTiming(60, 16)).with(renewalsOfA).with(suspect).with(runs(1, 4, 3)),
		newScope("claimant's clock 4.2 percent fast, session expires early, renewal lost", 2, 2, 2, limits{evExpire: 1, evTimeout: 1}, ringA).with(slowTiming(47, 18)).with(renewalsOfA).with(suspect).with(runs(1, 25, 24)).with(within(2 * ttl)).with(mute),
		newScope("clock 4 percent slow, session expires early", 2, 2, 1, limits{evExpire: 1}, ringA).with(runs(0, 24, 25)).with(suspect),
		newScope("two lives, false suspicion", 2, 2, 1, limits{evExpire: 1}, ringA).with(suspect).with(lives),
		newScope("two lives in a move", 2, 2, 1, limits{evExpire: 1}, ringA, ringB).with(lives),
		newScope("two lives, renewal lost", 2, 2, 1, limits{evTimeout: 1}, ringA, ringB).with(slowTiming(60, 30)).with(renewalsOfA).with(lives),
		newScope("A to B to C", 3, 2, 0, limits{}, ringA, ringB, ringC),
		newScope("A to B to C, late calls", 3, 2, 1, limits{evTimeout: 1}, ringA, ringB, ringC).with(only[Apply]),
		newScope("two joins at once", 3, 2, 0, limits{}, ringAA, ringBC),
		newScope("two partitions, crash", 2, 2, 1, limits{evCrash: 1}, ringAA, ringAB),
		newScope("placed at will, seen late", 2, 2, 0, limits{}, ringA, ringB, ringA, ringB).with(lag),
		newScope("placed at will, seen late, call lost", 2, 1, 1, limits{evTimeout: 1}, ringA, ringB, ringA).with(lag).with(only[Apply]),
		newScope("two partitions placed at each other's owner, crash", 2, 1, 1, limits{evCrash: 1}, ringAB, ringBA).with(lag),
		newScope("flap, hints late and repeated", 2, 2, 2, limits{evLate: 2}, ringA, ringB, ringA).with(poll),
		newScope("move, hint late, calls lost or late", 2, 1, 2, limits{evLate: 1, evTimeout: 1, evDuplicate: 1}, ringA, ringB).with(poll).with(only[Apply]),
		newScope("flap, hint late, late clears", 2, 2, 2, limits{evLate: 1, evDuplicate: 1}, ringA, ringB, ringA).with(only[Clear]),
		newScope("hint late, crash", 2, 1, 2, limits{evLate: 1, evCrash: 1}, ringA, ringB).with(poll),
		newScope("hint late, lost writes", 2, 1, 2, limits{evLate: 1, evRollback: 1}, ringA, ringB),
		newScope("hint late, everything lost", 2, 1, 2, limits{evLate: 1, evFlush: 1}, ringA, ringB),
		newScope("two moves, hints late", 2, 1, 1, limits{evLate: 1}, ringAA, ringBB).with(poll).with(one),
		newScope("hint late, store restarts", 2, 1, 2, limits{evLate: 1, evRestart: 1}, ringA, ringB).with(poll),
		newScope("hint late, two lives", 2, 1, 2, limits{evLate: 1, evExpire: 1}, ringA, ringB).with(lives),
		newScope("hint late, locks, flap", 2, 1, 1, limits{evLate: 1}, ringA, ringB, ringA).with(locked(0, 0)).with(held),
		newScope("leave", 2, 2, 1, limits{evLeave: 1, evTimeout: 1, evDuplicate: 1}, ringA),
		newScope("leave and come back", 2, 2, 0, limits{evLeave: 1, evSpawn: 1}, ringA, ringB),
		newScope("leave at once", 2, 2, 1, limits{evLeave: 1, evTimeout: 1, evDuplicate: 1}, ringA).with(atOnce),
		newScope("leave at once in a move, crash", 2, 1, 1, limits{evLeave: 1, evCrash: 1}, ringA, ringB).with(atOnce),
		newScope("two keys", 2, 3, 1, limits{evTimeout: 1, evDuplicate: 1}, ringA, ringB).with(twoKeys),
		newScope("batches of one", 2, 2, 1, limits{evTimeout: 1, evDuplicate: 1}, ringAA, ringBB).with(one),
		newScope("store restarts, slow registration, lost renewal", 2, 2, 3, limits{evRestart: 1, evSlow: 1, evTimeout: 1}, ringA).with(slowTiming(60, 16)).with(sessionOfA).with(suspect),
		newScope("tokens run low", 2, 2, 1, limits{evAdvance: 1, evTimeout: 1, evDuplicate: 1}, ringA, ringB),
		newScope("first start", 2, 1, 1, limits{evTimeout: 1, evDuplicate: 1}, ringA).with(cold),
		newScope("first start, late claim", 2, 2, 1, limits{evDuplicate: 1}, ringA, ringB).with(cold).with(only[Apply]),
		newScope("a new store, a worker joins that trusts its quarantine", 2, 2, 1, limits{evFlush: 1, evSpawn: 1, evTimeout: 1}, ringB).with(aAlone).with(trust),
		newScope("a new store, restart that trusts its quarantine", 2, 1, 2, limits{evFlush: 1, evCrash: 1, evSpawn: 1}, ringA).with(seconds).with(trust),
		newScope("locks, move, calls lost or late", 2, 1, 1, limits{evTimeout: 1, evDuplicate: 1}, ringA, ringB).with(locked(1, 1)).with(only[Apply]),
		newScope("locks, crash in a move", 2, 1, 1, limits{evCrash: 1}, ringA, ringB).with(locked(0, 0)).with(held),
		newScope("locks, crash", 2, 1, 1, limits{evCrash: 1}, ringA).with(locked(0, 0)).with(slowTiming(30, 15)),
		newScope("locks, crash just after a move", 2, 1, 1, limits{evCrash: 1}, ringA, ringB).with(locked(0, 0)).with(justMoved),
		newScope("locks, crash after a move", 2, 1, 1, limits{evCrash: 1}, ringA, ringB).with(locked(1, 1)).with(travelled),
		newScope("locks, crash after a move, restart with proof", 2, 1, 1, limits{evCrash: 1, evSpawn: 1}, ringA, ringB).with(locked(1, 0)).with(travelled).with(proof),
		newScope("locks, flap, late calls", 2, 1, 1, limits{evTimeout: 1}, ringA, ringB, ringA).with(locked(0, 0)).with(held).with(only[Apply]),
		newScope("locks, flap twice, late move", 2, 1, 1, limits{evTimeout: 1}, ringA, ringB, ringA, ringB).with(locked(0, 0)).with(lateMove).with(only[Apply]),
		newScope("locks, A to B to C", 3, 1, 0, limits{}, ringA, ringB, ringC).with(locked(1, 0)),
		newScope("locks, session expires early", 2, 1, 1, limits{evExpire: 1}, ringA, ringB).with(locked(1, 0)),
		newScope("locks, two lives in a move", 2, 1, 1, limits{evExpire: 1}, ringA, ringB).with(locked(0, 0)).with(held).with(lives),
		newScope("locks, leave", 2, 1, 1, limits{evLeave: 1, evTimeout: 1}, ringA).with(locked(1, 0)).with(only[Apply]),
		newScope("locks, leave at once", 2, 1, 0, limits{evLeave: 1}, ringA).with(locked(1, 0)).with(atOnce),
		newScope("locks, suspended worker", 2, 1, 1, limits{evPause: 1}, ringA, ringB).with(locked(0, 0)).with(held),
		newScope("locks, store restarts", 2, 1, 1, limits{evRestart: 1}, ringA, ringB).with(locked(1, 0)),
		newScope("locks, lost writes", 2, 1, 1, limits{evRollback: 1}, ringA, ringB).with(locked(1, 0)),
		newScope("locks, everything lost", 2, 1, 1, limits{evFlush: 1}, ringA, ringB).with(locked(0, 0)),
		newScope("long locks, crash", 2, 1, 1, limits{evCrash: 1}, ringA).with(locked(1, 1)).with(long),
		newScope("long locks, crash, calls lost or late", 2, 1, 2, limits{evCrash: 1, evTimeout: 1, evDuplicate: 1}, ringA).with(locked(0, 1)).with(long).with(only[WriteLocks]),
		newScope("long locks, two holders, calls lost or late", 2, 0, 2, limits{evCrash: 1, evDuplicate: 1}, ringA).with(locked(0, 1)).with(twoHolds).with(long).with(only[WriteLocks]),
		newScope("long locks, move, calls lost or late", 2, 0, 1, limits{evTimeout: 1, evDuplicate: 1}, ringA, ringB).with(locked(0, 1)).with(long).with(only[WriteLocks]),
		newScope("long locks, move lost or late", 2, 1, 1, limits{evTimeout: 1, evDuplicate: 1}, ringA, ringB).with(locked(0, 0)).with(kept).with(long).with(only[Apply]),
		newScope("long locks, flap, late writes", 2, 0, 1, limits{evDuplicate: 1}, ringA, ringB, ringA).with(locked(0, 1)).with(long).with(only[WriteLocks]),
		newScope("long locks, crash in a move", 2, 1, 1, limits{evCrash: 1}, ringA, ringB).with(locked(0, 0)).with(kept).with(long),
		newScope("long locks, session expires early", 2, 1, 1, limits{evExpire: 1}, ringA, ringB).with(locked(1, 0)).with(long),
		newScope("long locks, two lives", 2, 1, 1, limits{evExpire: 1}, ringA).with(locked(0, 1)).with(long).with(lives),
		newScope("long locks, leave at once", 2, 1, 1, limits{evLeave: 1}, ringA).with(locked(1, 0)).with(long).with(atOnce),
		newScope("long locks, suspended worker", 2, 1, 1, limits{evPause: 1}, ringA).with(locked(0, 1)).with(long),
		newScope("long locks, restart with proof", 2, 1, 1, limits{evCrash: 1, evSpawn: 1}, ringA).with(locked(0, 0)).with(kept).with(long).with(proof),
		newScope("long locks, tokens run low", 2, 1, 1, limits{evAdvance: 1, evTimeout: 1}, ringA).with(locked(0, 1)).with(long),
		newScope("long locks, everything lost", 2, 1, 1, limits{evFlush: 1}, ringA).with(locked(0, 1)).with(long),
		newScope("long locks, everything lost, then a crash", 2, 1, 2, limits{evFlush: 1, evCrash: 1}, ringA).with(locked(1, 0)).with(long).with(lostAll),
		newScope("no clock at all", 2, 1, 2, limits{evStoreStep: 2, evTimeout: 1, evDuplicate: 1}, ringA, ringB, ringA).with(untimed).with(only[Apply]),
	}
}
