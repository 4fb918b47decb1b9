package ownership

import (
	"context"
	"log/slog"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/records"
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

// Store is worker.Store, which says what its methods do.
type Store interface {
	Settings() ring.Settings
	Exists(ctx context.Context) error
	Generation(ctx context.Context) (string, error)
	Register(ctx context.Context, generation string, s records.Session, ttl time.Duration, holdings []records.Holding) ([]records.PartitionState, error)
	Renew(ctx context.Context, generation, incarnation string, ttl time.Duration) (records.Snapshot, error)
	Release(ctx context.Context, incarnation string) error
	Apply(ctx context.Context, generation, incarnation string, changes []records.Change) ([]records.PartitionState, error)
	Clear(ctx context.Context, generation string, partition int, residue []records.Residue) error
	ClearLocks(ctx context.Context, generation string, moves []records.Move) error
	WriteLocks(ctx context.Context, generation, incarnation string, writes []records.LockWrite) ([]records.WriteNumber, error)
	Observe(ctx context.Context, generation, incarnation string, since int64, suspects []string) (records.Snapshot, error)
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
