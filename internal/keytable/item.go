package keytable

import "fmt"

// Item is what a caller of [Table.LockWait] may wait with ([Wait]): a piece of work that the
// execution that holds the key may take along and do in its own turn, see [Table.Take].
//
// An Item is for one LockWait at a time. It may be used for another one when that has returned, and
// after Unlock if it got the key; but never again if it returned the error of its context, or
// ErrWaited. It must not be copied after its first use.
type Item struct {
	// Value is the caller's, for the execution that takes the item along. It must not be changed
	// while LockWait waits.
	Value any

	w waiter
}

// Taken reports whether an execution has taken the item along, once its LockWait has returned.
func (i *Item) Taken() bool {
	state := i.w.state.Load()
	return state == joined || state == finished
}

// Finish says that the execution that has taken the item along is done with it,
// and lets its LockWait return. The execution must not use the item any more.
// Finish panics if the item has not been taken, or is finished already.
func (i *Item) Finish() {
	if !i.w.state.CompareAndSwap(joined, finished) {
		panic("localmutex: Finish of an Item that no execution has taken along, or that is finished")
	}
	i.w.woken <- struct{}{}
}

// wait makes the item's waiter ready for the queue.
func (i *Item) wait() *waiter {
	if i.w.woken == nil {
		i.w.woken = make(chan struct{}, 1)
		i.w.item = i
	}
	return &i.w
}

// Take takes along items that wait for key behind the execution that holds it with token. It offers
// accept the items at the head of the queue in the order of their turns, up to the first caller
// without one. The results of accept say whether to take an item along, and whether to go on to the
// next one. A client whose item is taken has had its turn; an item that is not taken keeps its
// place. The execution must call [Item.Finish] for each item that it took, before or after Unlock.
//
// A closed table has no waiters, and an execution that Close has listed takes nothing along: items
// that wait after the table was opened again belong to later executions.
//
// accept is called with the table locked: it must return at once and not use
// the table. Take panics if no execution holds key with that token.
func (t *Table) Take(key string, token int64, accept func(*Item) (take, more bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.heldLocked("Take", key, token)
	if e.listed || e.sharers > 0 {
		return
	}
	var left *waiter
	defer func() {
		for w := left; w != nil; w = left {
			left = w.next
			e.pushFirst(w)
		}
	}()
	for more := true; more && e.first != nil && e.first.item != nil; {
		var take bool
		take, more = accept(e.first.item)
		w := e.pop()
		if take {
			t.Queue.leaveShare(w.client)
			w.state.Store(joined)
		} else {
			w.next, left = left, w
		}
	}
}

// heldLocked returns the entry of the key that is held with token. It panics if there is none.
func (t *Table) heldLocked(caller, key string, token int64) *entry {
	e := t.keys.find(key)
	if e == nil || !e.claimed() || e.token != token {
		panic(fmt.Sprintf("localmutex: %s of key %.64q, which is not held with token %d", caller, key, token))
	}
	return e
}
