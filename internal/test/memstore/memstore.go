// Package memstore is a store for tests, in the memory of one process: it means the same
// as that of package store, without a Redis.
package memstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/kept"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

// Tombstone is how long a tombstone is kept.
const Tombstone = time.Hour

// Config configures a Store. The zero value is useful.
type Config struct {
	Settings   ring.Settings    // as in store.Config; the same for all who share the store
	NewCluster bool             // as in store.Config
	Clock      func() time.Time // default: time.Now
}

// Store is a store within one process, which several workers may share.
// It means the same as store.Store.
type Store struct {
	settings ring.Settings
	now      func() time.Time

	mu         sync.Mutex   // guards everything below
	NewCluster bool         // Config.NewCluster, until the first generation is known
	server     int          // stands for a run id
	id         ring.StoreID // the store's identity, once somebody has asked for it
	data       data
	watchers   map[chan records.Hint]struct{}
}

// data is the part of a Store that a restart may lose.
type data struct {
	generation string
	id         ring.StoreID
	server     int // the generation's
	version    int64
	beat       int64
	floor      int64     // version at which the generation began
	quarantine time.Time // its end
	partitions map[int]*partition
	sessions   map[string]*session
	released   map[string]time.Time
	gone       map[string]gone // sessions that ran out in this generation
	starts     map[string]start
	notes      records.Notes
	lost       bool             // a part of it, since the generation began
	listed     records.Snapshot // the lists of sessions and tombstones as of its Version,
	until      time.Time        // when the first of these tombstones ends
	clock      time.Time        // the latest
	lag        time.Duration    // by how much the clock was set back
}

type partition struct {
	kept.Partition
	version int64 // of the last change
}

type session struct {
	state records.SessionState
	until time.Time
	stamp int64
}

type gone struct {
	stamp int64
	at    time.Time
}

// start is the latest incarnation of a name.
type start struct {
	incarnation string
	deaths      int // of those before it, in a row
	at          time.Time
}

// New makes an empty store.
func New(cfg Config) *Store {
	m := &Store{
		settings:   cfg.Settings.WithDefaults(),
		id:         cfg.Settings.Store,
		now:        cfg.Clock,
		NewCluster: cfg.NewCluster,
		data:       newData(),
		watchers:   map[chan records.Hint]struct{}{},
	}
	if m.now == nil {
		m.now = time.Now
	}
	return m
}

func newData() data {
	return data{
		partitions: map[int]*partition{},
		sessions:   map[string]*session{},
		released:   map[string]time.Time{},
		gone:       map[string]gone{},
		starts:     map[string]start{},
	}
}

// Restart begins another server process with all data.
func (m *Store) Restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.server++
	m.publishLocked(records.Hint{})
}

// Lose begins another server process without data.
func (m *Store) Lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.server++
	m.data = newData()
	m.publishLocked(records.Hint{})
}

// Keys are the names that LoseKey takes.
func Keys() []string {
	return []string{"partitions", "locks", "written", "writes", "sessions", "released", "gone", "starts"}
}

// LoseKey deletes the data that a store in Redis keeps under a key, as an eviction does.
func (m *Store) LoseKey(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := &m.data
	map[string]func(){
		"partitions": func() { clear(d.partitions) },
		"locks":      d.clearLocks,
		"written":    d.clearLocks,
		"writes":     d.clearLocks,
		"sessions":   func() { clear(d.sessions) },
		"released":   func() { clear(d.released) },
		"gone":       func() { clear(d.gone) },
		"starts":     func() { clear(d.starts) },
	}[key]()
	d.lost = true
}

func (d *data) clearLocks() {
	for _, p := range d.partitions {
		p.Locks, p.Written, p.Wrote = "", nil, records.WriteNumber{}
	}
}

// Settings returns the settings that the store was made with, with their
// defaults filled in, and the store's identity so far as it is known.
func (m *Store) Settings() ring.Settings {
	m.mu.Lock()
	defer m.mu.Unlock()
	settings := m.settings
	settings.Store = m.id
	return settings
}

// Close does nothing: others may still use the store.
func (m *Store) Close() error { return nil }

