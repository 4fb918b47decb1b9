// Package records describes what a store keeps about the ownership of partitions, and what each call
// means. Package gateway/worker/internal/ownership has the interface of a store.
//
// Each partition has a record of its owner, which only a compare-and-set on its epoch changes.
// docs/protocol.md says why each part is there.
package records

import (
	"errors"
	"time"
)

// Definite errors of a store. After any other error the outcome of the call is unknown: it may have
// been applied, or may still be.
var (
	// ErrGeneration means that the store's data is of another generation than
	// the call named, so nothing was applied.
	ErrGeneration = errors.New("handoff: the store has another generation")

	// ErrSessionGone means that the caller's session is not in the store, so
	// nothing was applied. Within one generation it never comes back.
	ErrSessionGone = errors.New("handoff: session gone")
)

// Record is the latest ownership of a partition. The zero Record has never been owned.
type Record struct {
	Epoch int64  // only goes up
	Owner string // incarnation
}

// Residue is a key of a partition whose handler still runs at Holder, which
// may be a previous owner of the partition.
type Residue struct {
	Key    string
	Holder string // incarnation
	Token  int64  // fencing token of the execution that still runs
}

// WrittenLock is a lock that the store keeps until it is removed.
type WrittenLock struct {
	ID   string // names it within its partition
	Text string // in the shell's own encoding; empty in a write that removes it
}

// WriteNumber identifies a write of a partition's locks. The writes of one epoch come from one
// incarnation, whose numbers rise.
type WriteNumber struct {
	Epoch  int64 // at which the writer serves the partition
	Number int64 // greater than 0
}

// LockWrite changes the locks that the store keeps for a partition of the caller: each of Locks
// replaces the one with its ID. It requires that the record is the caller's at Number.Epoch. It
// also requires that the latest write was of another epoch or had a lower number, so late and
// repeated writes change nothing.
type LockWrite struct {
	Partition int
	Number    WriteNumber
	Locks     []WrittenLock
}

// Session is an incarnation's registration in the store.
type Session struct {
	Incarnation string
	Name        string
	Addr        string // takes requests
	Gossip      string // gossip listener, for peers that lost sight of it
}

// Op is the kind of a Change.
type Op uint8

const (
	// OpClaim takes a partition for the caller. It requires that From is the record, and that
	// From.Owner is empty, the caller, or without a session. It also requires that the store's
	// quarantine is over, unless From.Owner is the caller or has been released.
	OpClaim Op = iota + 1

	// OpMove gives the caller's partition to To and writes Residue in the same step. Locks replaces
	// the stored locks, unless a move has brought those after the epoch Served. It requires that
	// From is the record, that From.Owner is the caller, and that To has a session.
	//
	// A caller may move or claim a record that names it without having opened the partition. Then
	// From is what the latest move wrote, and Served is lower. The locks of that move remain as if
	// it had written the new record.
	OpMove

	// OpAdvance raises the epoch of the caller's partition. It requires that From is the record and
	// that From.Owner is the caller.
	OpAdvance
)

func (o Op) String() string {
	return [...]string{OpClaim: "claim", OpMove: "move", OpAdvance: "advance"}[o]
}

// Change is a compare-and-set of one partition's record. The new epoch is
// max(From.Epoch+1, Floor, the store's clock in Unix seconds).
type Change struct {
	Op        Op
	Partition int
	From      Record
	To        string    // OpMove: the new owner's incarnation
	Floor     int64     // lowest epoch that the change may write
	Residue   []Residue // OpMove: the caller's running keys; each replaces the entry of its key
	Locks     string    // OpMove: the locks that the caller's table lists
	Served    int64     // OpMove, OpClaim: latest epoch at which the caller served the partition in this generation, or 0
}

// Holding is a partition that a worker serves, and re-asserts after the store has lost data. With
// Epoch 0 it is only the worker's residue in a partition.
type Holding struct {
	Partition int
	Epoch     int64
	Residue   []Residue
}

// PartitionState is a partition in the store. Only the record's owner gets Locks and Written, which
// are forgotten when a generation ends.
type PartitionState struct {
	Partition int
	Record    Record
	Residue   []Residue
	Moved     int64  // epoch of the latest move that wrote locks, or that there are none, or to which a worker passed these on; 0 for no move
	Locks     string // that it wrote, until they are cleared
	Written   []WrittenLock
}

// Move identifies the locks that a move has written.
type Move struct {
	Partition int
	Epoch     int64 // PartitionState.Moved
}

// SessionState is a session as the store has it.
type SessionState struct {
	Session
	Joins time.Duration // on the store's clock: when it may join the ring, which is later if its name keeps dying
}

// Stamp is the latest renewal of an incarnation's session, or its registration.
//
// A store counts registrations and renewals of all sessions. The count is its beat, which never
// falls within a generation (it may rise for other reasons as well). A session's stamp is the beat
// that its latest renewal raised. A snapshot with that beat or a higher one was taken after the
// renewal, and a snapshot with a lower beat before it, regardless of clocks.
type Stamp struct {
	Incarnation string
	Beat        int64 // greater than 0
}

// Hint tells the watchers of a store that it has changed. The zero Hint says that it may have.
//
// With Partitions, these are all that has changed since the version before, and they have no locks.
// They are as true as what an Observe read at that version, however late the hint comes.
type Hint struct {
	Generation string
	Version    int64
	Partitions []PartitionState // nil: look for what has changed
}

// Pass passes h on to the receiver of hints, a channel with room for one. If one is there that was not received,
// both become the zero Hint. Only one goroutine may pass hints to a channel.
func (h Hint) Pass(hints chan Hint) {
	select {
	case hints <- h:
	default:
		select {
		case <-hints:
		default: // received meanwhile
		}
		hints <- Hint{} // there is room, since nobody else sends
	}
}

// Note is a text of the cluster's in the store, which workers replace as a whole.
type Note uint8

// The notes.
const (
	Placements Note = iota // which partitions should not go by the ring, in package placement's form
	Suspects               // keys whose executions may have ended workers, in package suspects' form

	noteKinds
)

// String returns the name of the note in the store.
func (n Note) String() string { return [noteKinds]string{"placements", "suspects"}[n] }

// Notes are the texts of all notes, "" at first.
type Notes [noteKinds]string

// Snapshot is the content of a store at one moment, as Observe reads it. The reader must
// not change its slices: while nothing changes, snapshots share them.
//
// Version rises with every change of what a snapshot shows except for Now, Quarantine,
// Beat and Stamps: sessions that register, end or are released, partitions and notes. A renewal
// changes the beat alone.
//
// Observe has a cheap and a full form. Without suspects, a store may compare only its generation
// and version, and answer that nothing has changed. Its snapshot then may show a session whose TTL
// is over, or a generation that another call would end because the server was replaced. With
// suspects, or after a change, it shows no session whose TTL is over, and the generation is
// current.
type Snapshot struct {
	Generation string
	Now        time.Duration // the store's clock, since the Unix epoch
	Quarantine time.Duration // what is left of it on the store's clock; 0 when over
	Version    int64         // pass it to the next Observe
	Beat       int64
	Sessions   []SessionState // all of them
	Gone       []Stamp        // sessions that ended lately (about an hour ago), in this generation and without a release
	Released   []string       // incarnations that released their session lately (about an hour ago)
	Stamps     []Stamp        // of those suspects that have a session
	Notes      Notes
	Partitions []PartitionState // changed in record or residue after the Version passed in
}
