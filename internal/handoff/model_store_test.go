package handoff

import (
	"cmp"
	"fmt"
	"github.com/keyway-go/keyway/internal/records"
	"maps"
	"slices"
	"time"
)

// modelStore does what a store must do, in the plainest way, on a clock that
// its owner passes in.
type modelStore struct {
	ttl        time.Duration
	second     time.Duration // how long the store's second is; 0 keeps its clock out of epochs
	off        storeGuard
	mute       bool   // renewals return the zero snapshot
	life       int    // bumped by a restart, a failover or a flush
	generation string // "" until somebody asks for it in this life
	quarantine time.Duration
	version    int64
	beat       int64
	left       string // the generation of the life before, until a call other than a look ends it
	sessions   []modelSession
	gone       []records.Stamp
	released   []string
	parts      []modelPartition
}

type modelSession struct {
	records.SessionState
	expires time.Duration
	stamp   int64
}

type modelPartition struct {
	record  records.Record
	residue []records.Residue
	moved   int64
	locks   string
	written map[string]string // replaced, never changed
	wrote   records.WriteNumber
	version int64
}

// storeGuard is a rule of the store that a test can switch off.
type storeGuard uint32

const (
	storeClearToken  storeGuard = 1 << iota // Clear compares holder and token
	storeMoveLive                           // a move needs the new owner's session
	storeOlderToken                         // re-asserted residue does not replace a newer token
	storeClaimLive                          // a claim needs the owner to have no session
	storeRefuse                             // a holding is refused if the record went on
	storeEpoch                              // changes compare the record they start from
	storeTombstone                          // a released incarnation cannot register
	storeGeneration                         // calls compare the generation
	storeQuarantine                         // no claims in quarantine
	storeRenewOnly                          // a renewal does not bring a session back
	storeCompare                            // a claim needs the record that it starts from
	storeLocks                              // a move writes the locks with the record
	storeServed                             // a move by who has not served the partition leaves its locks
	storePass                               // the locks of a record that its owner passes on go on
	storeUnopened                           // if that owner has not opened the partition
	storeLocksEnd                           // locks end with their generation
	storeWriteRecord                        // a write of locks needs the record that it names
	storeWriteNumber                        // a write of locks is made once, and none before it after it
)

func newModelStore(partitions int, ttl time.Duration) *modelStore {
	return &modelStore{ttl: ttl, parts: make([]modelPartition, partitions)}
}

func (s *modelStore) on(g storeGuard) bool { return s.off&g == 0 }

func (s *modelStore) clone() *modelStore {
	c := *s
	c.sessions = slices.Clone(s.sessions)
	c.released = slices.Clip(s.released)
	c.gone = slices.Clip(s.gone)
	c.parts = slices.Clone(s.parts)
	return &c // residue lists are replaced, never changed
}

// restart begins another life of the store, with what it has now.
func (s *modelStore) restart() {
	s.life++
	s.left, s.generation = s.generation, ""
	s.parts = slices.Clone(s.parts)
	for p := range s.parts {
		if s.on(storeLocksEnd) {
			s.parts[p].locks = ""
		}
		s.parts[p].written, s.parts[p].wrote = nil, records.WriteNumber{}
	}
}

// expire drops the sessions that were not renewed.
func (s *modelStore) expire(now time.Duration) {
	s.end(func(m modelSession) bool { return now >= m.expires })
}

// end ends sessions, which leave a tombstone.
func (s *modelStore) end(over func(modelSession) bool) {
	for _, m := range s.sessions {
		if over(m) {
			s.version++
			s.gone = append(s.gone, records.Stamp{Incarnation: m.Incarnation, Beat: m.stamp})
		}
	}
	s.sessions = slices.DeleteFunc(s.sessions, over)
}

// renewed is a session that is created or renewed.
func (s *modelStore) renewed(now time.Duration, session records.Session) {
	m := s.session(session.Incarnation)
	if m == nil {
		s.version++
		s.sessions = append(slices.Clip(s.sessions), modelSession{SessionState: records.SessionState{Session: session}})
		m = s.session(session.Incarnation)
	}
	s.beat++
	m.stamp, m.expires = s.beat, now+s.ttl
}

