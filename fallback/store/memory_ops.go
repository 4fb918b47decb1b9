package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/keyway-go/keyway/ring/handoff"
)

// Exists is Store.Exists.
func (m *Memory) Exists(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id = cmp.Or(m.id, m.data.id)
	if m.id == 0 {
		return m.failed("exists", errEmpty)
	}
	return nil
}

// Generation is Store.Generation.
func (m *Memory) Generation(ctx context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.enterLocked(ctx, "generation", ""); err != nil {
		return "", err
	}
	m.newCluster = false
	m.id = m.data.id
	return m.data.generation, nil
}

// Register is Store.Register.
func (m *Memory) Register(ctx context.Context, gen string, s handoff.Session, ttl time.Duration, holdings []handoff.Holding) ([]handoff.PartitionState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, err := m.enterLocked(ctx, "register", gen)
	if err != nil {
		return nil, err
	}
	m.forget(now)
	c := &change{Memory: m, now: now}
	if _, gone := m.data.gone[s.Incarnation]; gone || s.Incarnation == "" || c.released(s.Incarnation) {
		return nil, m.failed("register", handoff.ErrSessionGone)
	}
	c.register(s, ttl)
	for _, h := range holdings {
		c.hold(s.Incarnation, h)
	}
	m.publish()
	return states(holdings, func(h handoff.Holding) handoff.PartitionState { return c.state(h.Partition) }), nil
}

// forget ends tombstones that are old.
func (m *Memory) forget(now time.Time) {
	old := func(_ string, at time.Time) bool { return now.Sub(at) >= tombstone }
	maps.DeleteFunc(m.data.released, old)
	maps.DeleteFunc(m.data.gone, old)
}

func (c *change) register(s handoff.Session, ttl time.Duration) {
	renewals := c.now.UnixMilli()
	if was := c.data.sessions[s.Incarnation]; was != nil {
		renewals = max(renewals, was.state.Renewals+1)
	}
	c.data.sessions[s.Incarnation] = &memorySession{
		state: handoff.SessionState{Session: s, Renewals: renewals},
		until: c.now.Add(ttl),
		joins: c.start(s),
	}
}

// start returns when a session may join the ring.
func (c *change) start(s handoff.Session) time.Time {
	if s.Name == "" {
		return c.now
	}
	maps.DeleteFunc(c.data.starts, func(_ string, s memoryStart) bool { return c.now.Sub(s.at) >= 30*c.settings.TTL })
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

func (c *change) hold(inc string, h handoff.Holding) {
	p := c.partition(h.Partition)
	if h.Epoch > 0 && (p.record.Epoch <= h.Epoch || p.record.Owner == inc) {
		c.own(p, max(p.record.Epoch, h.Epoch)+1, inc)
	}
	for _, r := range h.Residue {
		if i := p.find(r.Key); i < 0 || p.residue[i].Token <= r.Token {
			c.put(p, r)
		}
	}
}

// Renew is Store.Renew.
func (m *Memory) Renew(ctx context.Context, gen, incarnation string, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, err := m.enterLocked(ctx, "renew", gen)
	if err != nil {
		return err
	}
	s := m.data.sessions[incarnation]
	if s == nil {
		return m.failed("renew", handoff.ErrSessionGone)
	}
	s.state.Renewals++
	s.until = now.Add(ttl)
	return nil
}

// Release is Store.Release.
func (m *Memory) Release(ctx context.Context, incarnation string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, err := m.enterLocked(ctx, "release", "")
	if err != nil {
		return err
	}
	if incarnation == "" {
		return nil
	}
	if s := m.data.sessions[incarnation]; s != nil && m.data.starts[s.state.Name].incarnation == incarnation {
		delete(m.data.starts, s.state.Name)
	}
	m.data.released[incarnation] = now
	delete(m.data.sessions, incarnation)
	m.publish()
	return nil
}

// Apply is Store.Apply.
func (m *Memory) Apply(ctx context.Context, gen, incarnation string, changes []handoff.Change) ([]handoff.PartitionState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, err := m.enterLocked(ctx, "apply", gen)
	if err != nil {
		return nil, err
	}
	c := &change{Memory: m, now: now}
	if !c.live(incarnation) {
		return nil, m.failed("apply", handoff.ErrSessionGone)
	}
	for _, ch := range changes {
		c.apply(incarnation, ch)
	}
	return states(changes, func(ch handoff.Change) handoff.PartitionState { return c.state(ch.Partition) }), nil
}

func (c *change) apply(inc string, ch handoff.Change) {
	p := c.partition(ch.Partition)
	if p.record != ch.From || !c.allowed(inc, ch) {
		return
	}
	owner := inc
	if ch.Op == handoff.OpMove {
		owner = ch.To
		for _, r := range ch.Residue {
			c.put(p, r)
		}
	}
	c.own(p, max(ch.From.Epoch+1, ch.Floor), owner)
}

func (c *change) allowed(inc string, ch handoff.Change) bool {
	owner := ch.From.Owner
	switch ch.Op {
	case handoff.OpClaim:
		if owner == inc || owner != "" && c.released(owner) {
			return true
		}
		return !c.data.quarantine.After(c.now) && (owner == "" || !c.live(owner))
	case handoff.OpMove:
		return owner == inc && c.live(ch.To)
	case handoff.OpAdvance:
		return owner == inc
	}
	return false
}

// Clear is Store.Clear.
func (m *Memory) Clear(ctx context.Context, gen string, partition int, residue []handoff.Residue) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, err := m.enterLocked(ctx, "clear", gen)
	if err != nil {
		return err
	}
	c := &change{Memory: m, now: now}
	p := c.partition(partition)
	for _, r := range residue {
		if i := slices.Index(p.residue, r); i >= 0 {
			p.residue = slices.Delete(p.residue, i, i+1)
			c.touch(p)
		}
	}
	return nil
}

// Observe is Store.Observe.
func (m *Memory) Observe(ctx context.Context, gen string, since int64) (handoff.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, err := m.enterLocked(ctx, "observe", gen)
	if err != nil {
		return handoff.Snapshot{}, err
	}
	d := &m.data
	s := handoff.Snapshot{
		Generation: d.generation,
		Now:        time.Duration(now.UnixNano()),
		Quarantine: max(0, d.quarantine.Sub(now)),
		Version:    d.version,
	}
	for _, session := range d.sessions {
		session.state.Wait = max(0, session.joins.Sub(now))
		s.Sessions = append(s.Sessions, session.state)
	}
	slices.SortFunc(s.Sessions, func(a, b handoff.SessionState) int { return cmp.Compare(a.Incarnation, b.Incarnation) })
	for inc, at := range d.released {
		if now.Sub(at) < tombstone {
			s.Released = append(s.Released, inc)
		}
	}
	slices.Sort(s.Released)
	if since < d.floor {
		since = 0
	}
	c := &change{Memory: m, now: now}
	for p, state := range d.partitions {
		if state.version > since {
			s.Partitions = append(s.Partitions, c.state(p))
		}
	}
	slices.SortFunc(s.Partitions, func(a, b handoff.PartitionState) int { return cmp.Compare(a.Partition, b.Partition) })
	return s, nil
}

func states[T any](of []T, state func(T) handoff.PartitionState) []handoff.PartitionState {
	out := make([]handoff.PartitionState, len(of))
	for i, v := range of {
		out[i] = state(v)
	}
	return out
}
