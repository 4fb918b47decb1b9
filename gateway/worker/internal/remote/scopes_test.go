package remote

import (
	"slices"
	"time"
)

// scope is a small world and what may happen in it.
type scope struct {
	name      string
	workers   int
	callers   []string // a letter each: w for writing, r for reading, l for another key, L for a long lease
	limits    [events]int8
	step      time.Duration
	fine      bool     // things may come in between a key that is won, its lock, and what it was asked for
	reuse     bool     // callers use their ids again
	early     bool     // callers may ask a worker that does not own the partition yet
	fair      bool     // from each world a fair run is to end
	lateStore bool     // the store's answers may come later than what it does
	begin     []string // what happens first
}

type limits map[event]int8

func newScope(name string, workers int, callers []string, l limits) *scope {
	sc := &scope{name: name, workers: workers, callers: callers, step: ttl * 2 / 5}
	for e, n := range l {
		sc.limits[e] = n
	}
	return sc
}

func (sc *scope) root() *world {
	w := newWorld(sc)
	for _, name := range sc.begin {
		for e := range w.left {
			w.left[e] = 1
		}
		w.do(w.find(name))
	}
	w.left = sc.limits
	return w
}

// find returns the action with that name.
func (w *world) find(name string) action {
	list := w.actions(nil)
	i := slices.IndexFunc(list, func(a action) bool { return w.name(a) == name })
	if i < 0 {
		w.fail("%q cannot happen here", name)
		return action{event: evTime}
	}
	return list[i]
}