// ended reports whether a session has ended by itself in this generation.
func (s *modelStore) ended(inc string) bool {
	return slices.ContainsFunc(s.gone, func(g records.Stamp) bool { return g.Incarnation == inc })
}

func (s *modelStore) session(inc string) *modelSession {
	i := slices.IndexFunc(s.sessions, func(m modelSession) bool { return m.Incarnation == inc })
	if i < 0 {
		return nil
	}
	return &s.sessions[i]
}

// call carries out one call.
func (s *modelStore) call(now time.Duration, e Effect) Reply {
	if o, ok := e.(Observe); ok && s.unchanged(o) {
		return Reply{ID: o.ID, Snapshot: s.snapshot(now, o)}
	}
	s.left = ""
	before := s.version
	defer s.raise(before)
	s.expire(now)
	switch e := e.(type) {
	case FetchGeneration:
		if s.generation == "" {
			s.generation = fmt.Sprint("g", s.life)
			s.quarantine = now + s.ttl
			s.sessions, s.gone = nil, nil
		}
		return Reply{ID: e.ID, Generation: s.generation}
	case Register:
		states, err := s.register(now, e)
		return Reply{ID: e.ID, Err: err, States: states}
	case Renew:
		r := Reply{ID: e.ID, Err: s.renew(now, e)}
		if r.Err == nil && !s.mute {
			r.Snapshot = s.moment(now, e.Generation)
		}
		return r
	case Observe:
		snap, err := s.observe(now, e)
		return Reply{ID: e.ID, Err: err, Snapshot: snap}
	case Apply:
		states, err := s.apply(now, e)
		return Reply{ID: e.ID, Err: err, States: states}
	case ClearLocks:
		return Reply{ID: e.ID, Err: s.clearLocks(e)}
	case WriteLocks:
		wrote, err := s.writeLocks(e)
		return Reply{ID: e.ID, Err: err, Wrote: wrote}
	case Clear:
		return Reply{ID: e.ID, Err: s.clear(e)}
	case Release:
		s.version++
		s.sessions = slices.DeleteFunc(slices.Clone(s.sessions), func(m modelSession) bool { return m.Incarnation == e.Incarnation })
		if !slices.Contains(s.released, e.Incarnation) {
			s.released = append(slices.Clip(s.released), e.Incarnation)
		}
		return Reply{ID: e.ID}
	}
	panic(fmt.Sprintf("not a call: %T", e))
}

func (s *modelStore) check(generation string) error {
	if generation != s.generation && s.on(storeGeneration) {
		return records.ErrGeneration
	}
	return nil
}

func (s *modelStore) register(now time.Duration, e Register) ([]records.PartitionState, error) {
	if err := s.check(e.Generation); err != nil {
		return nil, err
	}
	if slices.Contains(s.released, e.Session.Incarnation) && s.on(storeTombstone) || s.ended(e.Session.Incarnation) {
		return nil, records.ErrSessionGone
	}
	s.renewed(now, e.Session)
	var states []records.PartitionState
	for _, h := range e.Holdings {
		p := &s.parts[h.Partition]
		r := p.record
		if h.Epoch > 0 && (r.Epoch <= h.Epoch || r.Owner == e.Session.Incarnation || !s.on(storeRefuse)) {
			s.write(now, h.Partition, records.Record{Epoch: max(r.Epoch, h.Epoch) + 1, Owner: e.Session.Incarnation})
		}
		for _, entry := range h.Residue {
			s.addResidue(h.Partition, entry)
		}
		states = append(states, s.state(h.Partition, e.Session.Incarnation))
	}
	return states, nil
}

func (s *modelStore) renew(now time.Duration, e Renew) error {
	if err := s.check(e.Generation); err != nil {
		return err
	}
	if s.session(e.Incarnation) == nil && s.on(storeRenewOnly) {
		return records.ErrSessionGone
	}
	s.renewed(now, records.Session{Incarnation: e.Incarnation})
	return nil
}

