// Package locks holds keys for callers elsewhere, as they ask by calls over the link. A machine per partition, of package
// remote, decides what becomes of each lock.
//
// Files, from the outside inwards:
//
//	calls.go     the calls, with their waits for keys and for the store
//	operator.go  who has a key, and what an operator may do
//	locks.go     the machines, and what is around them
package locks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/gateway/worker/internal/remote"
	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// Config configures [Locks].
type Config struct {
	Name     string // the worker's
	Settings ring.Settings
	Keys     *keyed.Keys
	Logger   *slog.Logger
	Log      *slog.Logger // for what clients can bring about

	MaxHolds int // and the following as in the worker's Config
	MaxLease time.Duration
	MaxWait  time.Duration
	OnHold   func(id string) error

	// NotesLives says that the worker's incarnations are written down: without OnHold nothing is promised.
	NotesLives bool
	// Trace returns the trace of the lock that r asks for, nil for none.
	Trace func(r *link.ServerRequest) keyed.Trace
	// Refused counts a call that was not admitted. It returns the refusal that the caller can act
	// on, or nil if the caller can only read the error, and the error's status.
	Refused func(ctx context.Context, err error) (refusal *link.RefusedError, status int)
}

// Locks are the keys that this worker holds for callers in other processes, of all partitions. Each
// lockTable has a mutex of its own, and a timer that expires its locks.
type Locks struct {
	cfg    Config
	tables []lockTable  // by the partitions' numbers
	Count  atomic.Int64 // locks, and calls that wait for one: at most Limits.MaxHolds
	Held   atomic.Int64 // locks
	Kept   atomic.Int64 // held locks that the store keeps
	Events [remote.Events]atomic.Int64
	Waits  metrics.Latencies // of the calls that got their keys
	closed atomic.Bool

	noting singleflight.Group // calls of note
	noted  atomic.Value       // the incarnation, a string, that Config.OnHold was called with last
}

// New returns no locks, in all partitions.
func New(cfg Config) *Locks {
	ls := &Locks{cfg: cfg, tables: make([]lockTable, len(cfg.Keys.Parts))}
	for i := range ls.tables {
		t := &ls.tables[i]
		t.locks, t.part, t.machine = ls, &cfg.Keys.Parts[i], remote.Machine{Host: t, TTL: cfg.Settings.TTL}
	}
	return ls
}

func (ls *Locks) of(p *keyed.Partition) *lockTable { return &ls.tables[p.Number] }

// lockTable is the locks of one partition, and the Host of their machine. Calls, sweeps and the
// ownership shell change it under mu; locks wait, are held and end as the machine decides.
type lockTable struct {
	locks *Locks
	part  *keyed.Partition

	mu      sync.Mutex    // guards what follows; locked before the partition's keytable.Table is
	timer   *time.Timer   // of tick; nil before the first lock
	fires   time.Duration // when it does, since the worker's start; 0 for not at all
	ticked  time.Duration // when it did last
	machine remote.Machine
	waits   map[*remote.Lock]*lockWait
	traces  map[*remote.Lock]keyed.Trace // of the locks that have a trace
	counted lockTally                    // in the worker's counts
}

type lockTally struct{ all, held, written int }

// lockWait is the wait for a lock's key, or for what the store is asked of the lock.
type lockWait struct {
	giveUp  func()        // ends the wait for a key
	made    bool          // the store has done it; set before settled is closed
	settled chan struct{} // closed when the wait is over
}

// await waits for the store, and reports whether it has done what it was asked.
func (w *lockWait) await(ctx context.Context) bool {
	select {
	case <-w.settled:
		return w.made
	case <-ctx.Done():
		return false
	}
}

// lock locks the table for an input to its machine. The worker's lease, where it matters, is read before.
func (t *lockTable) lock() remote.Instant {
	t.mu.Lock()
	return remote.Instant{Now: t.locks.cfg.Keys.Now(), Cancels: t.part.Cancels.Load()}
}

// unlock unlocks the table when the worker's counts and its timer know what has changed.
func (t *lockTable) unlock() {
	defer t.mu.Unlock()
	ls := t.locks
	held, waits, written := t.machine.Len()
	if tally := (lockTally{held + waits, held, written}); tally != t.counted {
		ls.Count.Add(int64(tally.all - t.counted.all))
		ls.Held.Add(int64(tally.held - t.counted.held))
		ls.Kept.Add(int64(tally.written - t.counted.written))
		t.counted = tally
	}
	next := t.machine.Next()
	at := max(next, t.ticked+ls.cfg.Settings.TTL/tickPause)
	if next == 0 || t.fires != 0 && t.fires <= at || ls.closed.Load() {
		return
	}
	t.fires = at
	if wait := at - ls.cfg.Keys.Now(); t.timer == nil {
		t.timer = time.AfterFunc(wait, t.tick)
	} else {
		t.timer.Reset(wait)
	}
}

