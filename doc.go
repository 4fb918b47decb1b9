// Package keyway runs functions and requests one at a time per key, on the one
// node of a cluster that owns the key, without asking a lock server first.
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
// # Calls
//
// On the node that owns the key, [Node.Do] holds it, [Node.TryDo] if nobody else
// does, [Share] for all equal reads at once, and a [Batcher] for all calls that wait.
// [Node.Serve] passes requests to an [http.Handler] with their keys held. From
// anywhere, [Node.DoAll] holds several keys, and a [Client] holds them or sends
// requests to their owners, of which [Node.Owner] names one. A call within an
// execution for a key that it holds runs at once, in the same [Execution]. Its token
// rises with each execution of a key, on whichever node: a resource that refuses
// lower ones is safe even from a node that was stopped for an hour.
//
// Where the critical section is no function, [Node.Lock], [Node.TryLock] and [Node.NewMutex] lock a key
// from anywhere, [Node.LockAll] several keys, and so do those of a [Client]. locking.Of(node), or of a client, is a [locking.Locker] in the place
// of one of Redis locks.
//
// # Errors
//
// A call that has not run, and may be made again:
//
//	ErrBusy           too many calls wait, for the key or in all
//	ErrHeld           of TryDo: the key is held, or waited for
//	ErrWaited         it waited for as long as Config.Worker.MaxWait allows (30 s)
//	*DeadlockError    it would have waited for a key whose holder waits for one that the
//	                  caller holds; an ErrDeadlock
//	ErrUnavailable    nobody takes calls for the key now
//	*UnownedError     no live node owns the key yet, with the time left; an ErrUnavailable
//	*NotOwnerError    another node owns the key, which it names: use its Client
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
//	context errors    of a call that had begun
//	others            of a Client, whose connection was lost
//
// What the function itself returns, Do returns as it is.
package keyway
