package handoff

import "github.com/keyway-go/keyway/internal/records"

// Effect is something that the shell does for the machine. The shell keeps to the order of Step's
// result. There are three kinds: calls to the store, orders to the request path, and news.
type Effect interface{ effect() }

// Call is what calls to the store have in common. They run concurrently with everything else, and
// each is answered by a Reply with its ID. Register and Renew belong on a connection of their own.
type Call struct {
	ID          uint64
	Generation  string // that the machine knows, which the store must have; not for FetchGeneration and Release
	Incarnation string // that calls, or that Release ends
}

// CallID returns the ID that the Reply must have.
func (c Call) CallID() uint64 { return c.ID }

// StoreCall is an Effect that is a call to the store: one of those below, up to Release.
type StoreCall interface {
	Effect
	CallID() uint64
}

// FetchGeneration asks the store for its generation.
type FetchGeneration struct{ Call }

// Register creates the session with the TTL of Config, or after a loss of
// data re-creates it and re-asserts the holdings.
type Register struct {
	Call
	Session  records.Session
	Holdings []records.Holding
}

// Renew extends the session.
type Renew struct{ Call }

// Observe reads what changed since a Snapshot's Version. It takes a
// close look at Suspects: see Snapshot.
type Observe struct {
	Call
	Since    int64
	Suspects []string
}

// Apply makes changes of records.
type Apply struct {
	Call
	Changes []records.Change
}

// Clear removes residue.
type Clear struct {
	Call
	Partition int
	Residue   []records.Residue
}

// ClearLocks removes locks that moves have written, which no successor of the
// partitions' owners needs to know of any more.
type ClearLocks struct {
	Call
	Moves []records.Move
}

// WriteLocks writes and removes locks of the incarnation's partitions.
type WriteLocks struct {
	Call
	Writes []records.LockWrite
}

// Release ends a session for good: the incarnation's own, or that of an incarnation that is
// certainly dead.
type Release struct{ Call }

// OpenTable lets requests of the partition start, with tokens of Epoch. The
// keys of Blocked wait for their Unblock: a previous owner still runs them.
//
// Resumed says that no other worker has served the partition since this process closed its table.
// The locks frozen there then continue with the rest of their leases. Locks is what the table
// listed at that time, and only the locks among them that are in Written count. Without Resumed the
// frozen locks are dropped.
//
// Each lock in Locks, which a Closed listed, keeps its key from all others for the rest that its
// lease had then, counted from now. With Renewable it came here directly, and continues for its
// holder with its token. Without it an owner in between has died, which may have ended the lock and
// granted the key again: no caller may renew the lock or ask for its token. A key may be both
// blocked and locked.
//
// Written are the locks that the store keeps for the partition. No other caller has held their keys
// since they were written, so they continue for their holders with their tokens. A lock that is
// frozen, or came with Renewable, has the rest of its lease; any other has its whole lease from
// now. A lock that Locks marks as written, but that is not in Written, has ended.
type OpenTable struct {
	Partition int
	Epoch     int64
	Blocked   []records.Residue
	Resumed   bool
	Locks     string
	Renewable bool
	Written   []records.WrittenLock
}

// CloseTable stops the partition's requests: close its table, bounce the waiters and list the
// running executions in one critical section, and step the machine with the Closed at once.
type CloseTable struct{ Partition int }

// LocksMoved says that the locks that are frozen in the partition's table have
// gone to its next owner: they are dropped here.
type LocksMoved struct{ Partition int }

// LocksWritten says that the store keeps these locks of the partition from now on, or,
// of those without a Text, that it does not keep them any more.
type LocksWritten struct {
	Partition int
	Locks     []records.WrittenLock
}

// LocksForgotten says that the store has another generation and keeps no locks any more. The shell
// must send a Write again for the locks of open partitions that the store should keep.
type LocksForgotten struct{}

// Advance makes the partition's next tokens be of Epoch.
type Advance struct {
	Partition int
	Epoch     int64
}

// Unblock lets requests of a key that OpenTable blocked start.
type Unblock struct {
	Partition int
	Key       string
}

// CancelHandlers cancels the context of running executions: of one partition,
// or of all, those of partitions that moved away included.
type CancelHandlers struct {
	All       bool
	Partition int // unless All
}

// LeaseChanged publishes the lease that admission compares with the clocks.
type LeaseChanged struct{ Lease Lease }

// Owner publishes the partition's record, for refused requests to follow.
type Owner struct {
	Partition int
	Record    records.Record
}

// Lost says that this incarnation owns nothing any more and never will: start a new one. The
// machine has ordered every table closed and every handler cancelled; step it on until Done, and
// its successors need not wait for the session's TTL.
type Lost struct{ Err error }

// Done says that the machine has nothing left to do.
type Done struct{}

func (Call) effect()           {}
func (LocksWritten) effect()   {}
func (LocksForgotten) effect() {}
func (OpenTable) effect()      {}
func (CloseTable) effect()     {}
func (LocksMoved) effect()     {}
func (Advance) effect()        {}
func (Unblock) effect()        {}
func (CancelHandlers) effect() {}
func (LeaseChanged) effect()   {}
func (Owner) effect()          {}
func (Lost) effect()           {}
func (Done) effect()           {}