const tickPause = 1000 // of the TTL, at least, between two ticks of a table

// tick ends locks whose leases are over, some at a time.
func (t *lockTable) tick() {
	for due := true; due; {
		at := t.lock()
		t.fires, t.ticked = 0, at.Now
		if due = !t.locks.closed.Load(); due {
			t.machine.Tick(at)
			next := t.machine.Next()
			due = next != 0 && next <= at.Now
		}
		t.unlock()
	}
}

// Stop ends all waits, and expires no more locks. The locks of a worker that is closed end with its
// session, which expires by itself, later than what was promised.
func (ls *Locks) Stop() {
	ls.closed.Store(true)
	for i := range ls.tables {
		t := &ls.tables[i]
		t.mu.Lock()
		if t.timer != nil {
			t.timer.Stop()
		}
		for _, wait := range t.waits {
			if wait.giveUp != nil {
				wait.giveUp()
			}
		}
		t.mu.Unlock()
	}
}

// do gives the table's machine one input.
func (t *lockTable) do(input func(m *remote.Machine, at remote.Instant)) {
	at := t.lock()
	defer t.unlock()
	input(&t.machine, at)
}

// waitFor returns the wait for a lock, a new one if there is none; nil if l is nil.
func (t *lockTable) waitFor(l *remote.Lock) *lockWait {
	if l == nil {
		return nil
	}
	if t.waits == nil {
		t.waits = make(map[*remote.Lock]*lockWait)
	}
	if t.waits[l] == nil {
		t.waits[l] = &lockWait{settled: make(chan struct{})}
	}
	return t.waits[l]
}

// The methods up to Tell implement [remote.Host]. The shell learns through LocksEnded, not through
// Unlock, that the locks listed by a Close have ended.

func (t *lockTable) Valid(key string) bool         { return keysource.Check(key) == nil }
func (t *lockTable) Holder(key string) int64       { return t.part.Table.Inspect(key).Token }
func (t *lockTable) Share(key string, token int64) { t.part.Table.Share(key, token) }
func (t *lockTable) SetRemote(key string, token int64) bool {
	return t.part.Table.SetRemote(key, token)
}
func (t *lockTable) Unlock(key string, token int64) { t.part.Table.Unlock(key, token) }
func (t *lockTable) EndWait(l *remote.Lock)         { t.waits[l].giveUp() }
func (t *lockTable) Ended()                         { t.post(handoff.LocksEnded{Partition: t.part.Number}) }
func (t *lockTable) Write(list ...records.WrittenLock) {
	t.post(handoff.Write{Partition: t.part.Number, Locks: list})
}
func (t *lockTable) post(in handoff.Input) { t.locks.cfg.Keys.Owner.Post(in) }

func (t *lockTable) Install(key string, token int64, shared bool) bool {
	return t.part.Table.Install(key, token, shared)
}

func (t *lockTable) Settle(l *remote.Lock, made bool) {
	if w := t.waits[l]; w != nil {
		w.made = made
		close(w.settled)
		delete(t.waits, l)
	}
}

var lockMessages = [remote.Events]string{
	remote.Granted:  "a key is held for another member",
	remote.Renewed:  "a key goes on being held for another member",
	remote.Released: "a key is held for another member no more: it was released",
	remote.MovedIn:  "a key that another member holds has come with its partition",
	remote.MovedOut: "a key that another member holds has gone with its partition",
	remote.Expired:  "a key was held for another member that has not been heard of for the time of its lease: it is free again",
	remote.Lost:     "a key that another member holds is lost to it: its partition was served by others, or the session of this worker was lost",
	remote.Forced:   "", // forceLocks has logged it, with the operator
}

// lockEnds says with what spans of locks fail.
var lockEnds = [remote.Events]string{remote.Expired: "expired", remote.Lost: "ownership-lost"}

// Tell counts an event of a lock, and logs it: above the level debug if the holder has not
// brought it about.
func (t *lockTable) Tell(l *remote.Lock, event remote.Event) {
	t.locks.Events[event].Add(1)
	level := slog.LevelDebug
	if event == remote.Expired || event == remote.Lost {
		level = slog.LevelWarn
	}
	if event != remote.Granted && event != remote.Renewed && t.traces[l] != nil {
		t.traces[l].End(lockEnds[event])
		delete(t.traces, l)
	}
	if message := lockMessages[event]; message != "" && t.locks.cfg.Log.Enabled(context.Background(), level) {
		t.locks.cfg.Log.Log(context.Background(), level, message, "key", l.Key, "token", l.Token, "label", l.Label, "from", l.From)
	}
}

