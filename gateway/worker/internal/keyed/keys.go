package keyed

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/appstate"
	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/keytable"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/wake"
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
	// Post passes on that an execution has ended whose partition is given away, that a partition has few tokens
	// left, or that callers wait for one.
	Post(in handoff.Input)
	// Waiting says what must happen before a partition without another known owner is served, and
	// how long that takes; 0 if that is unknown.
	Waiting(partition int, record *records.Record) (wait time.Duration, what string)
}

// Guard may keep executions from beginning.
type Guard interface {
	// Begin returns why an execution of key may not begin, or whether to call End when it has ended.
	Begin(key string) (watched bool, err error)
	End(key string)
}

// Keys are the keys of all partitions at one worker. The ownership shell changes Lease, incarnation
// and Draining; callers change the counters, and each partition has locks of its own.
type Keys struct {
	// Set before the first use.
	Owner Owner
	Guard Guard // asked while Guarded is set

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
	looks       atomic.Bool   // Sweep looks at the keys: some may be held
	began       chan struct{} // wakes Sweep when looks becomes true
	rates       rates
	hot         hot
	unkeyed     Partition // of requests without a key: only its tally is used
	loads       loads
	Counts      Counts
	Guarded     atomic.Bool // the docket sets it while there are suspects

	Confirming func() // called between the two comparisons of confirm; nil but in tests
}