func (s *modelStore) observe(now time.Duration, e Observe) (records.Snapshot, error) {
	if err := s.check(e.Generation); err != nil {
		return records.Snapshot{}, err
	}
	return s.snapshot(now, e), nil
}

// unchanged reports whether a look finds the store as its caller knows it, which may be
// that of a life before.
func (s *modelStore) unchanged(e Observe) bool {
	return len(e.Suspects) == 0 && e.Since == s.version && e.Since > 0 && e.Generation == cmp.Or(s.generation, s.left)
}

// moment returns a snapshot without its lists.
func (s *modelStore) moment(now time.Duration, generation string) records.Snapshot {
	return records.Snapshot{Generation: generation, Now: now, Quarantine: max(s.quarantine-now, 0), Version: s.version, Beat: s.beat}
}

func (s *modelStore) snapshot(now time.Duration, e Observe) records.Snapshot {
	snap := s.moment(now, e.Generation)
	snap.Gone, snap.Released = s.gone, s.released
	for _, m := range s.sessions {
		snap.Sessions = append(snap.Sessions, m.SessionState)
		if slices.Contains(e.Suspects, m.Incarnation) {
			snap.Stamps = append(snap.Stamps, records.Stamp{Incarnation: m.Incarnation, Beat: m.stamp})
		}
	}
	for p := range s.parts {
		if s.parts[p].version > e.Since {
			snap.Partitions = append(snap.Partitions, s.state(p, e.Incarnation))
		}
	}
	return snap
}

func (s *modelStore) apply(now time.Duration, e Apply) ([]records.PartitionState, error) {
	if err := s.check(e.Generation); err != nil {
		return nil, err
	}
	if s.session(e.Incarnation) == nil {
		return nil, records.ErrSessionGone
	}
	var states []records.PartitionState
	for _, c := range e.Changes {
		if s.allows(now, e.Incarnation, c) {
			owner := e.Incarnation
			if c.Op == records.OpMove {
				owner = c.To
			}
			s.write(now, c.Partition, records.Record{Epoch: max(c.From.Epoch+1, c.Floor), Owner: owner})
			for _, entry := range c.Residue {
				s.dropResidue(c.Partition, func(r records.Residue) bool { return r.Key == entry.Key })
				s.addResidue(c.Partition, entry)
			}
			if c.Op != records.OpAdvance {
				s.carryLocks(e.Incarnation, c)
			}
		}
		states = append(states, s.state(c.Partition, e.Incarnation))
	}
	return states, nil
}

func (s *modelStore) allows(now time.Duration, caller string, c records.Change) bool {
	record := s.parts[c.Partition].record
	if record != c.From && (s.on(storeEpoch) || record.Owner != c.From.Owner) && (s.on(storeCompare) || c.Op != records.OpClaim) {
		return false
	}
	switch c.Op {
	case records.OpMove:
		return c.From.Owner == caller && (s.session(c.To) != nil || !s.on(storeMoveLive))
	case records.OpAdvance:
		return c.From.Owner == caller
	case records.OpClaim:
		if c.From.Owner == caller {
			return true
		}
		return (now >= s.quarantine || !s.on(storeQuarantine)) && (c.From.Owner == "" || s.session(c.From.Owner) == nil || !s.on(storeClaimLive))
	}
	return false
}

func (s *modelStore) clear(e Clear) error {
	if err := s.check(e.Generation); err != nil {
		return err
	}
	for _, entry := range e.Residue {
		s.dropResidue(e.Partition, func(r records.Residue) bool {
			return r == entry || r.Key == entry.Key && !s.on(storeClearToken)
		})
	}
	return nil
}

func (s *modelStore) carryLocks(caller string, c records.Change) {
	p := &s.parts[c.Partition]
	unopened := c.Served < p.moved
	switch {
	case c.Op == records.OpMove && (!unopened || !s.on(storeServed)):
		p.moved, p.locks = p.record.Epoch, ""
		if s.on(storeLocks) {
			p.locks = c.Locks
		}
	case p.moved == c.From.Epoch && s.on(storePass) && (unopened && c.From.Owner == caller || !s.on(storeUnopened)):
		p.moved = p.record.Epoch
	}
}

