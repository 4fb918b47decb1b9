package keytable

import (
	"cmp"
	"sync/atomic"
	"time"
)

// Defaults of the zero fields of a [Queue].
const (
	DefaultPerKey = 1024
	DefaultTotal  = 65536
)

// Queue bounds how many callers may wait, and how long, and counts them. The tables that share one
// Queue share its Total. Set its fields before the first use. The zero Queue has the defaults.
type Queue struct {
	PerKey int // waiters for one key; 0 means DefaultPerKey
	Total  int // waiters for all keys together; 0 means DefaultTotal

	// MaxWait is how long a caller may wait for a key; 0 means for as long as
	// its context allows. An item that was taken along waits no more.
	MaxWait time.Duration

	waiting atomic.Int64
	shares  [clientShares]atomic.Int64 // of it, by Wait.Client
}

// clientShares is how many groups of clients [Queue] counts. Clients of one group share the bound
// of one client.
const clientShares = 256

// share returns the counter of the client's waiters; nil for 0, which is no client.
func (q *Queue) share(client uint64) *atomic.Int64 {
	if client == 0 {
		return nil
	}
	return &q.shares[client%clientShares]
}

// Waiting returns how many callers wait now.
func (q *Queue) Waiting() int { return int(q.waiting.Load()) }

// Wait is how one caller waits, where that differs from what the table's [Queue] says.
type Wait struct {
	PerKey  int           // the caller waits only if fewer do for its key; 0 means Queue.PerKey
	MaxWait time.Duration // 0 means Queue.MaxWait

	// Client identifies the client that the caller waits for. Clients take turns at a key, and each
	// gets its own callers' turns in order. Callers of one client may fill half of Queue.Total. 0
	// is the program itself; each of its callers counts as a client of its own.
	Client uint64

	// Came is when the caller came, for [Table.Slow] and by its clock.
	Came time.Duration

	// Shared says that the caller may hold its key together with others that share it: with one
	// token, and until each of them has called Unlock. It waits in the queue like any other caller
	// and overtakes none. A shared execution counts as remote ([Table.SetRemote]), takes nothing
	// along, and is not taken back by Close before it is noticed.
	Shared bool

	// Item is a piece of work that another execution of the key may do; nil for none. If the
	// execution that holds the key takes the item along and finishes it, LockWait returns the token
	// 0, and the caller does not hold the key. If the caller's context is done, [Item.Taken] says
	// whether an execution took the item along, which may still work on it until [Item.Finish].
	Item *Item
}

// join counts one more waiter for a key that has perKey of them. It returns
// ErrQueueFull if that is too many, for the key, in all, or for the waiter's client.
func (q *Queue) join(perKey int, how Wait) error {
	if perKey >= cmp.Or(how.PerKey, q.PerKey, DefaultPerKey) {
		return ErrQueueFull
	}
	total, own := int64(cmp.Or(q.Total, DefaultTotal)), int64(0)
	if share := q.share(how.Client); share != nil {
		own = share.Add(1)
	}
	if q.waiting.Add(1) > total || own > total-total/2 {
		q.leaveShare(how.Client)
		return ErrQueueFull
	}
	return nil
}

// leaveShare counts a waiter of that client less.
func (q *Queue) leaveShare(client uint64) {
	q.waiting.Add(-1)
	if share := q.share(client); share != nil {
		share.Add(-1)
	}
}

// The states of a waiter. It starts as waiting. Under the table's lock it moves to granted,
// refused, displaced or joined, and from granted to refused. Without the lock only the waiting
// caller moves it from granted to taken, and only the execution that took its item along moves it
// from joined to finished.
const (
	waiting   int32 = iota // in the queue of its key
	granted                // holds the key, but has not noticed yet
	taken                  // holds the key; Lock returns its token
	refused                // the table was closed
	displaced              // by a waiter of a client that has fewer
	joined                 // the key's holder has taken its item along
	finished               // the holder is done with the item
)

// waiter is one caller that waits for a key, in one of the states above. The table's mutex guards
// it in the queue. Afterwards next belongs to the goroutine that wakes it, and token to the woken
// caller. The table keeps a few for reuse, except those of items; none is reused while a wake-up
// may still be on its way to it.
type waiter struct {
	entry      *entry
	line       clientLine    // of its client, if it is the first
	next, prev *waiter       // in that line; once out of it, next chains waiters to be woken
	token      int64         // set when granted
	item       *Item         // that the waiter belongs to; nil for none
	state      atomic.Int32  // one of the states above
	came       time.Duration // Wait.Came
	shared     bool          // Wait.Shared
	client     uint64        // Wait.Client
	timer      *time.Timer   // of the waiting caller alone; nil if it never had a limit
	woken      chan struct{} // gets one value when the waiter has left the queue by grant or refusal, or its item is finished
}

// limit returns a channel that receives when w has waited for that long; nil for a
// wait without limit. Each waiter has a timer of its own, because a timer of one
// testing/synctest bubble cannot serve another.
func (w *waiter) limit(d time.Duration) <-chan time.Time {
	switch {
	case d == 0:
		return nil
	case w.timer == nil:
		w.timer = time.NewTimer(d)
	default:
		w.timer.Reset(d)
	}
	return w.timer.C
}

// wake wakes a chain of waiters. The table's lock need not be held: a waiter
// that has been taken out of the queue is not reused before it is woken.
func wake(w *waiter) {
	for w != nil {
		next := w.next
		w.woken <- struct{}{}
		w = next
	}
}

// entry is a key that is held, blocked or waited for. The table's mutex guards it. It is removed as
// soon as it is none of these.
//
// A residue key is blocked when its table opens, as if somebody held it. A set of residue keys would
// cost every request a look, and leave a moment between that and the mutex.
type entry struct {
	key string
	hold
	heir        *hold   // a remote execution that holds the key too, and alone when hold has ended, see Install; nil for none
	holder      *waiter // whose grant hold is, if the execution had to wait and holds the key alone
	first, last *waiter // of the first callers of all lines, in the order of their turns
	lines       *lines  // nil until one waits for a client
	waiters     int32
	blocked     bool // held by an execution elsewhere
	slowWait    bool // Slow has returned that it is waited for
}

// hold is an execution that holds a key, or several that share it. The zero hold is none.
type hold struct {
	token    int64
	seen     time.Duration // when Slow found it first; 0 if it has not yet
	sharers  int32         // executions that share the key; 0 if one holds it alone
	listed   bool          // by Close
	remote   bool          // it is none of this process's
	slowHeld bool          // Slow has returned it
}

// idle reports whether the entry has no reason to exist.
func (e *entry) idle() bool { return e.token == 0 && e.first == nil && !e.blocked }

// claimed reports whether an execution runs that Unlock will end.
func (e *entry) claimed() bool {
	return e.token != 0 && (e.holder == nil || e.holder.state.Load() == taken)
}