// Watch returns hints as store.Store.Watch does.
func (m *Store) Watch(ctx context.Context) <-chan records.Hint {
	hints := make(chan records.Hint, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers[hints] = struct{}{}
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, hints)
		close(hints)
	})
	return hints
}

// changedLocked begins another version.
func (m *Store) changedLocked() {
	m.data.version++
	m.publishLocked(records.Hint{})
}

func (m *Store) publishLocked(h records.Hint) {
	for hints := range m.watchers {
		h.Pass(hints)
	}
}

// step carries out f at one moment, after what prelude.lua does before each
// script.
func (m *Store) step(ctx context.Context, op, gen string, f func(*change) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, err := m.enterLocked(ctx, gen)
	if err == nil {
		c := &change{Store: m, now: now, before: m.data.version}
		err = f(c)
		c.hint()
	}
	if err != nil {
		return fmt.Errorf("store: %s in memory: %w", op, err)
	}
	return nil
}

// enterLocked finds out whether a generation or a session has ended.
func (m *Store) enterLocked(ctx context.Context, gen string) (now time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return now, err
	}
	d := &m.data
	now = m.now().Add(d.lag)
	if now.Before(d.clock) {
		d.lag += d.clock.Sub(now)
		now = d.clock
	}
	d.clock = now
	if d.generation == "" || d.server != m.server || d.lost {
		m.beginLocked(now)
	}
	if gen != "" && gen != d.generation {
		return now, records.ErrGeneration
	}
	for inc, s := range d.sessions {
		if !s.until.After(now) {
			delete(d.sessions, inc)
			d.gone[inc] = gone{s.stamp, now}
			m.changedLocked()
		}
	}
	return now, nil
}

// beginLocked starts a generation.
func (m *Store) beginLocked(now time.Time) {
	d := &m.data
	d.quarantine = now.Add(m.settings.TTL)
	if m.NewCluster && d.generation == "" {
		d.quarantine = now
	}
	d.generation = rand.Text()
	d.id = cmp.Or(d.id, m.id, newID())
	d.server = m.server
	d.version = max(d.version+1, now.UnixMicro())
	d.floor = d.version
	d.lost = false
	d.clearLocks()
	clear(d.sessions)
	clear(d.gone)
	m.publishLocked(records.Hint{})
}

// change is one atomic step; what it touches gets one new version.
type change struct {
	*Store
	now     time.Time
	before  int64 // the version
	touched []*partition
}

func (c *change) partition(p int) *partition {
	state := c.data.partitions[p]
	if state == nil {
		state = &partition{Partition: kept.Partition{PartitionState: records.PartitionState{Partition: p}}}
		c.data.partitions[p] = state
	}
	return state
}

// done gives a partition that has changed the version of the step.
func (c *change) done(p *partition) {
	if !p.Changed {
		return
	}
	if len(c.touched) == 0 {
		c.data.version++
	}
	c.touched = append(c.touched, p)
	p.Changed, p.version = false, c.data.version
}

// hint says which partitions have changed: what of them, if that is all and they have no locks.
func (c *change) hint() {
	h := records.Hint{Generation: c.data.generation, Version: c.data.version}
	for _, p := range c.touched {
		h.Partitions = append(h.Partitions, c.state("", p.Partition.Partition))
	}
	locked := func(p *partition) bool { return p.Locks != "" || len(p.Written) > 0 }
	if h.Version != c.before+1 || slices.ContainsFunc(c.touched, locked) {
		h.Partitions = nil
	}
	if len(c.touched) > 0 {
		c.publishLocked(h)
	}
}

// state is what an incarnation is told of a partition: of its locks only the owner.
func (c *change) state(inc string, p int) records.PartitionState {
	s := records.PartitionState{Partition: p}
	if state := c.data.partitions[p]; state != nil {
		s = state.Told(inc)
		s.Residue, s.Written = slices.Clone(s.Residue), slices.Clone(s.Written)
	}
	return s
}

func (c *change) live(inc string) bool { return c.data.sessions[inc] != nil }

func (c *change) released(inc string) bool {
	_, ok := c.data.released[inc]
	return ok
}

func newID() ring.StoreID { return ring.NewStoreID(time.Now(), mathrand.Uint32()) }
