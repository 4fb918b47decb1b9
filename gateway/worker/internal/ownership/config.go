package ownership

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/wake"
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
	OnPlacements      func(text string, version int64) error
}

// Store keeps the sessions and records that determine ownership. Every method is safe for concurrent use, and
// idempotent. An error that wraps [records.ErrGeneration] or [records.ErrSessionGone] says that the
// call had no effect; after any other error that is unknown.
type Store interface {
	// Settings returns the settings that the store was opened with. Their identity of the store is
	// 0 until Generation has learnt it, and then what the latest has found: the same in all
	// processes that use the store. A store that has none, 0 for good, is not compared.
	Settings() ring.Settings
	// Generation returns the generation of the store's data, after having
	// begun a new one where the data is of another life of the server.
	// Unless begin, a store that is empty and was not known to the process
	// before stays as it is, and the error wraps [ring.ErrSettings].
	Generation(ctx context.Context, begin bool) (string, error)
	// Register creates the session, or creates it anew after a loss of data, and asserts what it
	// holds, in one step. It returns the state of each holding's partition.
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
	// Replace replaces the text of a note, if it is from, and returns what it is then.
	Replace(ctx context.Context, note records.Note, from, to string) (string, error)
	// Watch returns a channel that receives when there is something to
	// observe, and perhaps when there is not. It is closed when ctx ends.
	Watch(ctx context.Context) <-chan records.Hint
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

// Shell drives the ownership machine: one goroutine, run, steps it with events and carries out its
// effects. All other goroutines only post events, under mu. A shell runs until ctx is cancelled;
// leaving and drained say how it stands to the ring, and one life follows another when its session
// is lost.
type Shell struct {
	cfg       Config
	outlook   atomic.Pointer[handoff.Outlook] // of the present incarnation
	offRing   atomic.Bool                     // it was told to leave the ring, see leaveRing
	isSettled atomic.Bool                     // the present incarnation has served all that the ring gave it
	trouble   atomic.Pointer[error]           // why the worker does not begin, or has stopped
	lost      atomic.Int64                    // sessions

	ctx     context.Context // of the goroutine and of calls to the store
	cancel  context.CancelFunc
	ended   sync.WaitGroup
	settled chan struct{} // closed when isSettled is true for the first time
	gone    chan struct{} // closed when the last life has released its session

	refused    context.Context // done when the worker has not begun for a TTL, with the reason
	refuse     context.CancelCauseFunc
	registered chan struct{} // closed when the store has shown the first life's session

	wake  chan struct{} // holds one token while inbox is not empty, or run is to look around
	mu    sync.Mutex    // guards inbox
	inbox []event
	turn  wake.Round // of run

	calls  storeCalls
	Docket *Docket

	// The fields below belong to run, except a part of Moves.
	view       *ring.View
	viewed     handoff.View // what the machines were told of view
	changed    time.Time    // when another worker came, went or changed its state, but by joining the ring
	joined     time.Time    // when another worker joined the ring
	current    *life
	lives      []*life // current, and lost ones that still have handlers to wait for
	leaving    bool
	wasSettled bool
	sessions   []records.SessionState // in the latest snapshot
	looked     time.Time              // when that was asked for
	peers      []string               // last passed to OnPeers
	placed     *string                // last passed to OnPlacements; nil for nothing
	agree      agreement
	appless    error // why the worker is off the ring because of its app; nil if it is not
	drained    bool  // it was told to leave the ring, until it is told to come back
	Moves      Moves
	renewals   renewals
	progress   time.Time // when the progress of leaving is logged next

	highest int64     // epoch that any life knew of
	floor   int64     // highest epoch that a member of view announces
	told    int64     // highest epoch that this member has announced
	toldAt  time.Time // when that was
	tellAt  time.Time // earliest time of the next announcement; zero if there is none

	timeout time.Duration // of a call to the store; never changes
}

// life is one incarnation of the worker. run owns it. It gets its session confirmed and joins the
// ring. If the session is lost, a new life follows unless the worker leaves; the lost one ends
// after its handlers.
type life struct {
	machine     *handoff.Machine
	incarnation string
	first       bool          // of the process
	confirmed   bool          // its session, at least once
	told        bool          // by the store, of wait
	wait        time.Duration // how long to stay off the ring, when last told
	joins       time.Time     // since when it could be on the ring; zero while it could not
	announced   bool          // as active
	store       ring.StoreID  // in which it is
	astray      bool          // the store has become another one
}

// event is an input for one life, or with a nil life for all.
type event struct {
	life  *life
	input handoff.Input
	store ring.StoreID // with the reply to handoff.FetchGeneration: where that comes from
	asked time.Time    // with a reply: when the call began
}

// Post passes in to all lives.
func (s *Shell) Post(in handoff.Input) { s.post(event{input: in}) }

func (s *Shell) post(e event) {
	s.mu.Lock()
	s.inbox = append(s.inbox, e)
	s.mu.Unlock()
	s.Poke()
}

// Poke makes run look around.
func (s *Shell) Poke() { wake.Up(s.wake) }

func (s *Shell) announce(update func(*ring.Member)) {
	s.told, s.toldAt = s.highest, time.Now()
	err := s.cfg.Members.Announce(func(self *ring.Member) {
		update(self)
		self.Epoch = max(self.Epoch, s.highest)
	})
	if err != nil {
		s.cfg.Logger.Error("cannot tell the other members of a change", "error", err)
	}
}
