// Package lock is for programs that are no members of a cluster: it takes locks of keys in Redis.
//
//	client, err := fallback.NewClient(url) // redis://127.0.0.1:6379
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	locker, err := lock.New(client, lock.Config{Label: "billing"})
//	if err != nil {
//		return err
//	}
//	defer locker.Close()
//	held, err := locker.Lock(ctx, "order:42", locking.TTL(time.Minute), locking.Wait(5*time.Second))
//	if err != nil {
//		return err
//	}
//	defer held.Unlock(context.WithoutCancel(ctx))
//	return ship(held.Context(), held.Token())
//
// A Locker takes locks of keys: Lock waits, TryLock does not; RLock and
// TryRLock share a lock among readers; LockAll takes several at once. The
// lock that is held renews itself until Unlock. Its Context ends before
// another client can get the lock, and its Token goes up with each holder.
//
// The callers of one process queue locally. One of them contends in Redis, and passes the lock on
// to the next, within bounds that leave other processes their turn. [NewQuorum] spreads locks over
// several independent servers. Detach and Attach continue a lock in another process, and State says
// who holds it. Package localmutex/locking has the options of one call, and
// an interface for code that does not use Redis.
//
// # What such a lock can promise, and what not
//
// A lock with a time limit excludes others only while its holder knows the time. Redis frees it
// when the TTL is over, even if the holder has not noticed. A process may be stopped between its
// last check of the Context and its write (a garbage collection, a paused virtual machine,
// SIGSTOP), and a packet that it sent may arrive late. So:
//
//   - As long as clocks run at nearly the same rate (within Margin of each
//     other over a TTL), Redis keeps its data, and the work ends when the
//     Context does, no two holders overlap.
//   - Redis forgets locks in a restart without persistence, in a failover
//     before replication, on FLUSHALL, and when it evicts keys. The lock then
//     is another's at once, and the holder learns of it at its next renewal.
//     A step of the server's clock ends locks early as well. A quorum narrows
//     this to a majority, but does not close it.
//   - Neither helps against a holder that is stopped at the wrong moment. Only
//     the resource can: it must refuse a token that is lower than one it has
//     seen. Tokens go up in every case above, since they start from the
//     server's clock when the counter is lost (which a clock set back by more
//     than the outage defeats). Package fence has such a guard for Redis and
//     one for SQL, each with an example that shows an older token refused.
//
// Use the lock to save double work; use the token to be safe.
package lock
