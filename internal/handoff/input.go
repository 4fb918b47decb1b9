package handoff

import "github.com/keyway-go/keyway/internal/records"

// Input is something that happened, to be passed to Machine.Step: a Tick, a View, a Changed, a
// Reply, a Closed, a Finished, a LocksEnded, a Write, a SequenceLow, an Awaited or a Leave.
type Input interface{ input() }

// Tick is an input that says nothing but the time.
type Tick struct{}

// View is the present membership, from gossip. Pass it whenever any part changed. The
// machine keeps the slices, which must not change afterwards.
type View struct {
	Digest  uint64  // of the ring's configuration and its active workers
	Workers []Peer  // the active workers, this one included if it is active
	Owners  []int32 // desired owner of each partition as an index of Workers, or -1; nil while there is none at all
	Floor   int64   // highest epoch that any member knows of: what the machine writes from here on is higher
}

// Peer is an active worker of a View.
type Peer struct {
	Incarnation string
	View        uint64 // digest of the View that it says it has
}

// Changed says that the store hinted that something changed in it, so it is
// worth looking at once. Hints may be lost: the machine polls as well.
type Changed struct{}

// Hinted says what the store hinted that has changed. If the machine does not know the hint's version then
// (see [Machine.Knows]), it is worth looking for that.
type Hinted struct{ records.Hint }

// Reply is the outcome of the store call with the same ID. The shell answers every call exactly
// once: with an error when Config.CallTimeout has passed. Only ErrGeneration and ErrSessionGone are
// definite; after any other error the call may have been applied, or may still be. The machine
// ignores a Reply that it no longer waits for.
type Reply struct {
	ID         uint64
	Err        error
	Generation string                   // of FetchGeneration
	States     []records.PartitionState // of Register and Apply
	Snapshot   records.Snapshot         // of Observe; of Renew without its lists, or the zero Snapshot
	Wrote      []records.WriteNumber    // of WriteLocks: of each partition, the latest write that was made
}

// Closed answers CloseTable, before any other input: the partition's table has been closed, its
// waiters bounced, and Running are the executions that it listed in the same critical section.
//
// Locks are the keys that the table holds for callers in other processes, in the shell's own
// encoding, with the rest of their leases; empty if there are none. They are not in Running. They
// travel with the partition, and are frozen until an OpenTable resumes them: here they can be
// neither renewed nor released. Locks that the store keeps (LocksWritten) are listed but dropped
// instead of frozen; the next worker that opens the partition finds them in OpenTable.Written.
type Closed struct {
	Partition int
	Running   []Execution
	Locks     string
	Frozen    bool // locks are frozen, so that nothing is to be released before they have ended or moved
}

// Execution is a handler that runs, or is about to, under a key's mutex.
type Execution struct {
	Key   string
	Token int64
}

// Finished says that an execution that a Closed listed has ended.
type Finished struct {
	Partition int
	Key       string
	Token     int64
}

// LocksEnded says that none of the frozen locks of a partition is left: their leases have ended.
type LocksEnded struct{ Partition int }

// Write asks the store to keep locks of an open partition, so that they outlive this incarnation,
// or to remove them. Writes take effect in their order. A LocksWritten answers, unless the
// partition is closed before.
type Write struct {
	Partition int
	Locks     []records.WrittenLock
}

// SequenceLow says that the partition's tokens run out at its epoch.
type SequenceLow struct {
	Partition int
	Epoch     int64 // of the highest token so far; the next epoch is higher
}

// Awaited says that callers wait for a partition that is not served here. Those are claimed before the others.
type Awaited struct{ Partition int }

// Leave asks the machine to hand everything over and to release the session in the end. It takes
// effect once the View no longer wants this incarnation to own anything.
type Leave struct {
	// Now leaves without waiting for workers that take the partitions over. The partitions are
	// closed here, and their next owners claim them when the last handler has ended and the session
	// is released.
	Now bool
}

func (Tick) input()        {}
func (View) input()        {}
func (Changed) input()     {}
func (Hinted) input()      {}
func (Reply) input()       {}
func (Closed) input()      {}
func (Finished) input()    {}
func (LocksEnded) input()  {}
func (Write) input()       {}
func (SequenceLow) input() {}
func (Awaited) input()     {}
func (Leave) input()       {}