// scopes are the worlds that the explorer searches.
func scopes() []*scope {
	one, two := []string{"w"}, []string{"w", "w"}
	fine := func(sc *scope) *scope { sc.fine = true; return sc }
	reuse := func(sc *scope) *scope { sc.reuse = true; return sc }
	after := func(sc *scope, begin ...string) *scope { sc.begin = begin; return sc }
	late := func(sc *scope) *scope { sc.lateStore = true; return sc }
	early := func(sc *scope) *scope { sc.early = true; return sc }
	return []*scope{
		newScope("one caller, calls repeated and late", 1, one, limits{evAsk: 2, evRepeat: 2, evRelease: 2, evTime: 3}),
		newScope("two callers, calls repeated and late", 1, two, limits{evAsk: 2, evRepeat: 1, evRelease: 1, evTime: 3}),
		newScope("two callers wait and leave", 1, two, limits{evAsk: 3, evRepeat: 1, evLeave: 1, evRelease: 1, evAbandon: 1}),
		fine(newScope("a caller leaves at any moment", 1, two, limits{evAsk: 2, evRepeat: 1, evLeave: 2, evRelease: 1})),
		newScope("a request is made again", 1, two, limits{evAsk: 2, evAgain: 1, evRepeat: 1, evAbandon: 1, evRelease: 1}),
		reuse(newScope("one id, asked for again", 1, one, limits{evAsk: 3, evAgain: 1, evRepeat: 1, evRelease: 1, evTime: 3})),
		newScope("readers, and another mode", 1, []string{"r", "r"}, limits{evAsk: 2, evOther: 1, evRepeat: 1, evRelease: 1}),
		newScope("a reader and a writer", 1, []string{"r", "w"}, limits{evAsk: 2, evOther: 1, evRelease: 1, evTime: 3}),
		newScope("another key", 1, []string{"w", "l"}, limits{evAsk: 2, evKey: 1, evRepeat: 1, evRelease: 1}),
		newScope("a lease that is renewed", 1, two, limits{evAsk: 2, evRenew: 2, evTime: 6}),
		newScope("an operator", 1, two, limits{evAsk: 2, evRenew: 1, evRelease: 1, evUnlock: 1, evRepeat: 1, evTime: 1}),

		newScope("move", 2, two, limits{evAsk: 2, evRepeat: 1, evRelease: 1, evMove: 1}),
		newScope("move, renewals", 2, two, limits{evAsk: 2, evRenew: 1, evMove: 1, evTime: 4}),
		newScope("move that is not made", 2, two, limits{evAsk: 2, evRelease: 1, evMove: 1, evResume: 1, evTime: 3}),
		newScope("move there and back", 2, one, limits{evAsk: 2, evRepeat: 1, evRenew: 1, evRelease: 1, evMove: 2}),
		fine(newScope("move there and back, keys that are won late", 2, two, limits{evAsk: 2, evMove: 2, evRelease: 1})),
		newScope("two moves in a row", 3, one, limits{evAsk: 1, evRepeat: 1, evRelease: 1, evMove: 2, evPass: 1}),
		newScope("move, readers", 2, []string{"r", "r"}, limits{evAsk: 2, evOther: 1, evRelease: 1, evMove: 1}),
		early(newScope("move, asked for at the next owner", 2, one, limits{evAsk: 1, evRepeat: 1, evRelease: 1, evAbandon: 1, evMove: 1})),
		newScope("move, given back", 2, one, limits{evAsk: 1, evRepeat: 2, evAbandon: 1, evMove: 1, evLeave: 1}),

		newScope("crash", 2, two, limits{evAsk: 2, evRenew: 1, evCrash: 1, evTime: 4}),
		newScope("crash after a move", 2, two, limits{evAsk: 2, evMove: 1, evCrash: 1, evTime: 3}),
		after(newScope("crash after a move, released", 2, two, limits{evAsk: 1, evCrash: 1, evRelease: 1, evTime: 3}),
			"ask 0", "repeat 0", "deliver #0 a", "hear #0", "move b", "commit", "open b"),
		newScope("crash and start", 2, two, limits{evAsk: 2, evRepeat: 1, evCrash: 1, evStart: 1, evTime: 3}),
		newScope("crash of the new owner, two moves", 3, one, limits{evAsk: 1, evRenew: 1, evMove: 1, evPass: 1, evCrash: 1, evTime: 3}),
		newScope("session lost in a move", 2, two, limits{evAsk: 2, evCut: 1, evMove: 1, evResume: 1, evTime: 3}),
		newScope("session lost and found", 2, two, limits{evAsk: 2, evRelease: 1, evCut: 1, evTime: 4}),
		newScope("session lost, and the partition comes back", 2, one, limits{evAsk: 1, evRepeat: 1, evCut: 1, evMove: 1, evTime: 4}),
		newScope("session forgotten, twice", 1, two, limits{evAsk: 2, evForget: 2, evTime: 2}),
		newScope("shell stands still", 2, two, limits{evAsk: 2, evRelease: 1, evCut: 1, evBehind: 1, evTime: 3}),

		newScope("long lease", 1, []string{"L", "w"}, limits{evAsk: 2, evRelease: 1, evTime: 5}),
		late(newScope("long lease, store late", 1, []string{"L", "w"}, limits{evAsk: 2, evRelease: 1, evRepeat: 1, evLeave: 1, evTime: 1})),
		late(newScope("long lease, move", 2, []string{"L", "w"}, limits{evAsk: 2, evRelease: 1, evRepeat: 1, evMove: 1})),
		newScope("long lease, a reader and a writer, move", 2, []string{"rL", "w"}, limits{evAsk: 2, evOther: 1, evRelease: 1, evMove: 1}),
		newScope("long lease, move that is not made", 2, []string{"L", "w"}, limits{evAsk: 1, evRelease: 1, evMove: 1, evResume: 1, evTime: 4}),
		newScope("long lease, an operator", 1, []string{"L", "w"}, limits{evAsk: 2, evRenew: 1, evUnlock: 1}),
		newScope("long lease, crash", 2, []string{"L", "w"}, limits{evAsk: 2, evRelease: 1, evCrash: 1, evTime: 4}),
		late(newScope("long lease, store late, crash", 2, []string{"L"}, limits{evAsk: 2, evRepeat: 1, evRelease: 1, evLeave: 1, evCrash: 1, evTime: 3})),
		newScope("a lease that becomes long, crash", 2, two, limits{evAsk: 2, evExtend: 1, evCrash: 1, evTime: 4}),
		newScope("long lease, session lost, and the partition comes back", 2, []string{"L"}, limits{evAsk: 2, evRelease: 1, evCut: 1, evMove: 1, evTime: 4}),
	}
}
