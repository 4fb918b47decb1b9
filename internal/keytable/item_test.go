package keytable

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// TestTakeKeepsOrder: what is taken along is the head of the queue, in order of
// arrival, and nothing that waits behind a caller of Lock.
func TestTakeKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := Table{Queue: new(Queue)}
		holder := lock(t, &table, "k")
		holder.holds(t, 1)
		var mu sync.Mutex // guards returned
		var returned []int
		items := make([]Item, 5)
		wait := func(i int) {
			items[i].Value = i
			go func() {
				token, err := table.LockWait(t.Context(), "k", Wait{Item: &items[i]})
				if err != nil || (token == 0) != items[i].Taken() {
					t.Errorf("item %d: %d, %v, taken %v", i, token, err, items[i].Taken())
				}
				mu.Lock()
				returned = append(returned, i)
				mu.Unlock()
				if token != 0 {
					table.Unlock("k", token)
				}
			}()
			synctest.Wait()
		}
		wait(0)
		wait(1)
		wait(2)
		plain := lock(t, &table, "k")
		wait(3)
		var taken []*Item
		table.Take("k", 1, func(i *Item) (take, more bool) {
			taken = append(taken, i)
			return true, len(taken) < 2
		})
		if table.Queued("k") != 3 || table.Queue.Waiting() != 3 {
			t.Errorf("%d callers wait for the key, %d in all, want 3", table.Queued("k"), table.Queue.Waiting())
		}
		table.Take("k", 1, func(i *Item) (take, more bool) {
			taken = append(taken, i)
			return true, true
		})
		if !slices.Equal(taken, []*Item{&items[0], &items[1], &items[2]}) {
			t.Errorf("took %d items, want the three that came before the Lock", len(taken))
		}
		synctest.Wait()
		if len(returned) != 0 {
			t.Errorf("LockWait of %v returned before Finish", returned)
		}
		for _, i := range taken {
			i.Finish()
		}
		synctest.Wait()
		slices.Sort(returned)
		if !slices.Equal(returned, []int{0, 1, 2}) {
			t.Errorf("LockWait of %v returned after Finish", returned)
		}
		table.Unlock("k", 1)
		synctest.Wait()
		plain.holds(t, 2)
		table.Unlock("k", 2)
		synctest.Wait()
		if !slices.Equal(returned[3:], []int{3}) {
			t.Errorf("%v returned, want item 3 last", returned)
		}
		isEmpty(t, &table)
	})
}

// TestItemOutlivesItsCaller: an item that was taken along is finished after its
// caller has left, and after the key was freed.
func TestItemOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := Table{Queue: new(Queue)}
		token, _ := table.TryLock("k")
		ctx, cancel := context.WithCancel(t.Context())
		var item Item
		left := make(chan error, 1)
		go func() {
			_, err := table.LockWait(ctx, "k", Wait{Item: &item})
			left <- err
		}()
		synctest.Wait()
		table.Take("k", token, func(*Item) (take, more bool) { return true, true })
		cancel()
		if err := <-left; err != context.Canceled || !item.Taken() {
			t.Errorf("the caller got %v, taken %v", err, item.Taken())
		}
		table.Unlock("k", token)
		item.Finish()
		isEmpty(t, &table)
	})
}

// TestListedTakesNothing: what waits since the table was opened again came
// under another ownership than an execution that has run since before the Close.
func TestListedTakesNothing(t *testing.T) {
	table := Table{Queue: new(Queue)}
	token, _ := table.TryLock("k")
	table.Close()
	table.Open(10, 0, nil)
	var item Item
	_, w, err := table.enter("k", Wait{Item: &item})
	if w == nil {
		t.Fatalf("the key is free: %v", err)
	}
	table.Take("k", token, func(*Item) (take, more bool) {
		t.Error("an execution that Close has listed was offered an item")
		return true, true
	})
	table.Unlock("k", token)
	if token, err := table.endWait(w, nil); token != 10 || err != nil {
		t.Errorf("the item's caller got %d, %v", token, err)
	}
}