// New returns the keys of closed partitions.
func New(cfg Config) *Keys {
	k := &Keys{cfg: cfg, base: time.Now(), began: make(chan struct{}, 1), Parts: make([]Partition, cfg.Settings.Ring.Partitions)}
	k.queue = &keytable.Queue{PerKey: cfg.QueuePerKey, Total: cfg.Queue, MaxWait: cfg.MaxWait}
	k.hot.queued, k.hot.known = k.Queued, make(map[string]int)
	k.unkeyed.tally.opened.Store(1)
	for i := range k.Parts {
		p := &k.Parts[i]
		p.keys, p.Number, p.Table.Queue = k, i, k.queue
		p.Table.Close()
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

// LooksForSlow reports whether Sweep looks for keys that are held long.
func (k *Keys) LooksForSlow() bool { return k.looks.Load() }

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
}

// sweepStep is the longest time between two looks of Sweep.
const sweepStep = 100 * time.Millisecond

// Sweep cancels executions that exceed their timeout, and those whose clients left AbandonedTimeout ago, and logs keys that
// are held or waited for long, until ctx ends. It looks at all of them from time to time, so that no execution needs a
// timer, and only while a key is held.
func (k *Keys) Sweep(ctx context.Context) {
	slowStep := k.cfg.SlowKey / slowSteps
	tick := time.NewTicker(max(min(k.cfg.Timeout/10, k.cfg.AbandonedTimeout/10, slowStep, sweepStep), time.Millisecond))
	defer tick.Stop()
	var held <-chan time.Time // nil while no key is
	var slowAt time.Time
	for overdue := make(map[*Context]error); ; {
		select {
		case <-ctx.Done():
			return
		case <-k.began:
			held, slowAt = tick.C, time.Now().Add(slowStep)
		case now := <-held:
			for i := range k.Parts {
				k.Parts[i].overdue(now, overdue)
			}
			for c, cause := range overdue {
				c.Cancel(cause)
			}
			clear(overdue)
			if now.Before(slowAt) {
				continue
			}
			slowAt = now.Add(slowStep)
			if !k.lookForSlow(now.Sub(k.base)) {
				held = nil
			}
		}
	}
}

// Token layout: epoch<<sequenceBits | sequence.
const (
	sequenceBits = 20
	// A worker asks for the next epoch when half of the sequence is used, so
	// that it has it long before the rest runs out.
	sequenceLow = 1 << (sequenceBits - 1)
)

// TokenEpoch returns the epoch of the ownership under which a token was minted.
func TokenEpoch(token int64) int64 { return token >> sequenceBits }

// Partition is the request path's side of one partition. The shell, which drives the ownership
// machine, opens and closes it. mu guards the contexts that can be cancelled; Table
// has a lock of its own.
type Partition struct {
	keys   *Keys
	Number int
	Table  keytable.Table
	Open   atomic.Bool                    // what the table is; for those who wait
	Record atomic.Pointer[records.Record] // the last one known; for refused requests
	asked  atomic.Int64                   // the epoch whose successor was asked for
	Term   atomic.Uint64                  // goes up each time the partition is given away

	changed wake.Round            // ends when Open or Record changes
	awaited atomic.Bool           // the shell knows since then that callers wait for that
	Cancels atomic.Uint64         // goes up with each cancellation of running executions
	mu      sync.Mutex            // guards what follows
	live    map[*Context]struct{} // that are waited for, that serve an exchange, or whose answers are streams that continue without their keys

	tally tally
}

// track registers c to be cancelled with the partition's ownership. It reports
// false if that has already happened.
func (p *Partition) track(c *Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Cancels.Load() != c.cancels {
		return false
	}
	if p.live == nil {
		p.live = make(map[*Context]struct{})
	}
	p.live[c] = struct{}{}
	return true
}

// CancelRunning cancels the contexts of all executions admitted so far.
func (p *Partition) CancelRunning() { p.cancel(true) }

// EndStreams ends the streams of a partition that is given away.
func (p *Partition) EndStreams() { p.cancel(false) }

// cancel cancels the contexts of streams, and those of executions if all of them are to end.
func (p *Partition) cancel(all bool) {
	p.mu.Lock()
	if all {
		p.Cancels.Add(1)
	}
	var lost []*Context
	for c := range p.live {
		if all || c.streams.Load() {
			lost = append(lost, c)
			delete(p.live, c)
		}
	}
	p.mu.Unlock()
	for _, c := range lost {
		if c.streams.Load() {
			c.Cancel(appstate.ErrStreamEnds)
		} else {
			c.Cancel(gateway.ErrOwnershipLost)
		}
	}
}

// Unlock ends an execution, and tells the shell if the partition was moved away while it ran.
func (p *Partition) Unlock(key string, token int64) {
	if p.Table.Unlock(key, token) {
		p.keys.Owner.Post(handoff.Finished{Partition: p.Number, Key: key, Token: token})
	}
}

// minted asks for another epoch, once, if the epoch of token has few tokens left.
func (p *Partition) minted(token int64) {
	epoch := TokenEpoch(token)
	if token&(1<<sequenceBits-1) >= sequenceLow && p.asked.Load() != epoch && p.asked.Swap(epoch) != epoch {
		p.keys.Owner.Post(handoff.SequenceLow{Partition: p.Number, Epoch: epoch})
	}
}

// Reserve reserves up to n tokens above those minted: reserved of them, from first on.
func (p *Partition) Reserve(n int) (first int64, reserved int) {
	if first, reserved = p.Table.Reserve(n); reserved > 0 {
		p.minted(first + int64(reserved) - 1)
	}
	return first, reserved
}

// TokensOf returns the first token of an epoch, and the first one above all of it.
func TokensOf(epoch int64) (first, limit int64) {
	return epoch<<sequenceBits + 1, (epoch + 1) << sequenceBits
}

// At returns the time that was d after the worker's start.
func (p *Partition) At(d time.Duration) time.Time { return p.keys.base.Add(d) }

// Worker returns the worker's name.
func (p *Partition) Worker() string { return p.keys.cfg.Name }

// CheckSequence asks for a higher epoch if the table has used up all tokens of the epoch that it
// has just got. Without it no caller would be granted a key, and so no grant would ask.
func (p *Partition) CheckSequence() {
	if last, exhausted := p.Table.Exhausted(); exhausted {
		p.keys.Owner.Post(handoff.SequenceLow{Partition: p.Number, Epoch: TokenEpoch(last)})
	}
}

// Announce wakes the callers of AwaitOpen. It must be called after each change of Open.
func (p *Partition) Announce() {
	p.noteOpen()
	p.awaited.Store(false)
	p.changed.End()
}

// Owner returns the living worker, other than this one, that the partition's record names.
func (p *Partition) Owner() (record *records.Record, m ring.Member, ok bool) {
	record = p.Record.Load()
	if record == nil || record.Owner == "" || record.Owner == p.keys.Incarnation() {
		return record, m, false
	}
	m, ok = p.keys.cfg.View().Find(record.Owner)
	return record, m, ok
}

// Elsewhere returns the error that names the worker that owns key, or says what
// is waited for where none is known to.
func (p *Partition) Elsewhere(key string) error {
	record, m, owned := p.Owner()
	if owned {
		return &gateway.NotOwnerError{Key: key, Partition: p.Number, Worker: m.Name, Addr: m.Addr, Owner: record.Owner, Epoch: record.Epoch}
	}
	err := &gateway.UnownedError{Key: key, Partition: p.Number}
	if record != nil && record.Owner != p.keys.Incarnation() {
		err.Owner, err.Epoch = record.Owner, record.Epoch
	}
	err.Wait, err.WaitsFor = p.keys.Owner.Waiting(p.Number, record)
	return err
}

// overdue adds the contexts of executions that must be cancelled to list, and why.
func (p *Partition) overdue(now time.Time, list map[*Context]error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := now.Sub(p.keys.base)
	for c := range p.live {
		switch {
		case c.streams.Load():
		case c.timeout != 0 && since >= c.began+c.timeout:
			list[c] = gateway.ErrTimeout
		case c.client == nil:
		case c.left != 0 && since-c.left >= p.keys.cfg.AbandonedTimeout:
			list[c] = errAbandoned
		case c.left == 0 && c.client.Err() != nil:
			c.left = since
		}
	}
}

func (p *Partition) sampled(token int64) bool {
	return uint32(token+int64(p.Number))%sampleEvery == 0
}

// Running returns what is known of the execution with that token: whether its client has left, how long it runs and may
// run; 0 for no bound.
func (p *Partition) Running(token int64) (gone bool, ran, limit time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.live {
		if c.token == token && c.outer == nil && !c.streams.Load() {
			return c.left != 0, p.keys.Now() - c.began, c.timeout
		}
	}
	return false, 0, 0
}

// RatesOf returns the rates of a key that are used up in part. limits has the rate of each route.
func (k *Keys) RatesOf(key string, limits map[string]policy.Rate) []status.KeyRate {
	return k.rates.of(key, limits, k.Of(key).Term.Load(), k.Now())
}
