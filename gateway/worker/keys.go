package worker

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/policy"
	"github.com/keyway-go/keyway/localmutex"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/handoff"
	"github.com/keyway-go/keyway/ring/lease"
)

// keyConfig configures [keys].
type keyConfig struct {
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
	// Waiting says what has to happen before a partition that nobody else is known to own is served, and how long that
	// takes; 0 if that is not known.
	Waiting(partition int, record *handoff.Record) (wait time.Duration, what string)
}

// keys are the keys of all partitions, at one worker.
type keys struct {
	Owner Owner // set before the first use

	cfg         keyConfig
	parts       []partition
	queue       *localmutex.Queue // of all partitions
	base        time.Time         // origin of the monotonic clock in handoff.Instant
	lease       atomic.Pointer[handoff.Lease]
	incarnation atomic.Pointer[string] // the present one
	draining    atomic.Bool            // the worker leaves for good
	awaiting    atomic.Int64           // callers that wait for a partition to arrive
	births      atomic.Uint64          // of executions' contexts
	keyless     atomic.Uint64          // requests that hold no key
	graph       waitGraph
	slow        slowKeys
	rates       rates
	hot         hot
	counts      keyCounts

	confirming func() // called between the two comparisons of confirm; nil but in tests
}

// newKeys returns the keys of closed partitions.
func newKeys(cfg keyConfig) *keys {
	k := &keys{cfg: cfg, base: time.Now(), parts: make([]partition, cfg.Settings.Ring.Partitions)}
	k.queue = &localmutex.Queue{PerKey: cfg.QueuePerKey, Total: cfg.Queue, MaxWait: cfg.MaxWait}
	k.rates.most = maxBuckets
	k.hot.init(k.Queued)
	for i := range k.parts {
		k.parts[i].init(k, i)
	}
	k.slow.keys = k
	k.lease.Store(new(handoff.Lease))
	k.incarnation.Store(new(string))
	return k
}

// now returns the time since the worker's start.
func (k *keys) now() time.Duration { return time.Since(k.base) }

// instant returns t as a reading of the worker's clocks.
func (k *keys) instant(t time.Time) handoff.Instant { return lease.At(k.base, t) }

// admits reports whether the lease lets executions begin at t.
func (k *keys) admits(t time.Time) bool { return k.lease.Load().Admits(k.instant(t)) }

// Incarnation returns the id of the worker's present session.
func (k *keys) Incarnation() string { return *k.incarnation.Load() }

// SetIncarnation sets it.
func (k *keys) SetIncarnation(id string) { k.incarnation.Store(&id) }

// looksForSlow reports whether looks for keys that are held long are made.
func (k *keys) looksForSlow() bool { return k.slow.on.Load() }

// of returns the partition of a key.
func (k *keys) of(key string) *partition { return &k.parts[k.cfg.Settings.Ring.Partition(key)] }

// running counts the keys that are held.
func (k *keys) running() int {
	n := 0
	for i := range k.parts {
		n += k.parts[i].table.Len()
	}
	return n
}

// Queued returns how many callers wait for key at this worker.
func (k *keys) Queued(key string) int { return k.of(key).table.Queued(key) }

// waiting returns how many callers wait for any key.
func (k *keys) waiting() int { return k.queue.Waiting() }

// waited counts a wait for a key of p.
func (k *keys) waited(p *partition, d time.Duration) { k.counts.waited(p, d) }

// left returns for how long the worker may yet work with keys without another renewal of its session: until it cancels
// what runs, and until others may have the keys.
func (k *keys) left() (cancel, surrender time.Duration) {
	now, lease := k.instant(time.Now()), k.lease.Load()
	return lease.Cancel.Left(now), lease.Surrender.Left(now)
}

// slack returns how long the worker admits without another renewal.
func (k *keys) slack() time.Duration { return k.lease.Load().Admit.Left(k.instant(time.Now())) }

// ratesOf returns the rates of a key, of which limits has one for each route, that not all executions are left of.
func (k *keys) ratesOf(key string, limits map[string]policy.Rate) []gateway.KeyRate {
	return k.rates.explain(limits, key, k.of(key).term.Load(), k.now())
}

// heldFor returns for how long, at least, an execution has held its key.
func (k *keys) heldFor(p *partition, token int64, now time.Time) time.Duration {
	return k.slow.heldFor(p.number, token, now)
}

// serving returns how many partitions are open.
func (k *keys) serving() int {
	n := 0
	for i := range k.parts {
		if k.parts[i].open.Load() {
			n++
		}
	}
	return n
}

// close admits nothing more, and cancels what runs.
func (k *keys) close() {
	k.lease.Store(new(handoff.Lease))
	for i := range k.parts {
		p := &k.parts[i]
		p.open.Store(false)
		p.table.Close()
		p.cancelRunning()
		p.announce()
	}
	k.slow.close()
}
