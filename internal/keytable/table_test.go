package keytable

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// attempt is a Lock under way. Read it after synctest.Wait.
type attempt struct {
	token    int64
	err      error
	returned bool
	cancel   context.CancelFunc
}

// lock calls Lock in a bubble and lets it come to rest.
func lock(t *testing.T, table *Table, key string) *attempt {
	ctx, cancel := context.WithCancel(t.Context())
	a := &attempt{cancel: cancel}
	go func() {
		a.token, a.err = table.Lock(ctx, key)
		a.returned = true
	}()
	synctest.Wait()
	return a
}

func (a *attempt) holds(t *testing.T, token int64) {
	t.Helper()
	synctest.Wait()
	if !a.returned || a.err != nil || a.token != token {
		t.Fatalf("Lock: returned %v, %d, %v; want token %d", a.returned, a.token, a.err, token)
	}
}

func (a *attempt) waits(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if a.returned {
		t.Fatalf("Lock returned %d, %v; want it to wait", a.token, a.err)
	}
}

func (a *attempt) fails(t *testing.T, want error) {
	t.Helper()
	synctest.Wait()
	if !a.returned || a.token != 0 || !errors.Is(a.err, want) {
		t.Fatalf("Lock: returned %v, %d, %v; want %v", a.returned, a.token, a.err, want)
	}
}