// TestItemIsUsedAgain: an item keeps its waiter from one LockWait to the next,
// which allocates nothing, and the table does not give that to others.
func TestItemIsUsedAgain(t *testing.T) {
	var (
		table Table
		item  Item
	)
	take := func(*Item) (take, more bool) { return true, true }
	taken := func() {
		token, _, _ := table.enter("k", Wait{})
		_, w, _ := table.enter("k", Wait{Item: &item})
		table.Take("k", token, take)
		table.Unlock("k", token)
		item.Finish()
		<-w.woken
		if token, err := table.endWait(w, nil); token != 0 || err != nil || !item.Taken() {
			t.Fatalf("%d, %v, taken %v", token, err, item.Taken())
		}
		item.w.state.Store(waiting)
	}
	granted := func() {
		token, _, _ := table.enter("k", Wait{})
		_, w, _ := table.enter("k", Wait{Item: &item})
		table.Unlock("k", token)
		<-w.woken
		token, err := table.endWait(w, nil)
		if token == 0 || err != nil || item.Taken() {
			t.Fatalf("%d, %v, taken %v", token, err, item.Taken())
		}
		table.Unlock("k", token)
		item.w.state.Store(waiting)
	}
	if n := testing.AllocsPerRun(100, func() { taken(); granted() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	token, _, _ := table.enter("k", Wait{})
	for range 2 * maxSpares {
		_, w, _ := table.enter("k", Wait{})
		if w == &item.w {
			t.Fatal("a caller of Lock waits with the item's waiter")
		}
	}
	table.Unlock("k", token)
}

// TestGather: an execution that waits for items goes on as soon as there is nothing
// more to wait for.
func TestGather(t *testing.T) {
	for name, test := range map[string]struct {
		before int // items that wait already
		n      int
		come   func(t *testing.T, table *Table, token int64)
		goesOn bool
	}{
		"enough wait already":     {before: 2, n: 2, goesOn: true},
		"enough have come":        {before: 1, n: 2, come: item, goesOn: true},
		"one more is to come":     {before: 1, n: 3, come: item},
		"a Lock waits":            {n: 3, come: func(_ *testing.T, table *Table, _ int64) { _, _, _ = table.enter("k", Wait{}) }, goesOn: true},
		"one for another key":     {n: 1, come: func(_ *testing.T, table *Table, _ int64) { _, _, _ = table.enter("other", Wait{}) }},
		"the table is closed":     {n: 3, come: func(_ *testing.T, table *Table, _ int64) { table.Close() }, goesOn: true},
		"the execution has ended": {n: 3, come: func(_ *testing.T, table *Table, token int64) { table.Unlock("k", token) }, goesOn: true},
		"it gathers anew":         {n: 3, come: func(_ *testing.T, table *Table, token int64) { table.Gather("k", token, 5) }, goesOn: true},
	} {
		t.Run(name, func(t *testing.T) {
			table := Table{Queue: new(Queue)}
			token, _ := table.TryLock("k")
			for range test.before {
				item(t, &table, token)
			}
			full := table.Gather("k", token, test.n)
			if test.come != nil {
				test.come(t, &table, token)
			}
			select {
			case <-full:
				if !test.goesOn {
					t.Error("the execution goes on")
				}
			default:
				if test.goesOn {
					t.Error("the execution waits on")
				}
			}
		})
	}
}

func TestGatherBehindLock(t *testing.T) {
	table := Table{Queue: new(Queue)}
	token, _ := table.TryLock("k")
	_, _, _ = table.enter("k", Wait{})
	item(t, &table, token)
	select {
	case <-table.Gather("k", token, 3):
	default:
		t.Error("the execution waits for items behind a Lock")
	}
}

// item has one more item wait for the key k.
func item(t *testing.T, table *Table, _ int64) {
	if _, w, err := table.enter("k", Wait{Item: new(Item)}); w == nil {
		t.Fatal(err)
	}
}

// TestItemMisuse: what the table cannot do is a panic that says why.
func TestItemMisuse(t *testing.T) {
	var (
		table Table
		item  Item
	)
	token, _ := table.TryLock("k")
	for name, misuse := range map[string]func(){
		"Finish of an item that was not taken": func() { item.Finish() },
		"Take with another token":              func() { table.Take("k", token+1, nil) },
		"Gather with another token":            func() { table.Gather("k", token+1, 1) },
		"Take of a key that is free":           func() { table.Take("other", token, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			misuse()
		}()
	}
	table.Unlock("k", token)
}
