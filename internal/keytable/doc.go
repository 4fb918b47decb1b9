// Package keytable is the keyed mutex of a worker's partition, and under localmutex.Mutex:
// callers that name the same key run one at a time, callers that name different keys do not meet.
//
// It is fair: each key is granted in the order of arrival, or to clients in turn. It obeys
// contexts, allocates nothing in steady state, bounds its queues, and forgets a key that is neither
// held nor waited for.
//
// A worker keeps a [Table] for each partition that it may own. Its grants carry fencing tokens that
// strictly rise. [Table.Close] refuses newcomers, sends the waiters away and lists the keys whose
// executions still run, in one critical section, so no request can slip in between. [Table.Open]
// admits callers again, except for the keys that executions elsewhere still hold.
//
// A caller that waits with an [Item] waits in the same queue, but lets the execution that holds the
// key take the item along with [Table.Take] and do its work. One execution thus serves many callers,
// in the order of arrival that also holds for the others.
//
// # How a wait ends
//
// A grant is passed on directly: Unlock gives the key to the first waiter, under the table's lock,
// and then wakes it. Until the waiter has woken and taken the key, the grant can still be lost in
// two ways. The waiter may find its context done: a done context always loses, so it passes the
// grant on to the next. Or Close finds that the grant was not taken: it takes it back and the
// waiter gets [ErrClosed]. The list that Close returns therefore names exactly the executions that
// run and will be unlocked.
//
// A caller whose item was taken along has left the queue, so neither a grant nor
// Close reaches it. It waits for [Item.Finish] or the end of its context.
//
// The table's own lock is held for nanoseconds and never while waiting;
// waiters wait on channels. So tables work inside testing/synctest bubbles.
package keytable
