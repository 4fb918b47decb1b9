package keytable

import (
	"slices"
	"strings"
	"testing"
)

// TestExplore runs every interleaving of a few callers and of whoever closes
// and opens the table, at the grain of critical sections and wake-ups, on the
// code that Lock, Unlock and Close consist of. Under the race detector, which has
// nothing to find in a search by a single goroutine, it searches a part.
func TestExplore(t *testing.T) {
	closing := func(w *world) { w.close() }
	opening := func(blocked ...string) func(*world) {
		return func(w *world) { w.table.Open(10, 0, blocked) }
	}
	installing := func(key string, token int64) func(*world) { return func(w *world) { w.install(key, token, false) } }
	installingShared := func(token int64) func(*world) { return func(w *world) { w.install("a", token, true) } }
	sharing := func(token int64) func(*world) { return func(w *world) { w.share("a", token) } }
	unblocking := func(key string) func(*world) { return func(w *world) { w.table.Unblock(key) } }
	advancing := func(first, limit int64) func(*world) {
		return func(w *world) { w.table.Advance(first, limit) }
	}
	for _, test := range []struct {
		name string
		// A letter for each, its key; a capital may be cancelled; after a + it waits with
		// an item, after a ! for a limited time, after a * it may become remote, after a = it shares
		// its key, and a digit behind it is its client.
		callers string
		limit   int64
		perKey  int
		total   int
		owner   []func(*world) // what happens to the table, in this order
	}{
		{name: "cancel", callers: "AAA"},
		{name: "cancel, two keys", callers: "AAbB"},
		{name: "close", callers: "aaA", owner: []func(*world){closing}},
		{name: "close twice", callers: "aaa", owner: []func(*world){closing, closing}},
		{name: "close and open", callers: "aAa", owner: []func(*world){closing, opening()}},
		{name: "close, open, close", callers: "aA", owner: []func(*world){closing, opening(), closing}},
		{name: "two keys", callers: "abA", owner: []func(*world){closing, opening()}},
		{name: "block", callers: "aA", owner: []func(*world){closing, opening("a"), unblocking("a")}},
		{name: "block, two keys", callers: "aBb", owner: []func(*world){closing, opening("b", "a"), unblocking("a"), unblocking("b")}},
		{name: "block while open", callers: "aaA", owner: []func(*world){opening("a"), unblocking("a")}},
		{name: "block and close", callers: "aA", owner: []func(*world){opening("a"), closing, opening()}},
		{name: "exhaust", callers: "aAb", limit: 2, owner: []func(*world){advancing(1, 3), advancing(10, 20)}},
		{name: "exhaust and close", callers: "aAb", limit: 2, owner: []func(*world){closing, opening()}},
		{name: "remote", callers: "*aA", owner: []func(*world){closing, opening(), closing}},
		{name: "install", callers: "*aA", owner: []func(*world){closing, installing("a", 7), opening()}},
		{name: "install, two keys", callers: "abB", owner: []func(*world){closing, installing("b", 7), opening(), closing}},
		{name: "install, and again", callers: "*aA", owner: []func(*world){closing, installing("a", 7), installing("a", 8), opening(), closing, installing("a", 9), opening()}},
		{name: "install and block", callers: "aA", owner: []func(*world){closing, installing("a", 7), opening("a"), unblocking("a")}},
		{name: "items", callers: "a+A+aA"},
		{name: "items around a Lock", callers: "+aa+A"},
		{name: "items, two keys", callers: "a+Ab"},
		{name: "items, close", callers: "+a+A+a", owner: []func(*world){closing}},
		{name: "items, close and open", callers: "a+a+A", owner: []func(*world){closing, opening()}},
		{name: "clients", callers: "a1A1a2a1"},
		{name: "clients and the program", callers: "a1aA1a1"},
		{name: "three clients", callers: "a1a1a2A3"},
		{name: "clients, two keys", callers: "a1b1A2b2"},
		{name: "clients leave", callers: "A1A1A2"},
		{name: "clients, limited", callers: "!a1a1!a2a1"},
		{name: "clients, close and open", callers: "a1a1A2", owner: []func(*world){closing, opening()}},
		{name: "clients, block", callers: "a1a1a2", owner: []func(*world){opening("a"), unblocking("a")}},
		{name: "clients, exhaust", callers: "a1a1A2", limit: 2, owner: []func(*world){advancing(1, 4)}},
		{name: "full for a key", callers: "a1a1A1a2", perKey: 2},
		{name: "full for a key, of equals", callers: "a1A2a3a", perKey: 1},
		{name: "full for a key, with the program", callers: "a1a1a1A", perKey: 2},
		{name: "full in all", callers: "a1b1A2b2", total: 1},
		{name: "full in all, of one client", callers: "a1a1A1a", total: 2},
		{name: "clients' items", callers: "a1+a1+a1+A2"},
		{name: "clients' items around a Lock", callers: "a1+a1A2+a1"},
		{name: "clients' items, full", callers: "a1+a1+a1+a2", perKey: 2},
		{name: "shared", callers: "=a=aaA"},
		{name: "shared, behind one that leaves", callers: "=aA=a=A"},
		{name: "shared, behind one that waits too long", callers: "=a!a=A=a"},
		{name: "shared, two keys", callers: "=aAb=b=a"},
		{name: "shared, clients", callers: "=a1A1=a2=a1"},
		{name: "shared, full for a key", callers: "=aa1a1=A2", perKey: 2},
		{name: "shared, full in all", callers: "=aa1=a1=a2", total: 2},
		{name: "shared, block", callers: "=aA=a", owner: []func(*world){opening("a"), unblocking("a")}},
		{name: "shared, exhaust", callers: "=aA=a=a", limit: 2, owner: []func(*world){advancing(1, 6)}},
		{name: "shared, close and open", callers: "=a=aA", owner: []func(*world){closing, opening(), closing}},
		{name: "shared, close, go on", callers: "=a=Aa", owner: []func(*world){closing, sharing(1), opening(), closing}},
		{name: "shared, go on while open", callers: "=a=aA", owner: []func(*world){closing, opening(), sharing(1)}},
		{name: "shared, remote", callers: "*=a=aA", owner: []func(*world){closing, opening()}},
		{name: "shared, install", callers: "=A", owner: []func(*world){closing, installingShared(7), installingShared(7), sharing(7), opening()}},
		{name: "shared, install, nobody joins", callers: "=aA", owner: []func(*world){closing, installingShared(7), opening(), closing}},
		{name: "shared, install beside others", callers: "*a=a", owner: []func(*world){closing, installingShared(7), installingShared(7), sharing(7), opening()}},
		{name: "shared, install alone", callers: "=a=a", owner: []func(*world){closing, installing("a", 7), installingShared(7), opening(), sharing(7)}},
		{name: "shared, items", callers: "=a+a=a+A"},
		{name: "items, exhaust", callers: "a+A+a", limit: 2, owner: []func(*world){advancing(1, 4)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			make := func() *world {
				w := newWorld(test.callers, test.owner)
				w.table.limit = test.limit
				w.table.Queue = &Queue{PerKey: test.perKey, Total: test.total}
				return w
			}
			states := explore(t, make)
			t.Logf("%d states", states)
			if states < 10 {
				t.Errorf("explored %d states only", states)
			}
		})
	}
}

// partUnderRace is how many states of a world are visited under the race detector.
const partUnderRace = 500

// explore visits every state that can be reached from the first one, and
// returns their number. A world cannot be copied, so it is made again and led
// to each state by the steps that were seen to lead there.
func explore(t *testing.T, make func() *world) int {
	seen := map[string]bool{}
	paths := [][]string{nil}
	for len(paths) > 0 && !(underRace && len(seen) == partUnderRace) {
		path := paths[len(paths)-1]
		paths = paths[:len(paths)-1]
		w := make()
		for _, name := range path {
			w.step(name)
		}
		state := w.fingerprint()
		if seen[state] {
			continue
		}
		seen[state] = true
		steps := w.steps()
		w.check(steps)
		if len(w.faults) > 0 {
			t.Fatalf("after %s:\n%s\nin %s", strings.Join(path, ", "), strings.Join(w.faults, "\n"), state)
		}
		for _, name := range steps {
			paths = append(paths, append(slices.Clone(path), name))
		}
	}
	return len(seen)
}
