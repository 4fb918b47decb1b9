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