func isEmpty(t *testing.T, table *Table) {
	t.Helper()
	if n := table.Len(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	if n := table.Queue.Waiting(); n != 0 {
		t.Errorf("%d callers are counted as waiting", n)
	}
}

func TestTable(t *testing.T) {
	for _, test := range []struct {
		rule string
		run  func(t *testing.T, table *Table)
	}{
		{"one key is granted in order of arrival", func(t *testing.T, table *Table) {
			first, second, third := lock(t, table, "k"), lock(t, table, "k"), lock(t, table, "k")
			first.holds(t, 1)
			second.waits(t)
			table.Unlock("k", 1)
			second.holds(t, 2)
			third.waits(t)
			table.Unlock("k", 2)
			third.holds(t, 3)
			table.Unlock("k", 3)
		}},
		{"keys do not meet", func(t *testing.T, table *Table) {
			for i := range 20 {
				lock(t, table, fmt.Sprint(i)).holds(t, int64(i+1))
			}
			if n := table.Len(); n != 20 {
				t.Errorf("Len is %d", n)
			}
			for i := range 20 {
				table.Unlock(fmt.Sprint(i), int64(i+1))
			}
		}},
		{"the empty key is a key", func(t *testing.T, table *Table) {
			lock(t, table, "").holds(t, 1)
			second := lock(t, table, "")
			second.waits(t)
			table.Unlock("", 1)
			second.holds(t, 2)
			table.Unlock("", 2)
		}},
		{"a waiter whose context ends is passed over", func(t *testing.T, table *Table) {
			lock(t, table, "k").holds(t, 1)
			second, third, fourth := lock(t, table, "k"), lock(t, table, "k"), lock(t, table, "k")
			third.cancel()
			third.fails(t, context.Canceled)
			if n := table.Queued("k"); n != 2 {
				t.Errorf("%d wait", n)
			}
			table.Unlock("k", 1)
			second.holds(t, 2)
			table.Unlock("k", 2)
			fourth.holds(t, 3)
			table.Unlock("k", 3)
		}},
		{"a done context loses even if the key is free", func(t *testing.T, table *Table) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			<-ctx.Done()
			if token, err := table.Lock(ctx, "k"); token != 0 || err != context.DeadlineExceeded {
				t.Errorf("Lock: %d, %v", token, err)
			}
		}},
		{"TryLock does not wait", func(t *testing.T, table *Table) {
			if token, err := table.TryLock("k"); token != 1 || err != nil {
				t.Errorf("TryLock of a free key: %d, %v", token, err)
			}
			if _, err := table.TryLock("k"); err != ErrLocked {
				t.Errorf("TryLock of a held key: %v", err)
			}
			table.Unlock("k", 1)
			table.Open(0, 0, []string{"k"})
			if _, err := table.TryLock("k"); err != ErrLocked {
				t.Errorf("TryLock of a blocked key: %v", err)
			}
			table.Close()
			if _, err := table.TryLock("k"); err != ErrClosed {
				t.Errorf("TryLock of a closed table: %v", err)
			}
		}},
		{"a full queue refuses", func(t *testing.T, table *Table) {
			table.Queue.PerKey, table.Queue.Total = 2, 3
			lock(t, table, "a").holds(t, 1)
			lock(t, table, "b").holds(t, 2)
			waiters := []*attempt{lock(t, table, "a"), lock(t, table, "a")}
			lock(t, table, "a").fails(t, ErrQueueFull)
			waiters = append(waiters, lock(t, table, "b"))
			lock(t, table, "b").fails(t, ErrQueueFull)
			lock(t, table, "c").holds(t, 3)
			other := Table{Queue: table.Queue}
			lock(t, &other, "a").holds(t, 1)
			lock(t, &other, "a").fails(t, ErrQueueFull)
			waiters[0].cancel()
			waiters[0].fails(t, context.Canceled)
			again := lock(t, &other, "a")
			again.waits(t)
			other.Unlock("a", 1)
			again.holds(t, 2)
			other.Unlock("a", 2)
			table.Close()
			table.Unlock("a", 1)
			table.Unlock("b", 2)
			table.Unlock("c", 3)
		}},
		{"Close bounces who waits and lists what runs", func(t *testing.T, table *Table) {
			for i, key := range []string{"d", "c", "b", "a"} {
				lock(t, table, key).holds(t, int64(i+1))
			}
			waiter := lock(t, table, "c")
			table.Unlock("d", 1)
			want := []Held{{Key: "c", Token: 2}, {Key: "b", Token: 3}, {Key: "a", Token: 4}}
			if held := table.Close(); !slices.Equal(held, want) {
				t.Errorf("Close: %v, want %v", held, want)
			}
			waiter.fails(t, ErrClosed)
			lock(t, table, "new").fails(t, ErrClosed)
			if !table.Unlock("b", 3) {
				t.Error("Unlock of a listed execution did not say so")
			}
			if held, want := table.Close(), (slices.Delete(want, 1, 2)); !slices.Equal(held, want) {
				t.Errorf("second Close: %v, want %v", held, want)
			}
			table.Unlock("c", 2)
			table.Unlock("a", 4)
			if held := table.Close(); len(held) != 0 {
				t.Errorf("third Close: %v", held)
			}
		}},
		{"an execution outlives Close and Open", func(t *testing.T, table *Table) {
			lock(t, table, "k").holds(t, 1)
			table.Close()
			table.Open(1, 0, nil)
			second := lock(t, table, "k")
			second.waits(t)
			if !table.Unlock("k", 1) {
				t.Error("Unlock of a listed execution did not say so")
			}
			second.holds(t, 2)
			if table.Unlock("k", 2) {
				t.Error("Unlock of an execution that nobody listed said so")
			}
		}},
		{"a blocked key is granted after Unblock", func(t *testing.T, table *Table) {
			table.Close()
			table.Open(10, 20, []string{"k", "l"})
			first, second := lock(t, table, "k"), lock(t, table, "k")
			first.waits(t)
			lock(t, table, "m").holds(t, 10)
			table.Unblock("k")
			first.holds(t, 11)
			second.waits(t)
			table.Unblock("k")
			second.waits(t)
			table.Unlock("k", 11)
			second.holds(t, 12)
			table.Unlock("k", 12)
			table.Unlock("m", 10)
			if n := table.Len(); n != 1 {
				t.Errorf("%d keys are left, want the blocked one", n)
			}
			table.Unblock("l")
			table.Unblock("never seen")
		}},
		{"a key held here and elsewhere waits for both: here first", func(t *testing.T, table *Table) {
			lock(t, table, "k").holds(t, 1)
			table.Close()
			table.Open(10, 0, []string{"k"})
			next := lock(t, table, "k")
			table.Unlock("k", 1)
			next.waits(t)
			table.Unblock("k")
			next.holds(t, 10)
			table.Unlock("k", 10)
		}},
		{"a key held here and elsewhere waits for both: elsewhere first", func(t *testing.T, table *Table) {
			lock(t, table, "k").holds(t, 1)
			table.Close()
			table.Open(10, 0, []string{"k"})
			next := lock(t, table, "k")
			table.Unblock("k")
			next.waits(t)
			table.Unlock("k", 1)
			next.holds(t, 10)
			table.Unlock("k", 10)
		}},
		{"Close forgets blocked keys and does not list them", func(t *testing.T, table *Table) {
			table.Open(1, 0, []string{"k"})
			waiter := lock(t, table, "k")
			if held := table.Close(); len(held) != 0 {
				t.Errorf("Close: %v", held)
			}
			waiter.fails(t, ErrClosed)
			isEmpty(t, table)
			table.Open(1, 0, nil)
			lock(t, table, "k").holds(t, 1)
			table.Unlock("k", 1)
		}},
		{"opening an open table adds blocked keys and raises tokens", func(t *testing.T, table *Table) {
			table.Close()
			table.Open(5, 7, []string{"a"})
			table.Open(3, 6, []string{"b"})
			a, b := lock(t, table, "a"), lock(t, table, "b")
			lock(t, table, "c").holds(t, 5)
			lock(t, table, "d").holds(t, 6)
			e := lock(t, table, "e")
			e.waits(t)
			table.Open(20, 30, nil)
			e.holds(t, 20)
			a.waits(t)
			b.waits(t)
			table.Close()
			table.Unlock("c", 5)
			table.Unlock("d", 6)
			table.Unlock("e", 20)
		}},
		{"who finds no token left waits for Advance", func(t *testing.T, table *Table) {
			table.Close()
			table.Open(100, 102, nil)
			lock(t, table, "a").holds(t, 100)
			waiter := lock(t, table, "a")
			lock(t, table, "b").holds(t, 101)
			table.Unlock("a", 100)
			newcomer := lock(t, table, "c")
			waiter.waits(t)
			newcomer.waits(t)
			for _, key := range []string{"a", "c", "d"} {
				if _, err := table.TryLock(key); err != ErrExhausted {
					t.Errorf("TryLock(%q): %v", key, err)
				}
			}
			impatient := lock(t, table, "e")
			if n := table.Len(); n != 4 {
				t.Errorf("Len is %d", n)
			}
			impatient.cancel()
			impatient.fails(t, context.Canceled)
			if n := table.Len(); n != 3 {
				t.Errorf("Len is %d after the only waiter of a key has gone", n)
			}
			table.Advance(200, 202)
			synctest.Wait()
			if waiter.token+newcomer.token != 200+201 {
				t.Fatalf("granted %d and %d", waiter.token, newcomer.token)
			}
			table.Advance(0, 0)
			lock(t, table, "d").holds(t, 202)
			table.Unlock("a", waiter.token)
			table.Unlock("b", 101)
			table.Unlock("c", newcomer.token)
			table.Unlock("d", 202)
		}},
		{"a closed table does not advance", func(t *testing.T, table *Table) {
			table.Close()
			table.Advance(100, 200)
			table.Open(1, 0, nil)
			lock(t, table, "k").holds(t, 1)
			table.Unlock("k", 1)
		}},
		{"tokens rise whatever Open asks for", func(t *testing.T, table *Table) {
			table.Open(1000, 0, nil)
			lock(t, table, "k").holds(t, 1000)
			table.Unlock("k", 1000)
			for i, first := range []int64{1, 0, -7, math.MinInt64, 1000, 1001} {
				table.Close()
				table.Open(first, 0, nil)
				lock(t, table, "k").holds(t, int64(1001+i))
				table.Unlock("k", int64(1001+i))
			}
		}},
		{"a burst leaves nothing behind", func(t *testing.T, table *Table) {
			for i := range 1000 {
				lock(t, table, fmt.Sprint(i))
			}
			for _, held := range table.Close() {
				table.Unlock(held.Key, held.Token)
			}
			if table.keys.more != nil {
				t.Error("the map is kept")
			}
			if n := table.keys.free.len; n > maxSpares {
				t.Errorf("%d spare entries are kept", n)
			}
		}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := Table{Queue: new(Queue)}
				test.run(t, &table)
				isEmpty(t, &table)
			})
		})
	}
}

