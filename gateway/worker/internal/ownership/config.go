package ownership

import (
	"context"
	"log/slog"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

// Config configures a [Shell].
type Config struct {
	Name     string // the worker's
	Settings ring.Settings
	Members  gateway.Members
	Store    Store
	Keys     *keyed.Keys
	Locks    Locks
	Health   func(alone bool) error // why the worker takes no place on the ring because of its app; nil for no reason. alone: nobody else serves
	Logger   *slog.Logger
	Log      *slog.Logger // for what clients can bring about

	NewCluster        bool // and the following as in the worker's Config
	ServeWithoutStore bool
	Previous          map[string]time.Duration
	OnIncarnation     func(id string) error
	OnPeers           func(gossip []string)
	AwaitApp          bool
	SlowKey           time.Duration
}

// Store keeps the sessions and records that determine ownership. Every method is safe for concurrent use, and
// idempotent. An error that wraps [records.ErrGeneration] or [records.ErrSessionGone] says that the
// call had no effect; after any other error that is unknown.
type Store interface {
	// Settings returns the settings that the store was opened with.
	// Their identity of the store is 0 until Generation has learnt it, and then
	// what the latest has found: the same in all processes that use the store.
	// A store that has none, 0 for good, is not compared.
	Settings() ring.Settings
	// Exists returns an error that wraps [ring.ErrSettings] if the store is
	// empty and was not known to the process before. It changes nothing.
	Exists(ctx context.Context) error
	// Generation returns the generation of the store's data, after having
	// begun a new one where the data is of another life of the server.
	Generation(ctx context.Context) (string, error)
	// Register creates the session, or creates it anew after a loss of data,
	// and asserts what it holds, in one step. It returns the state of each
	// holding's partition.
	Register(ctx context.Context, generation string, s records.Session, ttl time.Duration, holdings []records.Holding) ([]records.PartitionState, error)
	// Renew extends a session that exists. The Snapshot, without its lists, shows the store right after that, and
	// saves an Observe if its Version is known. A store may return the zero Snapshot.
	Renew(ctx context.Context, generation, incarnation string, ttl time.Duration) (records.Snapshot, error)
	// Release ends the session for good.
	Release(ctx context.Context, incarnation string) error
	// Apply applies each change by itself and returns the partitions' states.
	Apply(ctx context.Context, generation, incarnation string, changes []records.Change) ([]records.PartitionState, error)
	// Clear removes exactly these entries of the partition's residue.
	Clear(ctx context.Context, generation string, partition int, residue []records.Residue) error
	// ClearLocks forgets locks that moves have written.
	ClearLocks(ctx context.Context, generation string, moves []records.Move) error
	// WriteLocks writes and removes locks that the store keeps, and returns the number
	// of each partition's latest write that was made.
	WriteLocks(ctx context.Context, generation, incarnation string, writes []records.LockWrite) ([]records.WriteNumber, error)
	// Observe reads what has changed since a version, in one step, with the stamps of suspects.
	// If there are no suspects and nothing has changed, it may answer by a cheaper look.
	Observe(ctx context.Context, generation, incarnation string, since int64, suspects []string) (records.Snapshot, error)
	// Watch returns a channel that receives when there is something to
	// observe, and perhaps when there is not. It is closed when ctx ends.
	Watch(ctx context.Context) <-chan struct{}
}

// Locks are the locks of other members, which move and close together with the tables of keys.
type Locks interface {
	// Open opens a partition's table with the locks that come along.
	Open(e handoff.OpenTable)
	// Close closes a partition's table, freezes its locks and lists what runs: all of that at one moment.
	Close(partition int) handoff.Closed
	// Drop forgets the locks of a partition that another worker has.
	Drop(partition int)
	// Written says what the store has written.
	Written(partition int, locks []records.WrittenLock)
	// WriteAgain says that the store has lost what it had written.
	WriteAgain()
	// Lingers reports whether there are locks in a partition that is not served, or of a life before.
	Lingers(partition int) bool
}
