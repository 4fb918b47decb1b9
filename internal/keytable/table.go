package keytable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Errors of Lock and TryLock. They come back as they are, so that refusing
// costs nothing; the caller knows the key.
var (
	// ErrClosed means that the table is closed, or was closed while the caller waited.
	ErrClosed = errors.New("localmutex: closed")

	// ErrLocked means that TryLock found the key held or blocked.
	ErrLocked = errors.New("localmutex: locked")

	// ErrQueueFull means that as many callers wait as the table's Queue allows.
	ErrQueueFull = errors.New("localmutex: too many callers wait")

	// ErrWaited means that the caller waited for as long as the table's Queue allows.
	ErrWaited = errors.New("localmutex: waited too long")

	// ErrExhausted means that TryLock found the key free, but the table has no
	// token left to grant it with. Lock waits instead.
	ErrExhausted = errors.New("localmutex: no token left")
)

// Held is an execution that holds a key.
type Held struct {
	Key    string
	Token  int64
	Remote bool // SetRemote was called for it
	Shared bool // with others, see Wait.Shared; Close lists all of them once
}

// Table is a keyed mutex that can be closed, and that mints a fencing token with each grant. Any
// number of goroutines may use it. It must not be copied after its first use. It is open or closed,
// as Open and Close say; mu guards that, the keys and their waiters.
//
// The zero Table is open, has no blocked keys and mints the tokens 1, 2, 3, …. An idle Table takes
// 200 bytes, and at most about a kilobyte more once callers have had to wait.
type Table struct {
	// Queue bounds the waiters. It may be shared with other tables, and must not be changed after
	// the first use. Nil means one of the table's own, with the defaults.
	Queue *Queue

	mu      sync.Mutex // protects all that follows, and what it leads to
	closed  bool
	minted  int64 // highest token so far, or one below the lowest allowed
	skipped int64 // tokens up to minted that no grant has minted
	limit   int64 // tokens stay below it; 0: no limit
	keys    keys
	woken   *waiter // chained by next: have left their queues, and are woken when mu is free
	spares  spares[waiter]
}

// Lock waits until it holds key and returns the fencing token of this execution, which is higher
// than any that the table has returned before. Callers of one key get it in the order of arrival.
// The caller, or any other goroutine, must call [Table.Unlock] with the token.
//
// If ctx is done, Lock returns ctx.Err() and holds nothing, even if the key is free or has just
// been granted. It returns [ErrClosed] if the table is closed before the grant is noticed, and
// [ErrWaited] after the Queue's MaxWait. [ErrQueueFull] says that too many callers wait, either at
// once or when the place goes to another client's caller ([Wait]). While the table has no token
// left, callers wait for [Table.Advance].
func (t *Table) Lock(ctx context.Context, key string) (token int64, err error) {
	return t.LockWait(ctx, key, Wait{})
}

// LockWait is Lock for a caller that waits in its own way.
func (t *Table) LockWait(ctx context.Context, key string, how Wait) (token int64, err error) {
	if how.Item != nil {
		how.Item.w.state.Store(waiting)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	token, w, err := t.enter(key, how)
	if w == nil {
		return token, err
	}
	done, limit := ctx.Done(), w.limit(cmp.Or(how.MaxWait, t.Queue.MaxWait))
	for {
		select {
		case <-w.woken:
		case <-done:
		case <-limit:
			if done := cmp.Or(ctx.Err(), ErrWaited); t.giveUp(w) {
				return 0, done
			}
			limit = nil // it is about to be woken, or its item was taken along: it waits no more for the key
			continue
		}
		if w.timer != nil {
			w.timer.Stop() // before w may be used by another caller
		}
		return t.endWait(w, ctx.Err())
	}
}

// TryLock is Lock without waiting. It returns [ErrLocked] if the key is held
// or blocked, [ErrClosed] or [ErrExhausted].
func (t *Table) TryLock(key string) (token int64, err error) { return t.Try(key, false) }

// Try is TryLock for a caller that may share the key, see [Wait]. It then returns [ErrLocked] too if
// others wait.
func (t *Table) Try(key string, shared bool) (token int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, ErrClosed
	}
	e := t.keys.find(key)
	if token = t.takeLocked(e, key, shared); token != 0 {
		return token, nil
	} else if e != nil && (e.token != 0 || e.blocked) {
		return 0, ErrLocked
	}
	return 0, ErrExhausted
}

