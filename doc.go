// Package keyway is for programs that want functions and requests to run one at a
// time per key, across all processes of a cluster, without a lock server: one node owns each key.
//
//	node, err := keyway.Start(ctx, keyway.Config{})
//	if err != nil {
//		return err
//	}
//	defer node.Close() // waits for what runs, for 30 s at most, and logs what does not end
//	err = node.Do(ctx, "order-42", func(x keyway.Execution) error {
//		return ship(x.Context(), x.Key(), x.Token()) // nobody else works on order-42
//	})
//
// The zero [Config] is a node of this machine: it finds a router (bin/router) or
// other nodes at 127.0.0.1:7946, where one of them keeps in its memory who owns
// what. More machines need Config.Redis, Join, Gossip and Listen. A node whose store
// was begun just now waits for one TTL (10 s) before it serves.
//
// # Which call is mine?
//
// All of them work from any process, for keys of whichever node, on a [Node] and on a
// [Client], a member that owns no keys:
//
//	Do, TryDo               a function, one at a time per key
//	DoAll                   a function that needs several keys
//	Lock, TryLock, LockAll  work that is no function, or that goes on elsewhere
//	RLock, TryRLock         many readers, or one writer
//	NewMutex                the lock of a key in the shape of a Redis library's mutex
//	RoundTrip               an HTTP request, which is sent to the node that owns its key
//
// These work on the node that owns the key, where its requests arrive; [Node.Owner] names it:
//
//	Node.Serve              requests, one at a time per key
//	Node.Local              the worker inside: its Do and TryDo refuse keys of other nodes
//	worker.Share            of Local: equal reads at the same time, one result for all
//	worker.NewBatcher       of Local: calls that wait for a key, one run for all
//
// A call within an execution for a key that it holds runs at once, as a part of it. The
// token rises with each execution of a key, on whichever node. A resource that refuses
// lower tokens is safe even from a node that was stopped for an hour. [locking.Of] makes
// a node or a client a [locking.Locker], in the place of one of Redis locks.
//
// # Errors
//
// ErrConfig is of this package, PanicError of package worker, all others of package gateway.
//
// A call that has not run, and may be made again:
//
//	ErrBusy           too many calls wait, for the key or in all
//	ErrLocked         of TryDo, TryLock and locking.Wait: the key is held, or waited for
//	ErrWaited         it waited for as long as Config.Limits.MaxWait allows (30 s)
//	*DeadlockError    it would have waited for a key whose holder waits for one that the
//	                  caller holds
//	ErrUnavailable    nobody takes calls for the key now
//	*UnownedError     no live node owns the key yet, with the time left; an ErrUnavailable
//	*NotOwnerError    of Local and what is made of it: another node owns the key, which it names
//	context errors    the cause with which ctx has ended, while the call waited
//
// One that has not run, and must be changed:
//
//	ErrNoKey, ErrBadKey   the key is empty, or too long
//	ErrNested             a request over HTTP for a key that its own chain of calls holds
//	ErrConfig             of Start: a field of Config, which it names
//
// One that may have run, or may still run, wraps ErrMayHaveRun:
//
//	*PanicError       the function of a batch, or of Share, has panicked
//	ErrOwnershipLost  the node could not be sure to own the key any more; it is also the
//	                  cause with which the context of each execution ends then
//	ErrTimeout        likewise, of a request that has held its key for as long as it may
//	context errors    of a call that had begun
//	others            of a Client, whose connection was lost
//
// What the function itself returns, Do returns as it is.
package keyway
