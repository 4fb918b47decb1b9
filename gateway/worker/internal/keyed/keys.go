package keyed

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/keytable"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

// Config configures [Keys].
type Config struct {
	Name             string // the worker's
	Settings         ring.Settings
	View             func() *ring.View
	Log              *slog.Logger // for what clients can bring about
	QueuePerKey      int          // and the following as in the worker's Limits
	Queue            int
	MaxAwaiting      int
	AwaitTimeout     time.Duration
	MaxWait          time.Duration
	SlowKey          time.Duration
	Timeout          time.Duration
	AbandonedTimeout time.Duration
}

// Owner has the partitions of the keys.
type Owner interface {
	// Post passes on that an execution has ended whose partition is given away, or that a partition has few tokens left.
	Post(in handoff.Input)
	// Waiting says what must happen before a partition without another known owner is served, and
	// how long that takes; 0 if that is unknown.
	Waiting(partition int, record *records.Record) (wait time.Duration, what string)
}

// Keys are the keys of all partitions at one worker. The ownership shell changes Lease, incarnation
// and Draining; callers change the counters, and each partition has locks of its own.
type Keys struct {
	Owner Owner // set before the first use

	cfg         Config
	Parts       []Partition
	queue       *keytable.Queue // of all partitions
	base        time.Time       // origin of the monotonic clock in handoff.Instant
	Lease       atomic.Pointer[handoff.Lease]
	incarnation atomic.Pointer[string] // the present one
	Draining    atomic.Bool            // the worker leaves for good
	Awaiting    atomic.Int64           // callers that wait for a partition to arrive
	births      atomic.Uint64          // of executions' contexts
	keyless     atomic.Uint64          // requests that hold no key
	graph       waitGraph
	slow        slowKeys
	rates       rates
	hot         hot
	Counts      Counts

	Confirming func() // called between the two comparisons of confirm; nil but in tests
}

// New returns the keys of closed partitions.
func New(cfg Config) *Keys {
	k := &Keys{cfg: cfg, base: time.Now(), Parts: make([]Partition, cfg.Settings.Ring.Partitions)}
	k.slow.init(k)
	k.queue = &keytable.Queue{PerKey: cfg.QueuePerKey, Total: cfg.Queue, MaxWait: cfg.MaxWait}
	k.rates.most = maxBuckets
	k.hot.init(k.Queued)
	for i := range k.Parts {
		k.Parts[i].init(k, i)
	}
	k.Lease.Store(new(handoff.Lease))
	k.incarnation.Store(new(string))
	return k
}

// Now returns the time since the worker's start.
func (k *Keys) Now() time.Duration { return time.Since(k.base) }

// Instant returns t as a reading of the worker's clocks.
func (k *Keys) Instant(t time.Time) handoff.Instant { return lease.At(k.base, t) }

// Admits reports whether the lease lets executions begin at t.
func (k *Keys) Admits(t time.Time) bool { return k.Lease.Load().Admits(k.Instant(t)) }

// Incarnation returns the id of the worker's present session.
func (k *Keys) Incarnation() string { return *k.incarnation.Load() }

// SetIncarnation sets it.
func (k *Keys) SetIncarnation(id string) { k.incarnation.Store(&id) }

// LooksForSlow reports whether looks for keys that are held long are made.
func (k *Keys) LooksForSlow() bool { return k.slow.on.Load() }

// Of returns the partition of a key.
func (k *Keys) Of(key string) *Partition { return &k.Parts[k.cfg.Settings.Ring.Partition(key)] }

// Running counts the keys that are held.
func (k *Keys) Running() int {
	n := 0
	for i := range k.Parts {
		n += k.Parts[i].Table.Len()
	}
	return n
}

// Queued returns how many callers wait for key at this worker.
func (k *Keys) Queued(key string) int { return k.Of(key).Table.Queued(key) }

// Waiting returns how many callers wait for any key.
func (k *Keys) Waiting() int { return k.queue.Waiting() }

// Left returns how long the worker may still work with keys without renewing its session: until it
// cancels executions, and until other workers may have the keys.
func (k *Keys) Left() (cancel, surrender time.Duration) {
	now, lease := k.Instant(time.Now()), k.Lease.Load()
	return lease.Cancel.Left(now), lease.Surrender.Left(now)
}

// Slack returns how long the worker admits without another renewal.
func (k *Keys) Slack() time.Duration { return k.Lease.Load().Admit.Left(k.Instant(time.Now())) }

// Serving returns how many partitions are open.
func (k *Keys) Serving() int {
	n := 0
	for i := range k.Parts {
		if k.Parts[i].Open.Load() {
			n++
		}
	}
	return n
}

// Close admits nothing more, and cancels what runs.
func (k *Keys) Close() {
	k.Lease.Store(new(handoff.Lease))
	for i := range k.Parts {
		p := &k.Parts[i]
		p.Open.Store(false)
		p.Table.Close()
		p.CancelRunning()
		p.Announce()
	}
	k.slow.close()
}

// sweepStep is the longest time between two looks of CancelOverdue.
const sweepStep = 100 * time.Millisecond

// CancelOverdue cancels executions that exceed their timeout, and those
// whose clients left AbandonedTimeout ago, until ctx ends. It looks at all of them from time to
// time, so that no execution needs a timer, and only while a key is held.
func (k *Keys) CancelOverdue(ctx context.Context) {
	tick := time.NewTicker(max(min(k.cfg.Timeout/10, k.cfg.AbandonedTimeout/10, sweepStep), time.Millisecond))
	defer tick.Stop()
	held, overdue := tick.C, make(map[*Context]error) // held is nil while no key is
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.slow.began:
			held = tick.C
		case now := <-held:
			if !k.slow.on.Load() {
				held = nil
				continue
			}
			for i := range k.Parts {
				k.Parts[i].overdue(now, overdue)
			}
			for c, cause := range overdue {
				c.Cancel(cause)
			}
			clear(overdue)
		}
	}
}

// HeldBy reports whether the innermost execution that ctx belongs to is one of key at this worker.
func (k *Keys) HeldBy(ctx context.Context, key string) bool {
	c := Innermost(ctx)
	return c != nil && c.part.keys == k && c.key == key
}

// TokenAlong returns the token of the execution along ctx that holds key at this worker.
func (k *Keys) TokenAlong(ctx context.Context, key string) (token int64, ok bool) {
	for c := Innermost(ctx); c != nil; c = Innermost(c.parent) {
		if c.part.keys == k && c.key == key && c.holds() {
			return c.token, true
		}
	}
	return 0, false
}
