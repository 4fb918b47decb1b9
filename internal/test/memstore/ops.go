package memstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/kept"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

var errEmpty = fmt.Errorf("%w: the store is empty, and active workers of the cluster use another one: give all members of a cluster the same --store or --redis", ring.ErrSettings)

// Generation does as store.Store.Generation does.
func (m *Store) Generation(ctx context.Context, begin bool) (generation string, err error) {
	if !begin && !m.named() {
		return "", fmt.Errorf("store: generation in memory: %w", errEmpty)
	}
	err = m.step(ctx, "generation", "", func(*change) error {
		m.NewCluster = false
		m.id = m.data.id
		generation = m.data.generation
		return nil
	})
	return generation, err
}

// named reports whether the store has an identity, or has had one.
func (m *Store) named() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id != 0 || m.data.id != 0
}

// Register does as store.Store.Register does.
func (m *Store) Register(ctx context.Context, gen string, s records.Session, ttl time.Duration, holdings []records.Holding) (states []records.PartitionState, err error) {
	err = m.step(ctx, "register", gen, func(c *change) error {
		c.forget()
		if _, gone := m.data.gone[s.Incarnation]; gone || s.Incarnation == "" || c.released(s.Incarnation) {
			return records.ErrSessionGone
		}
		c.changedLocked()
		c.register(s, ttl)
		for _, h := range holdings {
			p := c.partition(h.Partition)
			p.Hold(s.Incarnation, h, c.now)
			c.done(p)
		}
		for _, h := range holdings {
			states = append(states, c.state(s.Incarnation, h.Partition))
		}
		return nil
	})
	return states, err
}

// forget ends tombstones that are old.
func (c *change) forget() {
	old := func(_ string, at time.Time) bool { return c.now.Sub(at) >= Tombstone }
	maps.DeleteFunc(c.data.released, old)
	maps.DeleteFunc(c.data.gone, func(inc string, g gone) bool { return old(inc, g.at) })
}

func (c *change) register(s records.Session, ttl time.Duration) {
	c.data.beat++
	c.data.sessions[s.Incarnation] = &session{
		state: records.SessionState{Session: s, Joins: time.Duration(c.start(s).UnixNano())},
		until: c.now.Add(ttl),
		stamp: c.data.beat,
	}
}

// start returns when a session may join the ring.
func (c *change) start(s records.Session) time.Time {
	if s.Name == "" {
		return c.now
	}
	maps.DeleteFunc(c.data.starts, func(_ string, s start) bool { return c.now.Sub(s.at) >= 30*c.settings.TTL })
	last, known := c.data.starts[s.Name]
	if last.incarnation != s.Incarnation || !known {
		if known {
			last.deaths++
		}
		last.incarnation, last.at = s.Incarnation, c.now
	}
	c.data.starts[s.Name] = last
	if last.deaths < 2 {
		return last.at
	}
	return last.at.Add(time.Duration(min(1<<min(last.deaths-2, 4), 10)) * c.settings.TTL)
}

// Renew does as store.Store.Renew does.
func (m *Store) Renew(ctx context.Context, gen, incarnation string, ttl time.Duration) (shows records.Snapshot, err error) {
	err = m.step(ctx, "renew", gen, func(c *change) error {
		s := m.data.sessions[incarnation]
		if s == nil {
			return records.ErrSessionGone
		}
		m.data.beat++
		s.stamp, s.until = m.data.beat, c.now.Add(ttl)
		shows = c.moment()
		return nil
	})
	return shows, err
}

// Release does as store.Store.Release does.
func (m *Store) Release(ctx context.Context, incarnation string) error {
	return m.step(ctx, "release", "", func(c *change) error {
		if incarnation == "" {
			return nil
		}
		if s := m.data.sessions[incarnation]; s != nil && m.data.starts[s.state.Name].incarnation == incarnation {
			delete(m.data.starts, s.state.Name)
		}
		if !c.released(incarnation) {
			m.changedLocked()
		}
		m.data.released[incarnation] = c.now
		delete(m.data.sessions, incarnation)
		delete(m.data.gone, incarnation)
		return nil
	})
}

// Apply does as store.Store.Apply does.
func (m *Store) Apply(ctx context.Context, gen, incarnation string, changes []records.Change) (states []records.PartitionState, err error) {
	err = m.step(ctx, "apply", gen, func(c *change) error {
		if !c.live(incarnation) {
			return records.ErrSessionGone
		}
		for _, ch := range changes {
			if p := c.partition(ch.Partition); p.Record == ch.From && kept.Allows(incarnation, ch, m.data.quarantine.After(c.now), c.live, c.released) {
				p.Apply(incarnation, ch, c.now)
				c.done(p)
			}
		}
		for _, ch := range changes {
			states = append(states, c.state(incarnation, ch.Partition))
		}
		return nil
	})
	return states, err
}

