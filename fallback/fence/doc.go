// Package fence is for programs that write to Redis or SQL under a lock: it refuses
// writes that come with an older fencing token than one already seen, at the
// resource that is written to. It is what makes a lock
// with a time limit safe: a holder that was stopped, and does not know that
// the lock is another's by now, cannot undo the other's work.
//
// Tokens come from lock.Lock.Token, from a Keyway worker's request
// context, or from anything else that hands out a higher number to each
// holder. They must be at least 0 and below 2^53. Every write must go through
// the fence, and reads on which a write is based must come after the lock was
// taken. A write with the same token as the one before is allowed: it is the
// same holder's.
//
// # Redis
//
// Do runs a command on a key together with the check, in one script. The token is stored in a key
// of its own, without an expiry: delete both or neither. In a cluster it is in the key's slot. There,
// a key with a closing brace needs a hash tag of its own.
//
// # SQL
//
// Where one row is the resource, keep the token in the row:
//
//	ALTER TABLE account ADD COLUMN fence bigint NOT NULL DEFAULT 0;
//
//	UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2;
//
// and give the result to Applied, which says ErrStale if no row was changed.
// The database compares and writes under the row's lock, so that two writes
// at once are decided in either order, and the older one is refused in both.
//
// Where a write touches several rows or inserts, keep the tokens in a table
// of their own and call Advance first in the same transaction:
//
//	CREATE TABLE fence (key text PRIMARY KEY, token bigint NOT NULL);
//
// Advance locks the key's row until the transaction ends, so that nothing
// with an older token can commit after it.
//
// The nested module pgexample runs both against PostgreSQL.
package fence
