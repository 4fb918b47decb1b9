// Package keyway is for programs that want functions and requests to run one at a time per
// key, across all processes of a cluster, without a lock server: one node owns each key.
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
// The zero [Config] makes a node for one machine: it finds a router (bin/router) or other
// nodes at 127.0.0.1:7946, and one of these processes keeps in its memory who owns what.
// Several machines need Config.Redis, Join, Gossip and Listen. A node whose store has just
// started waits for one TTL (10 s) before it serves.
//
// # Which call is mine?
//
// These calls work for any key from any process, on a [Node] and on a [Client], which is a
// member that owns no keys. Package gateway/client describes them, as in
// go doc github.com/keyway-go/keyway/gateway/client.Client.Do:
//
//	Do, TryDo               runs a function, one at a time per key
//	DoAll                   runs a function that needs several keys
//	Lock, TryLock, LockAll  lock keys for work that is no function, or that goes on elsewhere
//	RLock, TryRLock         lock a key for many readers, or one writer
//	NewMutex                locks a key in the shape of a Redis library's mutex
//	RoundTrip               sends an HTTP request to the node that owns its key
//
// These calls work on the node that owns the key, where its requests arrive. [Node.Owner]
// names that node:
//
//	Node.Serve              serves requests, one at a time per key
//	Share                   gives one result to all equal reads at the same time
//	Batcher                 runs once for all calls that wait for a key
//	Node.Local              Do and TryDo that refuse keys of other nodes
//
// A nested call, with the Context of an execution that holds its key, runs at once, as a part of
// that execution. With another context it waits for itself. The token rises with each execution of
// a key, on any node. A resource that refuses lower tokens is safe even from a node that was
// stopped for an hour. [locking.Of] makes a node or a client a [locking.Locker], which can replace
// that of Redis locks.
//
// # Errors
//
// With these errors the call has not run, and may be made again:
//
//	ErrBusy           too many calls wait, for the key or in all
//	ErrLocked         from TryDo, TryLock and locking.Wait: the key is held, or waited for
//	ErrWaited         the call waited for as long as Config.Limits.MaxWait allows (30 s)
//	*DeadlockError    the key's holder waits for a key that the caller holds
//	ErrUnavailable    nobody takes calls for the key now
//	*UnownedError     no live node owns the key yet; has the time left; is an ErrUnavailable
//	*QuarantinedError nodes died while executions of the key ran; has the end
//	*NotOwnerError    from Share, Batcher and Local: another node owns the key; names that node
//	context errors    ctx ended while the call waited: its cause
//
// With these errors the call has not run, and must be changed:
//
//	ErrNoKey, ErrBadKey   the key is empty; or too long, not UTF-8, or has control characters
//	ErrNested             an HTTP request, or a call within one, asks for a key that its chain of calls holds
//	ErrConfig             from Start: names a field of Config
//
// An error that wraps ErrMayHaveRun says that the call may have run, or may still run:
//
//	*PanicError       the function of a batch panicked
//	ErrOwnershipLost  the node could not be sure any more that it owns the key; this is also
//	                  the cause with which the contexts of its executions end then
//	ErrTimeout        likewise, if a request has held its key for as long as it may
//	context errors    ctx ended after the call had begun
//	others            from a Client whose connection was lost
//
// Do returns an error of the function itself unchanged.
package keyway
