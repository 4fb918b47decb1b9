package remote

import (
	"os"
	"regexp"
	"testing"
)

// together are the scopes in which clients hold their locks by the machines of package holder.
func together() []*scope {
	one, two, long := []string{"h"}, []string{"h", "hq"}, []string{"hL"}
	finer := func(sc *scope) *scope { sc.step = ttl / 5; return sc }
	late := func(sc *scope) *scope { sc.lateStore = true; return sc }
	held := func(sc *scope) *scope { sc.begin = []string{"ask 0", "deliver #0 a", "hear #0"}; return sc }
	written := func(sc *scope) *scope {
		sc.begin = []string{"ask 0", "deliver #0 a", "store a", "step #0", "hear #0"}
		return sc
	}
	after := func(sc *scope, begin ...string) *scope { sc.begin = begin; return sc }
	list := []*scope{
		newScope("calls lost", 1, one, limits{evAsk: 1, evLose: 2, evTime: 3}),
		newScope("calls lost, a rival", 1, two, limits{evAsk: 2, evLose: 1, evTime: 2}),
		newScope("calls given up", 1, one, limits{evAsk: 1, evLose: 1, evGiveUp: 1, evTime: 3}),
		newScope("given back", 1, two, limits{evAsk: 2, evLose: 1, evAbandon: 1, evTime: 1}),
		newScope("two slow clients", 1, []string{"h", "h"}, limits{evAsk: 2, evTime: 3}),
		newScope("a client stands still", 1, two, limits{evAsk: 2, evStop: 1, evTime: 3}),
		newScope("a client dies", 2, two, limits{evAsk: 2, evDie: 1, evMove: 1, evTime: 1}),
		newScope("a client is closed", 1, two, limits{evAsk: 2, evClose: 1, evTime: 3}),
		newScope("readers", 1, []string{"hr", "hrq", "hq"}, limits{evAsk: 3, evTime: 1}),
		newScope("readers, move", 2, []string{"hr", "hrq", "hq"}, limits{evAsk: 3, evMove: 1}),
		newScope("beside the lock service", 1, []string{"h", "w"}, limits{evAsk: 2, evRepeat: 1, evRelease: 1, evTime: 2}),
		newScope("beside the lock service, several keys", 1, []string{"h", "b"}, limits{evAsk: 2, evRepeat: 1, evTime: 1}),
		newScope("beside the lock service, another mode", 1, []string{"hr", "r"}, limits{evAsk: 2, evOther: 1, evRelease: 1, evTime: 1}),

		newScope("move", 2, two, limits{evAsk: 2, evMove: 1, evTime: 1}),
		held(newScope("move, a lease ends", 2, one, limits{evMove: 1, evTime: 3})),
		newScope("move, calls lost", 2, one, limits{evAsk: 1, evMove: 1, evLose: 1, evTime: 2}),
		held(newScope("move, calls given up", 2, one, limits{evMove: 1, evGiveUp: 1, evTime: 2})),
		newScope("move, given back", 2, one, limits{evAsk: 1, evMove: 1, evAbandon: 1, evLose: 1}),
		newScope("move there and back", 2, one, limits{evAsk: 1, evMove: 2, evTime: 1}),
		held(newScope("move there and back, calls lost", 2, one, limits{evAsk: 1, evMove: 2, evLose: 1})),
		held(newScope("two moves in a row", 3, one, limits{evMove: 2, evPass: 1, evTime: 1})),
		held(newScope("move that is not made", 2, one, limits{evMove: 1, evResume: 1, evTime: 3})),
		late(newScope("long lease, move that is not made", 2, long, limits{evAsk: 1, evMove: 1, evResume: 1, evTime: 1})),
		held(newScope("drain", 2, one, limits{evMove: 1, evCrash: 1, evTime: 3})),

		held(newScope("crash", 2, two, limits{evAsk: 1, evCrash: 1, evTime: 4})),
		held(newScope("crash, calls lost", 2, one, limits{evCrash: 1, evLose: 1, evTime: 3})),
		newScope("crash and start", 2, one, limits{evAsk: 2, evCrash: 1, evStart: 1, evTime: 3}),
		after(newScope("session lost", 2, two, limits{evAsk: 1, evTime: 3}), "ask 0", "deliver #0 a", "hear #0", "cut a", "time"),
		after(newScope("session lost, and the partition comes back", 2, one, limits{evMove: 1, evTime: 3}),
			"ask 0", "deliver #0 a", "hear #0", "cut a", "time"),
		after(newScope("an answer lost with its owner, and the partition comes back", 2, one, limits{evMove: 1, evTime: 2}),
			"ask 0", "deliver #0 a", "cut a", "time", "time", "lose #0"),
		held(newScope("shell stands still", 2, one, limits{evCut: 1, evBehind: 1, evTime: 4})),
		after(newScope("a worker that was taken for dead is asked", 3, long, limits{evAsk: 1, evCrash: 1, evTime: 2}),
			"cut a", "stop a", "time", "time", "time", "claim b"),

		newScope("long lease", 1, long, limits{evAsk: 1, evLose: 1, evTime: 3}),
		late(newScope("long lease, store late", 1, []string{"hL", "hq"}, limits{evAsk: 2, evLose: 1, evTime: 1})),
		written(newScope("long lease, released, store late", 1, long, limits{evLose: 1, evGiveUp: 1, evTime: 2})),
		newScope("long lease, move", 2, long, limits{evAsk: 1, evMove: 1, evLose: 1, evTime: 1}),
		newScope("long lease, crash", 2, []string{"hL", "hq"}, limits{evAsk: 2, evCrash: 1, evTime: 3}),
		newScope("short lease", 1, []string{"hS", "hq"}, limits{evAsk: 2, evLose: 1, evTime: 3}),
		held(newScope("extension to more", 1, one, limits{evExtend: 1, evLose: 1, evTime: 3})),
		written(newScope("extension to less", 1, long, limits{evExtend: 1, evLose: 1, evTime: 3})),
		held(newScope("extension, move", 2, one, limits{evExtend: 1, evMove: 1, evTime: 1})),
		after(newScope("extension of a long lease, move", 2, one, limits{evExtend: 1, evMove: 1}),
			"ask 0", "deliver #0 a", "hear #0", "extend 0", "deliver #0 a", "store a", "step #0", "hear #0"),
		held(newScope("extension, crash", 2, one, limits{evExtend: 1, evCrash: 1, evTime: 4})),

		finer(newScope("turns", 1, []string{"ht", "hq"}, limits{evAsk: 2, evTime: 4})),
		finer(newScope("turns, a client is closed", 1, []string{"ht"}, limits{evAsk: 1, evClose: 1, evTime: 3})),
		finer(newScope("turns, calls lost", 1, []string{"ht"}, limits{evAsk: 1, evLose: 1, evTime: 4})),
		finer(held(newScope("turns, move", 2, []string{"ht"}, limits{evMove: 1, evTime: 2}))),
		finer(held(newScope("turns, crash", 2, []string{"ht"}, limits{evCrash: 1, evTime: 6}))),
		after(finer(newScope("turns, session lost", 2, []string{"ht"}, limits{evTime: 3})),
			"ask 0", "deliver #0 a", "hear #0", "cut a", "time"),
		after(finer(newScope("turns, a client stands still", 1, []string{"ht", "hq"}, limits{evAsk: 1, evTime: 3})),
			"ask 0", "deliver #0 a", "hear #0", "begin 0", "stand-still 0", "time", "time", "time"),
		after(finer(newScope("turns, a client stands still at a turn", 1, []string{"ht", "hq"}, limits{evAsk: 1, evTime: 3})),
			"ask 0", "deliver #0 a", "hear #0", "stand-still 0", "time", "time", "time"),
	}
	for _, sc := range list {
		sc.fair = true
	}
	return list
}

// TestExploreTogether searches every scope in which the machines of owners and of holders meet. The scopes together take each
// transition of both tables.
func TestExploreTogether(t *testing.T) {
	cover := map[transition]int{}
	if !explore(t, together(), cover) {
		return
	}
	for from := range states {
		for to := range states {
			if transitions[from][to] && cover[transition{"owner", from.String(), to.String()}] == 0 {
				t.Errorf("no lock of an owner goes from %v to %v", from, to)
			}
		}
	}
	doc, err := os.ReadFile("../../../../internal/holder/doc.go") // which has what its table has
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^//\t(\w+) → (\w+) `).FindAllStringSubmatch(string(doc), -1)
	for _, m := range list {
		ofStore := m[1] == "working" && m[2] == "over" || m[1] == "closed" && m[2] == "releasing"
		if cover[transition{"holder", m[1], m[2]}] == 0 && !ofStore {
			t.Errorf("no lock of a holder goes from %s to %s", m[1], m[2])
		}
	}
	t.Logf("%d transitions of both tables, of which %d are a holder's", len(cover), len(list))
}