// Unlock ends the execution that holds key with token, and gives the key to the first that waits
// for it. It works whether or not the table has been closed or opened meanwhile. It reports whether
// a Close has listed this execution.
//
// Unlock panics if no execution holds key with that token, as [sync.Mutex]
// does: that is an error in the program.
func (t *Table) Unlock(key string, token int64) (listed bool) {
	t.mu.Lock()
	listed, ok := t.unlockLocked(key, token)
	t.unlock()
	if !ok {
		panic(fmt.Sprintf("localmutex: Unlock of key %.64q, which is not held with token %d", key, token))
	}
	return listed
}

// UnlockAny is Unlock for any token. It reports whether an execution held key, and never panics.
func (t *Table) UnlockAny(key string) (held bool) {
	t.mu.Lock()
	defer t.unlock()
	if e := t.keys.find(key); e != nil && e.claimed() {
		_, held = t.unlockLocked(key, e.token)
	}
	return held
}

// Close closes the table: from now on Lock and TryLock return [ErrClosed], also to callers that
// wait. Blocked keys are forgotten. Close returns the executions that hold keys, in the order of
// their grants; they continue until Unlock. All this happens at one moment.
//
// Closing a closed table returns what still runs.
func (t *Table) Close() []Held {
	t.mu.Lock()
	defer t.unlock()
	return t.closeLocked()
}

// Open opens the table with the tokens from first up to, but not including, limit; a limit of 0
// means none. Tokens continue to rise: if the table has minted tokens from first on, it continues
// after the last one. The blocked keys, which executions elsewhere hold, are not granted until
// [Table.Unblock].
//
// An execution that has run since before the Close holds its key in the opened table too. A blocked
// key that is also held can be granted when it has been both unblocked and unlocked.
//
// Opening an open table raises its range of tokens as [Table.Advance] does,
// and adds blocked keys; keys blocked before stay blocked.
func (t *Table) Open(first, limit int64, blocked []string) {
	t.mu.Lock()
	defer t.unlock()
	if t.closed {
		t.closed, t.limit = false, limit
	}
	for _, key := range blocked {
		t.keys.need(key).blocked = true
	}
	t.raiseLocked(first, limit)
}

// Advance raises the range of tokens of an open table, and grants keys to callers that waited for
// tokens: each key in order of arrival, the keys among each other in any order. It never lowers an
// end of the range. A closed table stays as it is.
func (t *Table) Advance(first, limit int64) {
	t.mu.Lock()
	defer t.unlock()
	if !t.closed {
		t.raiseLocked(first, limit)
	}
}

// Unblock says that no execution elsewhere holds key any longer. Unless one here holds it, the
// first that waits for it gets it. Unblock of a key that is not blocked does nothing.
func (t *Table) Unblock(key string) {
	t.mu.Lock()
	defer t.unlock()
	if e := t.keys.find(key); e != nil && e.blocked {
		e.blocked = false
		t.admitLocked(e)
	}
}

// Reserve mints up to n tokens for a caller that holds a key here and passes it on to others
// without an Unlock in between. The tokens are above all that the table has minted, and below all
// that it will mint. Reserve returns the first token and their number; the others follow the first.
// There are fewer than n where the range of tokens ends, and none if the table is closed.
func (t *Table) Reserve(n int) (first int64, reserved int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limit != 0 {
		n = int(min(int64(n), t.limit-1-t.minted))
	}
	if t.closed || n <= 0 {
		return 0, 0
	}
	first = t.minted + 1
	t.minted += int64(n)
	t.skipped += int64(n)
	return first, n
}

