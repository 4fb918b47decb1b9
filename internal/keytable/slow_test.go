package keytable

import (
	"fmt"
	"slices"
	"testing"
)

// TestSlow: an execution that holds a key since before a moment is told of once,
// and so is a key that is waited for, for as long as it is busy.
func TestSlow(t *testing.T) {
	var table Table
	var zero Mark
	check := func(what string, since Mark, limit int, wantBusy bool, want ...string) Mark {
		t.Helper()
		found, now, busy := table.Slow(since, limit)
		var got []string
		for _, s := range found {
			got = append(got, fmt.Sprint(s.Key, s.Token, s.Held, s.Waiters))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || busy != wantBusy {
			t.Errorf("%s: %q, busy %v; want %q", what, got, busy, want)
		}
		return now
	}
	check("nothing", zero, 9, false)
	a, _ := table.TryLock("a")
	start := check("held since just now", zero, 9, true)
	b, _ := table.TryLock("b")
	_, w, _ := table.enter("a", Wait{})
	check("held since before", start, 9, true, fmt.Sprint("a", a, true, 1))
	later := check("told of already", start, 9, true)
	check("others", later, 9, true, fmt.Sprint("a", a, false, 1), fmt.Sprint("b", b, true, 0))
	check("all told of", later, 9, true)
	table.Unlock("a", a)
	token, err := table.endWait(w, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := check("the next execution, just now", later, 9, true)
	check("the next execution", now, 9, true, fmt.Sprint("a", token, true, 0))
	table.Unlock("a", token)
	table.Unlock("b", b)
	c, _ := table.TryLock("c")
	_, _ = table.TryLock("d")
	now = check("new keys", now, 9, true)
	if found, _, _ := table.Slow(now, 1); len(found) != 1 {
		t.Errorf("%d keys, want 1", len(found))
	}
	if found, _, _ := table.Slow(now, 1); len(found) != 1 {
		t.Errorf("%d keys, want the other", len(found))
	}
	now = check("both told of", now, 9, true)
	_, _, _ = table.enter("c", Wait{})
	now = check("waited for since just now", now, 9, true)
	check("waited for in place of a key that was forgotten", now, 9, true, fmt.Sprint("c", c, false, 1))
}
