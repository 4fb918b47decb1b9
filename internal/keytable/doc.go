// Package keytable is the keyed mutex of a worker's partition, and under localmutex.Mutex:
// callers that name the same key run one at a time, callers that name different keys do not meet.
//
// It is fair (first come, first served per key, or clients in turn), obeys contexts, allocates
// nothing in steady state, bounds its queues, and forgets a key as soon as
// nobody holds it or waits for it.
//
// A worker keeps a [Table] for each partition that it may
// own. Its grants carry fencing tokens that strictly rise, and it can be
// closed: [Table.Close] refuses newcomers, sends the waiters away and lists
// the keys whose executions still run, all in one critical section, so that no
// request slips in between the list and the refusal. [Table.Open] admits
// again, except for the keys that executions elsewhere still hold.
//
// A caller of [Table.LockItem] waits in the same queue, and leaves it to the
// execution that holds the key to take its [Item] along, with [Table.Take], and to
// do its work. So one execution serves many callers, and the order of arrival holds
// between them and the callers of Lock.
//
// # How a wait ends
//
// A grant is passed from hand to hand: Unlock gives the key to the first
// waiter, under the table's lock, and then wakes it. Until the waiter has
// woken and taken the key, the grant can still be lost, in two ways. The
// waiter finds its context done: a done context always loses, so it passes the
// grant on to the next. Or Close finds the grant not yet taken: it takes it
// back and the waiter gets [ErrClosed], so that the list that Close returns
// names exactly the executions that run and will be unlocked.
//
// A caller whose item was taken along has left the queue, so neither a grant nor
// Close reaches it. It waits for [Item.Finish] or the end of its context.
//
// The table's own lock is held for nanoseconds and never while waiting;
// waiters wait on channels. So tables work inside testing/synctest bubbles.
package keytable