// unlock unlocks mu, and wakes the waiters that have left their queues meanwhile.
func (t *Table) unlock() {
	w := t.woken
	t.woken = nil
	t.mu.Unlock()
	wake(w)
}

// wakeLocked has w, which has left its queue, woken when mu is free.
func (t *Table) wakeLocked(w *waiter) { w.next, t.woken = t.woken, w }

// enter grants key at once, or queues a waiter for it, or fails.
func (t *Table) enter(key string, how Wait) (token int64, w *waiter, err error) {
	t.mu.Lock()
	if t.closed {
		err = ErrClosed
	} else {
		e := t.keys.find(key)
		if token = t.takeLocked(e, key, how.Shared); token == 0 {
			w, err = t.enqueueLocked(e, key, how)
		}
	}
	t.unlock()
	return token, w, err
}

// takeLocked grants key, whose entry is e if it has one, to a caller that need not wait; otherwise it returns 0.
func (t *Table) takeLocked(e *entry, key string, shared bool) (token int64) {
	switch {
	case e == nil && !t.exhaustedLocked():
		e = t.keys.add(key)
	case e == nil || e.first != nil || !t.admitsLocked(e, shared):
		return 0
	}
	return t.grantLocked(e, shared)
}

// enqueueLocked queues a waiter for key, whose entry is e if it has one. If as many
// wait as may, it takes the place of one whose client has more.
func (t *Table) enqueueLocked(e *entry, key string, how Wait) (*waiter, error) {
	if t.Queue == nil {
		t.Queue = new(Queue)
	}
	queued := 0
	if e != nil {
		queued = int(e.waiters)
	}
	err := t.Queue.join(queued, how)
	if err != nil && queued > 0 {
		if last := e.givesWay(how.Client); last != nil && t.Queue.join(0, how) == nil {
			e.remove(last)
			t.Queue.leaveShare(last.client)
			last.state.Store(displaced)
			t.wakeLocked(last)
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	if e == nil {
		e = t.keys.add(key)
	}
	var w *waiter
	if how.Item != nil {
		w = how.Item.wait()
	} else if w = t.spares.get(); w == nil {
		w = &waiter{woken: make(chan struct{}, 1)}
	}
	w.client, w.shared, w.came = how.Client, how.Shared, how.Came
	e.push(w)
	return w, nil
}

// endWait ends the wait of w, which has been woken or whose context is done with the error done.
func (t *Table) endWait(w *waiter, done error) (token int64, err error) {
	if done != nil {
		t.giveUp(w)
		return 0, done
	}
	token = w.token // w may be reused once the key is taken and unlocked
	switch {
	case w.state.CompareAndSwap(granted, taken):
		return token, nil
	case w.state.Load() == finished:
		return 0, nil
	case w.state.Load() == displaced:
		return 0, ErrQueueFull
	}
	return 0, ErrClosed
}

// giveUp ends the wait of w. It reports whether w has waited, or has been granted
// the key, until then.
func (t *Table) giveUp(w *waiter) bool {
	t.mu.Lock()
	defer t.unlock()
	return t.giveUpLocked(w)
}

// giveUpLocked takes w out of its queue, or passes on what it has been granted. It reports whether it did either.
func (t *Table) giveUpLocked(w *waiter) bool {
	e := w.entry
	switch w.state.Load() {
	case waiting:
		e.remove(w)
		t.Queue.leaveShare(w.client)
		t.recycleLocked(w)
		t.admitLocked(e)
		return true
	case granted:
		e.holder = nil
		t.endLocked(e)
		return true
	}
	return false
}

// unlockLocked ends the execution that holds key with token. It returns whether a Close has listed it, and ok false if there
// is no such execution.
func (t *Table) unlockLocked(key string, token int64) (listed, ok bool) {
	e := t.keys.find(key)
	switch {
	case e == nil:
		return false, false
	case e.claimed() && e.token == token:
		listed = e.listed
		if e.holder != nil {
			t.recycleLocked(e.holder)
			e.holder = nil
		}
		t.endLocked(e)
		return listed, true
	case e.heir != nil && e.heir.token == token:
		listed = e.heir.listed
		if e.heir.sharers--; e.heir.sharers <= 0 {
			e.heir = nil
		}
		return listed, true
	}
	return false, false
}

// endLocked ends an execution that holds the key of e. The key is then its heir's, or the first waiters'.
func (t *Table) endLocked(e *entry) {
	if e.sharers > 1 {
		e.sharers--
		return
	}
	if e.hold = (hold{}); e.heir != nil {
		e.hold, e.heir = *e.heir, nil
	}
	t.admitLocked(e)
}

// closeLocked is Close.
func (t *Table) closeLocked() (held []Held) {
	t.closed = true
	for e := range t.keys.all {
		for w := e.first; w != nil; w = e.first {
			e.remove(w)
			t.Queue.leaveShare(w.client)
			w.state.Store(refused)
			t.wakeLocked(w)
		}
		e.blocked = false
		if e.holder != nil && e.holder.state.CompareAndSwap(granted, refused) {
			e.holder, e.hold = nil, hold{}
		}
		if e.token == 0 {
			t.keys.drop(e)
			continue
		}
		for _, h := range []*hold{&e.hold, e.heir} {
			if h != nil {
				h.listed = true
				held = append(held, Held{e.key, h.token, h.remote, h.sharers > 0})
			}
		}
	}
	slices.SortFunc(held, func(a, b Held) int { return cmp.Compare(a.Token, b.Token) })
	return held
}

// raiseLocked raises the range of tokens and admits the callers that waited for tokens.
func (t *Table) raiseLocked(first, limit int64) {
	if first > t.minted {
		t.skipped += first - 1 - t.minted
		t.minted = first - 1
	}
	if t.limit != 0 && (limit == 0 || limit > t.limit) {
		t.limit = limit
	}
	for e := range t.keys.all {
		t.admitLocked(e)
	}
}

// admitLocked admits the first waiters for the key of e while they may hold it together with its
// holders, or forgets the key. It is called after every change that may admit the first one: a
// queue never begins with a waiter that could hold the key.
func (t *Table) admitLocked(e *entry) {
	for e.first != nil && t.admitsLocked(e, e.first.shared) {
		w := e.pop()
		t.Queue.leaveShare(w.client)
		w.token = t.grantLocked(e, w.shared)
		w.state.Store(granted)
		if !w.shared {
			e.holder = w
		}
		t.wakeLocked(w)
	}
	if e.idle() {
		t.keys.drop(e)
	}
}

// admitsLocked reports whether a caller may hold the key of e, shared or alone, together with its
// present holders. An execution that Close has listed admits no other.
func (t *Table) admitsLocked(e *entry, shared bool) bool {
	switch {
	case e.blocked:
		return false
	case e.token == 0:
		return !t.exhaustedLocked()
	}
	return shared && e.sharers > 0 && !e.listed
}

// grantLocked grants the key of e to one more execution, and returns its token.
func (t *Table) grantLocked(e *entry, shared bool) int64 {
	if e.token == 0 {
		t.minted++
		e.token, e.remote = t.minted, shared
	}
	if shared {
		e.sharers++
	}
	return e.token
}

// recycleLocked keeps w for reuse, unless it is an item's own. No wake-up may be on its way to it.
func (t *Table) recycleLocked(w *waiter) {
	w.entry = nil
	if w.item != nil {
		return
	}
	w.state.Store(waiting)
	t.spares.put(w)
}

func (t *Table) exhaustedLocked() bool { return t.limit != 0 && t.minted+1 >= t.limit }
