package keytable

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestSlow: an execution that has held a key for long, by looks, is told of once, and so is a key that a
// caller has waited for, for as long as it is busy.
func TestSlow(t *testing.T) {
	const long = 10
	var table Table
	now := time.Duration(1)
	check := func(what string, limit int, wantBusy bool, want ...string) (n int) {
		t.Helper()
		found, busy := table.Slow(now, long, limit)
		var got []string
		for _, s := range found {
			got = append(got, fmt.Sprint(s.Key, s.Token, s.Held, s.For, s.Waiters))
		}
		slices.Sort(got)
		if limit > 1 && !slices.Equal(got, want) || busy != wantBusy {
			t.Errorf("%s: %q, busy %v; want %q", what, got, busy, want)
		}
		return len(found)
	}
	const ns = time.Duration(1)
	check("nothing", 9, false)
	a, _ := table.TryLock("a")
	now = 100
	check("held since just now", 9, true)
	b, _ := table.TryLock("b")
	_, w, _ := table.enter("a", Wait{Came: 105})
	now = 109
	check("not for long", 9, true)
	if s := table.Inspect("a"); s.Seen != 100 {
		t.Errorf("a was seen at %v, want 100", s.Seen)
	}
	now = 110
	check("held since a look", 9, true, fmt.Sprint("a", a, true, 10*ns, 1))
	check("told of already", 9, true)
	now = 119
	check("others", 9, true, fmt.Sprint("a", a, false, 14*ns, 1), fmt.Sprint("b", b, true, 10*ns, 0))
	now = 200
	check("all told of", 9, true)
	table.Unlock("a", a)
	token, err := table.endWait(w, nil)
	if err != nil {
		t.Fatal(err)
	}
	check("the next execution, just now", 9, true)
	now = 210
	check("the next execution", 9, true, fmt.Sprint("a", token, true, 10*ns, 0))
	table.Unlock("a", token)
	table.Unlock("b", b)
	c, _ := table.TryLock("c")
	_, _ = table.TryLock("d")
	if s := table.Inspect("c"); s.Seen != 0 {
		t.Errorf("c, which no look has found, was seen at %v", s.Seen)
	}
	check("new keys", 9, true)
	now = 220
	for i, want := range []int{1, 1, 0} {
		if n := check("one at a time", 1, true); n != want {
			t.Errorf("look %d: %d keys, want %d", i, n, want)
		}
	}
	_, _, _ = table.enter("c", Wait{Came: 220})
	check("waited for since just now", 9, true)
	now = 230
	check("waited for in place of a key that was forgotten", 9, true, fmt.Sprint("c", c, false, 10*ns, 1))
}

// TestSlowLeavesOutRemoteExecutions: who waits for one is told of.
func TestSlowLeavesOutRemoteExecutions(t *testing.T) {
	var table Table
	token, _ := table.TryLock("k")
	table.SetRemote("k", token)
	_, _, _ = table.enter("k", Wait{Came: 1})
	table.Slow(1, 10, 9)
	if found, busy := table.Slow(11, 10, 9); len(found) != 1 || found[0].Held || found[0].For != 10 || !busy {
		t.Errorf("%+v, busy %v: want the caller that waits", found, busy)
	}
}