func (s *modelStore) clearLocks(e ClearLocks) error {
	if err := s.check(e.Generation); err != nil {
		return err
	}
	for _, m := range e.Moves {
		if s.parts[m.Partition].moved == m.Epoch {
			s.parts[m.Partition].locks = ""
		}
	}
	return nil
}

func (s *modelStore) writeLocks(e WriteLocks) (wrote []records.WriteNumber, err error) {
	if err := s.check(e.Generation); err != nil {
		return nil, err
	}
	if s.session(e.Incarnation) == nil {
		return nil, records.ErrSessionGone
	}
	for _, w := range e.Writes {
		p := &s.parts[w.Partition]
		ours := p.record == records.Record{Epoch: w.Number.Epoch, Owner: e.Incarnation} || !s.on(storeWriteRecord)
		if ours && (p.wrote.Epoch != w.Number.Epoch || p.wrote.Number < w.Number.Number || !s.on(storeWriteNumber)) {
			p.wrote, p.written = w.Number, maps.Clone(p.written)
			for _, l := range w.Locks {
				if delete(p.written, l.ID); l.Text != "" {
					if p.written == nil {
						p.written = make(map[string]string)
					}
					p.written[l.ID] = l.Text
				}
			}
		}
		wrote = append(wrote, p.wrote)
	}
	return wrote, nil
}

func (s *modelStore) write(now time.Duration, p int, r records.Record) {
	if s.second > 0 {
		r.Epoch = max(r.Epoch, int64(now/s.second))
	}
	s.parts[p].record = r
	s.touch(p)
}

func (s *modelStore) addResidue(p int, entry records.Residue) {
	old := s.parts[p].residue
	if i := slices.IndexFunc(old, func(r records.Residue) bool { return r.Key == entry.Key }); i >= 0 {
		if old[i].Token >= entry.Token && s.on(storeOlderToken) {
			return
		}
		s.dropResidue(p, func(r records.Residue) bool { return r.Key == entry.Key })
	}
	s.parts[p].residue = append(slices.Clone(s.parts[p].residue), entry)
	s.touch(p)
}

func (s *modelStore) dropResidue(p int, drop func(records.Residue) bool) {
	old := s.parts[p].residue
	if slices.ContainsFunc(old, drop) {
		s.parts[p].residue = slices.DeleteFunc(slices.Clone(old), drop)
		s.touch(p)
	}
}

// raise makes all that a call has changed of one version.
func (s *modelStore) raise(before int64) {
	s.version = min(s.version, before+1)
	for p := range s.parts {
		s.parts[p].version = min(s.parts[p].version, s.version)
	}
}

// hint is what is hinted when a call has made the store what it is.
func (s *modelStore) hint(before *modelStore) records.Hint {
	h := records.Hint{Generation: s.generation, Version: s.version}
	if s.version != before.version+1 || len(s.sessions) != len(before.sessions) || len(s.gone) != len(before.gone) || len(s.released) != len(before.released) {
		return h
	}
	for p, part := range s.parts {
		switch {
		case part.version != s.version:
		case part.locks != "" || len(part.written) > 0:
			return records.Hint{Generation: s.generation, Version: s.version}
		default:
			h.Partitions = append(h.Partitions, s.state(p, ""))
		}
	}
	return h
}

func (s *modelStore) touch(p int) {
	s.version++
	s.parts[p].version = s.version
}

// state is a partition as it is told to an incarnation.
func (s *modelStore) state(p int, to string) records.PartitionState {
	part := &s.parts[p]
	state := records.PartitionState{Partition: p, Record: part.record, Residue: part.residue, Moved: part.moved}
	if to == part.record.Owner {
		state.Locks = part.locks
		for _, id := range slices.Sorted(maps.Keys(part.written)) {
			state.Written = append(state.Written, records.WrittenLock{ID: id, Text: part.written[id]})
		}
	}
	return state
}