func TestUnlockPanics(t *testing.T) {
	for _, test := range []struct {
		name   string
		unlock func(table *Table)
	}{
		{"of a key that nobody holds", func(table *Table) { table.Unlock("free", 1) }},
		{"with another token", func(table *Table) { table.Unlock("held", 2) }},
		{"with the token of a failed Lock", func(table *Table) { table.Unlock("held", 0) }},
		{"a second time", func(table *Table) { table.Unlock("held", 1); table.Unlock("held", 1) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			var table Table
			if _, err := table.Lock(t.Context(), "held"); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "not held with token") {
					t.Errorf("panicked with %q", text)
				}
				if _, err := table.TryLock("other"); err != nil {
					t.Errorf("the table is unusable after the panic: %v", err)
				}
			}()
			test.unlock(&table)
		})
	}
}

func TestQueueDefaults(t *testing.T) {
	for _, test := range []struct {
		queue         *Queue
		perKey, total int // the largest that are let in
	}{
		{&Queue{}, DefaultPerKey, DefaultTotal},
		{&Queue{PerKey: 3, Total: 5}, 3, 5},
		{&Queue{PerKey: math.MaxInt, Total: math.MaxInt}, math.MaxInt32, math.MaxInt32},
	} {
		q := test.queue
		for _, n := range []struct{ perKey, total int }{{0, 0}, {test.perKey, 1}, {1, test.total}, {test.perKey + 1, 1}, {1, test.total + 1}} {
			q.waiting.Store(int64(n.total - 1))
			want := n.perKey <= test.perKey && n.total <= test.total || test.perKey == math.MaxInt32
			if got := q.join(n.perKey-1, Wait{}) == nil; got != want {
				t.Errorf("%d, %d: waiter %d of a key and %d in all: let in %v, want %v", q.PerKey, q.Total, n.perKey, n.total, got, want)
			}
		}
	}
}

// Tokens that are reserved are nobody else's, and those of the range.
func TestReserve(t *testing.T) {
	var table Table
	table.Close()
	table.Open(100, 110, nil)
	held, err := table.TryLock("k")
	if err != nil || held != 100 {
		t.Fatal(held, err)
	}
	for _, tt := range []struct {
		want, reserved int
		first          int64
	}{
		{3, 3, 101}, {0, 0, 0}, {-1, 0, 0}, {2, 2, 104}, {64, 4, 106}, {1, 0, 0},
	} {
		if first, n := table.Reserve(tt.want); first != tt.first || n != tt.reserved {
			t.Errorf("of %d: %d from %d on, want %d from %d on", tt.want, n, first, tt.reserved, tt.first)
		}
	}
	if last, exhausted := table.Exhausted(); last != 109 || !exhausted {
		t.Errorf("the last token is %d, exhausted: %v", last, exhausted)
	}
	table.Unlock("k", held)
	table.Advance(200, 300)
	if next, err := table.TryLock("k"); err != nil || next != 200 {
		t.Errorf("then %d, %v", next, err)
	}
	table.Close()
	if first, n := table.Reserve(1); n != 0 {
		t.Errorf("a closed table reserves %d from %d on", n, first)
	}
}