// Clear does as store.Store.Clear does.
func (m *Store) Clear(ctx context.Context, gen string, partition int, residue []records.Residue) error {
	return m.step(ctx, "clear", gen, func(c *change) error {
		p := c.partition(partition)
		p.Clear(residue)
		c.done(p)
		return nil
	})
}

// ClearLocks does as store.Store.ClearLocks does.
func (m *Store) ClearLocks(ctx context.Context, gen string, moves []records.Move) error {
	return m.step(ctx, "clear locks", gen, func(c *change) error {
		for _, move := range moves {
			if p := c.data.partitions[move.Partition]; p != nil {
				p.ClearLocks(move.Epoch)
			}
		}
		return nil
	})
}

// WriteLocks does as store.Store.WriteLocks does.
func (m *Store) WriteLocks(ctx context.Context, gen, incarnation string, writes []records.LockWrite) (wrote []records.WriteNumber, err error) {
	err = m.step(ctx, "write locks", gen, func(c *change) error {
		if !c.live(incarnation) {
			return records.ErrSessionGone
		}
		for _, w := range writes {
			p := c.partition(w.Partition)
			p.Write(incarnation, w)
			wrote = append(wrote, p.Wrote)
		}
		return nil
	})
	return wrote, err
}

// Replace does as store.Store.Replace does.
func (m *Store) Replace(ctx context.Context, note records.Note, from, to string) (now string, err error) {
	err = m.step(ctx, "replace", "", func(c *change) error {
		if c.data.notes[note] == from && from != to {
			c.data.notes[note] = to
			c.changedLocked()
		}
		now = c.data.notes[note]
		return nil
	})
	return now, err
}

// moment returns a snapshot without its lists.
func (c *change) moment() records.Snapshot {
	d := &c.data
	return records.Snapshot{
		Generation: d.generation,
		Now:        time.Duration(c.now.UnixNano()),
		Quarantine: max(0, d.quarantine.Sub(c.now)),
		Version:    d.version,
		Beat:       d.beat,
	}
}

// list returns a snapshot of the sessions and the tombstones, and when the first of these ends.
func (c *change) list() (s records.Snapshot, until time.Time) {
	until = c.now.Add(Tombstone)
	lasts := func(since time.Time) bool {
		end := since.Add(Tombstone)
		if end.After(c.now) && end.Before(until) {
			until = end
		}
		return end.After(c.now)
	}
	s.Version = c.data.version
	for _, session := range c.data.sessions {
		s.Sessions = append(s.Sessions, session.state)
	}
	for inc, g := range c.data.gone {
		if lasts(g.at) {
			s.Gone = append(s.Gone, records.Stamp{Incarnation: inc, Beat: g.stamp})
		}
	}
	for inc, at := range c.data.released {
		if lasts(at) {
			s.Released = append(s.Released, inc)
		}
	}
	slices.SortFunc(s.Sessions, func(a, b records.SessionState) int { return cmp.Compare(a.Incarnation, b.Incarnation) })
	slices.Sort(s.Released)
	return s, until
}

// Observe does as store.Store.Observe does.
func (m *Store) Observe(ctx context.Context, gen, incarnation string, since int64, suspects []string) (s records.Snapshot, err error) {
	err = m.step(ctx, "observe", gen, func(c *change) error {
		d := &m.data
		s = c.moment()
		if d.listed.Version != d.version || !c.now.Before(d.until) {
			d.listed, d.until = c.list()
		}
		s.Sessions, s.Gone, s.Released, s.Notes = d.listed.Sessions, d.listed.Gone, d.listed.Released, d.notes
		for _, inc := range suspects {
			if session := d.sessions[inc]; session != nil {
				s.Stamps = append(s.Stamps, records.Stamp{Incarnation: inc, Beat: session.stamp})
			}
		}
		if since < d.floor {
			since = 0
		}
		if since == d.version {
			return nil
		}
		var changed []int
		for p, state := range d.partitions {
			if state.version > since {
				changed = append(changed, p)
			}
		}
		slices.Sort(changed)
		s.Partitions = make([]records.PartitionState, len(changed))
		for i, p := range changed {
			s.Partitions[i] = c.state(incarnation, p)
		}
		return nil
	})
	return s, err
}