// refusalOf says of a key what the machine of its partition's locks has refused.
func (t *lockTable) refusalOf(err error, key string) error {
	p := t.part
	switch err {
	case remote.ErrElsewhere:
		return p.Elsewhere(key)
	case remote.ErrEnded:
		return fmt.Errorf("%w: the lock of key %q has ended", gateway.ErrUnavailable, key)
	case remote.ErrNotHeld:
		return fmt.Errorf("%w: %q", err, key)
	case remote.ErrNoSession:
		return fmt.Errorf("%w: the session of worker %s is over", gateway.ErrUnavailable, t.locks.cfg.Name)
	case remote.ErrFull:
		held, _, _ := t.machine.Len()
		return fmt.Errorf("%w: other members hold %d keys of partition %d, the most that can move with it", gateway.ErrBusy, held, p.Number)
	}
	return err
}

// Close closes the partition's table, freezes its locks and lists the running executions, all at
// one moment. A key that has been won but is no lock so far counts as running.
func (ls *Locks) Close(partition int) handoff.Closed {
	t := &ls.tables[partition]
	p := t.part
	at := t.lock()
	defer t.unlock()
	closed := handoff.Closed{Partition: p.Number}
	for _, h := range p.Table.Close() {
		if !h.Remote {
			closed.Running = append(closed.Running, handoff.Execution{Key: h.Key, Token: h.Token})
		}
	}
	closed.Locks, closed.Frozen = t.machine.Close(at)
	return closed
}

// Open opens the partition's table, with the locks that come along.
func (ls *Locks) Open(e handoff.OpenTable) {
	t := &ls.tables[e.Partition]
	p := t.part
	at := t.lock()
	defer t.unlock()
	if err := t.machine.Open(at, e); err != nil {
		t.locks.cfg.Logger.Error("cannot read which keys other members hold in a partition: its former owner is of another version", "partition", p.Number, "error", err)
	}
	var blocked []string
	for _, r := range e.Blocked {
		blocked = append(blocked, r.Key)
	}
	first, limit := keyed.TokensOf(e.Epoch)
	p.Table.Open(first, limit, blocked)
}

// Drop implements [Locks].
func (ls *Locks) Drop(partition int) {
	ls.tables[partition].do(func(m *remote.Machine, _ remote.Instant) { m.Drop() })
}

// Written implements [Locks].
func (ls *Locks) Written(partition int, locks []records.WrittenLock) {
	ls.tables[partition].do(func(m *remote.Machine, _ remote.Instant) { m.Stored(locks) })
}

// WriteAgain implements [Locks].
func (ls *Locks) WriteAgain() {
	for i := range ls.tables {
		ls.tables[i].do(func(m *remote.Machine, _ remote.Instant) { m.WriteAgain() })
	}
}

// Lingers reports whether there are locks in a partition that is not served, or of a life before.
func (ls *Locks) Lingers(partition int) (lingers bool) {
	ls.tables[partition].do(func(m *remote.Machine, _ remote.Instant) { lingers = m.Lingers() })
	return lingers
}

// Waiting returns how many calls wait for their keys.
func (ls *Locks) Waiting() int64 {
	held := ls.Held.Load() // before those that wait meanwhile
	return max(ls.Count.Load()-held, 0)
}

// promise returns how much longer this worker can vouch for the locks that their machine then
// continues.
func (ls *Locks) promise() holder.Promise {
	cancel, surrender := ls.cfg.Keys.Left()
	return holder.Promise{Cancel: cancel, Surrender: surrender}
}

// noteFirstHold has Config.OnHold called for the incarnation, once, and waits for that until ctx ends. Another
// incarnation may begin meanwhile. The balancer's lock is exempt: each cluster has it, and a second balancer does no harm.
func (ls *Locks) noteFirstHold(ctx context.Context, key string) error {
	for key != placement.Lock && ls.cfg.Keys.Incarnation() != ls.noted.Load() {
		select {
		case noted := <-ls.noting.DoChan("", ls.note):
			if noted.Err != nil {
				return noted.Err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// note runs once at a time.
func (ls *Locks) note() (any, error) {
	id := ls.cfg.Keys.Incarnation()
	switch {
	case id == ls.noted.Load():
		return nil, nil
	case ls.cfg.OnHold != nil:
		if err := ls.cfg.OnHold(id); err != nil {
			return nil, fmt.Errorf("%w: saving that other members hold keys: %w", gateway.ErrUnavailable, err)
		}
	case ls.cfg.NotesLives:
		return nil, errors.New("worker: no keys are held for other members: set Config.OnHold, since Config.OnIncarnation is set")
	}
	ls.noted.Store(id)
	return nil, nil
}
