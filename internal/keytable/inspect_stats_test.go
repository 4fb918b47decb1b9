package keytable

import (
	"context"
	"testing"
)

// Each grant is counted, and no token that was passed over or reserved.
func TestStats(t *testing.T) {
	var table Table
	expect := func(want Stats) {
		t.Helper()
		if got := table.Stats(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	run := func(key string) {
		t.Helper()
		token, err := table.Lock(context.Background(), key)
		if err != nil {
			t.Fatal(err)
		}
		table.Unlock(key, token)
	}
	expect(Stats{})
	run("a")
	run("a")
	expect(Stats{Granted: 2})
	held, err := table.TryLock("b")
	if err != nil {
		t.Fatal(err)
	}
	table.Reserve(7)
	expect(Stats{Granted: 3, Held: 1})
	table.Close()
	expect(Stats{Granted: 3, Held: 1})
	table.Open(1<<20+1, 2<<20, []string{"b", "c"})
	expect(Stats{Granted: 3, Held: 1, Blocked: 2})
	run("a")
	table.Advance(2<<20+1, 3<<20)
	run("a")
	table.Advance(2<<20+1, 3<<20)
	table.Unlock("b", held)
	table.Unblock("b")
	expect(Stats{Granted: 5, Blocked: 1})
}
