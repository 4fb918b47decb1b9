package keytable

import (
	"context"
	"fmt"
	"testing"
	"unsafe"
)

func TestAllocs(t *testing.T) {
	var (
		table   Table
		ctx     = t.Context() // one that can end
		busy    = []string{"a", "b", "c", "d"}
		lockAll = func(n int) (tokens [4]int64) {
			for i, key := range busy[:n] {
				tokens[i], _ = table.Lock(ctx, key)
			}
			return tokens
		}
		unlockAll = func(n int, tokens [4]int64) {
			for i, key := range busy[:n] {
				table.Unlock(key, tokens[i])
			}
		}
	)
	for name, run := range map[string]func(){
		"one key":                  func() { unlockAll(1, lockAll(1)) },
		"four keys at once":        func() { unlockAll(4, lockAll(4)) },
		"context.Background":       func() { token, _ := table.Lock(context.Background(), "k"); table.Unlock("k", token) },
		"TryLock":                  func() { token, _ := table.TryLock("k"); table.TryLock("k"); table.Unlock("k", token) },
		"hand-over to a waiter":    func() { handOver(t, &table) },
		"Close and Open when idle": func() { table.Close(); table.Open(1, 0, nil) },
		"waiter gives up":          func() { giveUp(&table) },
	} {
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// handOver is one caller that holds a key and one that gets it from the first.
func handOver(t *testing.T, table *Table) {
	token, _, _ := table.enter("k", Wait{})
	_, w, _ := table.enter("k", Wait{})
	table.Unlock("k", token)
	<-w.woken
	token, err := table.endWait(w, nil)
	if err != nil {
		t.Fatal(err)
	}
	table.Unlock("k", token)
}

// giveUp is one caller that holds a key and one that waits until its context
// ends.
func giveUp(table *Table) {
	token, _, _ := table.enter("k", Wait{})
	_, w, _ := table.enter("k", Wait{})
	_, _ = table.endWait(w, context.Canceled)
	table.Unlock("k", token)
}

// TestIdleSize holds tables to being small when idle: a worker has thousands.
func TestIdleSize(t *testing.T) {
	if size := unsafe.Sizeof(Table{}); size > 200 {
		t.Errorf("a table takes %d bytes", size)
	}
	table := Table{Queue: new(Queue)}
	token, _, _ := table.enter("k", Wait{})
	var waiters []*waiter
	for range 100 {
		_, w, _ := table.enter("k", Wait{})
		waiters = append(waiters, w)
	}
	table.Unlock("k", token)
	for _, w := range waiters {
		<-w.woken
		token, _ := table.endWait(w, nil)
		table.Unlock("k", token)
	}
	for i := range 100 {
		_, _, _ = table.enter(fmt.Sprint(i), Wait{})
	}
	for _, held := range table.Close() {
		table.Unlock(held.Key, held.Token)
	}
	if n, m := table.spares.len, table.keys.free.len; n > maxSpares || m > maxSpares {
		t.Errorf("%d waiters and %d entries are kept", n, m)
	}
	for _, e := range append(table.keys.free.list[:table.keys.free.len], &table.keys.slot) {
		if e.key != "" || e.first != nil || e.last != nil || e.holder != nil {
			t.Errorf("a spare entry keeps %+v alive", e)
		}
	}
}
