package handoff

import (
	"cmp"
	"encoding/binary"
	"github.com/keyway-go/keyway/internal/records"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"
)

// fingerprinter writes down a world so that two worlds that behave alike are
// written alike: times are relative to now and epochs to the store's, and what
// has passed long ago has merely passed.
type fingerprinter struct {
	w   *world
	buf []byte
	p   *proc // whose clocks count

	partitions []int    // of a map, in order
	names      []string // likewise
}

var fingerprintSeed = maphash.MakeSeed()

// fingerprint identifies a world among all that a search meets. The budget of
// what may still go wrong is part of it only if asked.
func (w *world) fingerprint(f *fingerprinter, budget bool) uint64 {
	f.w, f.buf = w, f.buf[:0]
	if budget {
		for _, n := range w.left {
			f.int(n)
		}
		f.int(w.faults)
		f.int(w.starts)
		if w.sc.until > 0 {
			f.span(w.stop-w.now, 0)
		}
	}
	f.int(w.ring)
	f.bools(w.calm)
	f.store(w.store)
	f.int(len(w.past))
	for _, s := range w.past {
		f.store(s)
	}
	for k, t := range w.last {
		f.token(w.sc.keys[k], t)
	}
	for p, e := range w.served {
		f.epoch(p, e)
	}
	if w.sc.locks() {
		for k, b := range w.held {
			f.token(w.sc.keys[k], b.token)
			f.span(b.until-w.now, 0)
		}
	}
	for _, p := range w.procs {
		f.proc(p)
	}
	f.hints()
	f.messages()
	return maphash.Bytes(fingerprintSeed, f.buf)
}

// sortedKeys returns the keys of a map in order, in place of those in buf.
func sortedKeys[K cmp.Ordered, V any](buf []K, m map[K]V) []K {
	buf = slices.AppendSeq(buf[:0], maps.Keys(m))
	slices.Sort(buf)
	return buf
}

func (f *fingerprinter) int(n int)       { f.buf = binary.AppendVarint(f.buf, int64(n)) }
func (f *fingerprinter) string(s string) { f.buf = append(append(f.buf, s...), 0) }
func (f *fingerprinter) bools(bs ...bool) {
	for _, b := range bs {
		c := byte(0)
		if b {
			c = 1
		}
		f.buf = append(f.buf, c)
	}
}

// span writes a time from now on, no earlier than floor.
func (f *fingerprinter) span(d, floor time.Duration) {
	f.buf = binary.AppendVarint(f.buf, int64(max(d, floor)))
}

// mono writes an instant of a machine's monotonic clock.
func (f *fingerprinter) mono(at, floor time.Duration) {
	f.span(at-f.w.instant(f.p).Mono, floor)
}

func (f *fingerprinter) epoch(p int, e int64) {
	if e == 0 {
		f.buf = append(f.buf, 255)
		return
	}
	f.buf = binary.AppendVarint(f.buf, max(e-f.w.store.parts[p].record.Epoch, -6))
}

func (f *fingerprinter) token(p int, t int64) {
	f.epoch(p, t>>20)
	f.int(int(t & (1<<20 - 1)))
}

func (f *fingerprinter) record(p int, r records.Record) {
	f.epoch(p, r.Epoch)
	f.string(r.Owner)
}

func (f *fingerprinter) residue(p int, rs []records.Residue) {
	f.int(len(rs))
	if len(rs) > 1 {
		rs = slices.Clone(rs)
		slices.SortFunc(rs, func(a, b records.Residue) int { return strings.Compare(a.Key, b.Key) })
	}
	for _, r := range rs {
		f.string(r.Key)
		f.string(r.Holder)
		f.token(p, r.Token)
	}
}

func (f *fingerprinter) residues(m map[int][]records.Residue) {
	f.partitions = sortedKeys(f.partitions, m)
	for _, p := range f.partitions {
		f.int(p)
		f.residue(p, m[p])
	}
	f.int(-1)
}

// locks writes a list of locks, and what move brought it.
func (f *fingerprinter) locks(p int, moved int64, list string) {
	if !f.w.sc.locks() {
		return
	}
	f.epoch(p, moved)
	f.lockList(p, listedLocks(list), 0)
}

func (f *fingerprinter) lockList(p int, list []lock, now time.Duration) {
	f.int(len(list))
	for _, l := range list {
		f.int(l.key)
		f.token(p, l.token)
		f.span(l.ends-now, 0)
		f.bools(l.frozen, l.renewable, l.pending, l.written, l.ending)
		if l.pending {
			f.span(l.asked-f.w.now, -2*f.w.store.ttl)
		}
	}
}

func (f *fingerprinter) written(p int, written map[string]string, wrote records.WriteNumber) {
	if !f.w.sc.long {
		return
	}
	f.number(p, wrote)
	for _, id := range slices.Sorted(maps.Keys(written)) {
		f.string(id)
	}
	f.int(len(written))
}

func (f *fingerprinter) writtenList(locks []records.WrittenLock) {
	for _, l := range locks {
		f.string(l.ID)
		f.bools(l.Text == "")
	}
	f.int(len(locks))
}

func (f *fingerprinter) writes(list []records.LockWrite) {
	for _, w := range list {
		f.int(w.Partition)
		f.number(w.Partition, w.Number)
		f.writtenList(w.Locks)
	}
	f.int(len(list))
}

// number writes the number of a write, less the one that the owner's next write has.
func (f *fingerprinter) number(p int, n records.WriteNumber) {
	f.epoch(p, n.Epoch)
	if n == (records.WriteNumber{}) {
		return
	}
	owner := f.w.store.parts[p].record.Owner
	for _, q := range f.w.procs {
		if q.up && q.m.me() == owner {
			f.int(int(q.m.number - n.Number))
			return
		}
	}
	f.int(int(n.Number))
}

func (f *fingerprinter) generation(g string) {
	f.bools(g == f.w.store.generation, g == f.w.store.left, g == "")
}

func (f *fingerprinter) store(s *modelStore) {
	now := f.w.now + f.w.skew
	f.bools(s.generation == "", s.left == "")
	f.span(s.quarantine-now, 0)
	for _, m := range s.sessions {
		f.string(m.Incarnation)
		f.span(m.expires-now, 0)
	}
	f.int(len(s.sessions))
	for _, g := range s.gone {
		f.string(g.Incarnation)
	}
	f.int(len(s.gone))
	for _, r := range s.released {
		f.string(r)
	}
	f.int(len(s.released))
	for p := range s.parts {
		f.record(p, s.parts[p].record)
		f.residue(p, s.parts[p].residue)
		f.locks(p, s.parts[p].moved, s.parts[p].locks)
		f.written(p, s.parts[p].written, s.parts[p].wrote)
		if s.second > 0 && s == f.w.store {
			f.buf = binary.AppendVarint(f.buf, min(max(int64(now/s.second)-s.parts[p].record.Epoch, -4), 4))
		}
	}
}

func (f *fingerprinter) proc(p *proc) {
	f.p = p
	f.int(p.life)
	f.bools(p.up, p.noticed, p.leaving, p.lost, p.done, p.paused >= 0, p.resumed, p.blind)
	if !p.up {
		return
	}
	if p.paused >= 0 {
		f.span(p.paused-f.w.now, -f.w.store.ttl)
	}
	f.span(p.surrender-f.w.now, 0)
	f.int(f.w.rate(p).phase(f.w.now))
	f.gossip(p)
	for i, t := range p.tables {
		f.bools(t.open, t.closing)
		if t.open {
			f.epoch(i, t.epoch)
			f.int(int(t.seq))
			f.int(len(t.blocked))
			for _, k := range t.blocked {
				f.string(k)
			}
		}
	}
	f.int(len(p.execs))
	for _, e := range p.execs {
		f.int(e.key)
		f.token(f.w.sc.keys[e.key], e.token)
		f.bools(e.running, e.listed, e.cancelled, e.void, e.confirmed, e.cancels == p.cancels[f.w.sc.keys[e.key]])
		if e.cancelled {
			f.span(e.endBy-f.w.now, 0)
		}
	}
	for i := range p.tables {
		var list []lock
		for _, l := range p.locks {
			if f.w.sc.keys[l.key] == i {
				list = append(list, l)
			}
		}
		f.lockList(i, list, f.w.instant(p).Mono)
	}
	f.bools(p.lease == p.m.lease, p.promised && f.w.sc.proof)
	for _, m := range p.lives() {
		f.string(m.me())
		f.machine(m)
	}
	f.epoch(0, p.highest)
}

func (f *fingerprinter) gossip(p *proc) {
	f.int(p.seen.ring)
	for i := range p.seen.lives {
		f.int(int(p.seen.lives[i]))
		f.buf = binary.AppendUvarint(f.buf, p.seen.views[i])
	}
}

func (f *fingerprinter) machine(m *Machine) {
	f.int(int(m.phase))
	f.generation(m.generation)
	f.generation(m.snapshot.Generation)
	f.bools(m.first, m.cancelled, m.leaving, m.leaveBy, m.observed, m.again, m.failed, m.jumped, m.recheck, m.snapshot.Quarantine > 0)
	f.mono(m.quarantine, 0)
	if m.lease != (Lease{}) {
		f.mono(m.lease.Surrender.Mono, 0)
		f.span(m.lease.Surrender.Wall-f.w.instant(f.p).Wall, 0)
	}
	f.mono(m.doneAt, 0)
	f.mono(m.settled, 0)
	f.mono(m.scanAt, 0)
	for _, c := range []*storeCall{&m.fetch, &m.register, &m.renew, &m.observe, &m.apply, &m.clear, &m.clearLocks, &m.release, &m.releasePeer} {
		f.bools(c.id != 0)
		f.mono(c.next, 0)
		if c.id != 0 {
			f.mono(c.sent.Mono, -m.cfg.TTL)
			f.span(c.sent.Wall-f.w.instant(f.p).Wall, -m.cfg.TTL)
		}
	}
	f.jump(m)
	if m.failed {
		f.mono(m.observe.sent.Mono, -m.cfg.TTL)
	}
	for _, r := range m.snapshot.Released {
		f.string(r)
	}
	f.string(m.deadPeer)
	f.partitions = sortedKeys(f.partitions, m.fresh)
	for _, p := range f.partitions {
		f.int(p)
	}
	f.int(-1)
	f.peers(m)
	for p := range m.parts {
		f.part(m, p)
	}
	f.int(len(m.changes))
	for _, c := range m.changes {
		f.change(c)
	}
	f.residues(m.running)
	f.residues(m.inherited)
	f.int(m.sent)
	f.int(len(m.clears))
	for _, c := range m.clears {
		f.int(c.partition)
		f.residue(c.partition, []records.Residue{c.residue})
	}
	f.partitions = sortedKeys(f.partitions, m.listed)
	for _, p := range f.partitions {
		_, frozen := m.frozen[p]
		f.bools(frozen)
		f.locks(p, 0, m.listed[p])
	}
	f.bools(m.writeLocks.id != 0)
	f.writes(m.queue)
	f.writes(m.writing)
	f.int(len(m.moves))
	for _, w := range m.moves {
		f.epoch(w.move.Partition, w.move.Epoch)
		f.mono(w.until, 0)
	}
	f.int(m.movesSent)
}

// jump writes by how much the store's clock is to run ahead of the machine's
// before a snapshot shows a jump. How late the latest one was read counts only
// where clocks jump.
func (f *fingerprinter) jump(m *Machine) {
	if !m.observed {
		return
	}
	late := m.snapshot.Now - m.asked - (f.w.now + f.w.skew - f.w.instant(f.p).Mono)
	if !f.w.sc.jumps() {
		late = min(late, 0)
	}
	f.span(late, -2*m.cfg.TTL)
}

// jumps reports whether the store's clock and a worker's may jump apart.
func (sc *scope) jumps() bool { return sc.limit[evStoreStep]+sc.limit[evPause] > 0 }

// locks reports whether there are any.
func (sc *scope) locks() bool { return sc.limit[evHold] > 0 }

func (f *fingerprinter) peers(m *Machine) {
	floor := time.Duration(0)
	if m.failed { // a failed look that was due is not repeated at once
		floor = -m.cfg.TTL
	}
	f.names = sortedKeys(f.names, m.peers)
	for _, inc := range f.names {
		p := m.peers[inc]
		f.string(inc)
		f.bools(p.present)
		if !p.present {
			f.mono(p.deadAt, floor)
			f.bools(m.asked >= p.deadAt)
			continue
		}
		f.bools(p.suspect, p.stamp == 0)
		if p.suspect && p.stamp != 0 {
			f.mono(p.seen, -m.cfg.TTL)
			f.bools(m.asked >= p.seen+m.cfg.TTL)
			s := f.w.store.session(inc)
			f.bools(s != nil && s.stamp == p.stamp)
		}
	}
	f.int(-1)
	f.int(len(m.snapshot.Gone))
	f.bools(m.snapshot.Version == f.w.store.version)
	for _, s := range f.w.past {
		f.bools(m.snapshot.Version == s.version)
	}
	if m.generation != f.w.store.generation {
		return
	}
	if n := len(m.heard); n > 1 {
		f.mono(m.heard[n-2].at, -m.cfg.TTL/closeTogether)
	}
	for _, s := range f.w.store.sessions {
		f.renewal(m, s.stamp)
	}
	for _, g := range f.w.store.gone {
		f.renewal(m, g.Beat)
		f.bools(m.peers[g.Incarnation].stamp == g.Beat)
	}
}

// renewal writes since when, for all that a machine knows, a renewal counts.
func (f *fingerprinter) renewal(m *Machine, stamp int64) {
	n := len(m.heard)
	known := n > 0 && m.heard[n-1].beat >= stamp
	f.bools(known, n > 1 && m.heard[n-2].beat >= stamp)
	if known {
		f.mono(m.heardOf(stamp), -m.cfg.TTL)
	}
}

func (f *fingerprinter) part(m *Machine, p int) {
	part := &m.parts[p]
	f.int(int(part.state))
	f.bools(part.here, part.advance, m.snapshot.Version < f.w.store.parts[p].version)
	f.record(p, part.record)
	f.epoch(p, part.known)
	if part.state == stateServing || f.w.sc.locks() {
		f.epoch(p, part.epoch)
	}
}

func (f *fingerprinter) change(c records.Change) {
	f.int(int(c.Op))
	f.int(c.Partition)
	f.record(c.Partition, c.From)
	f.string(c.To)
	f.epoch(c.Partition, c.Floor)
	f.residue(c.Partition, c.Residue)
	f.locks(c.Partition, c.Served, c.Locks)
}

func (f *fingerprinter) messages() {
	f.int(len(f.w.msgs))
	for _, msg := range f.w.msgs {
		f.p = f.w.procs[msg.from]
		f.string(msg.by)
		f.bools(msg.slow, msg.stray, msg.done)
		f.call(msg.call)
		if msg.done {
			f.reply(msg.reply)
			switch e := msg.call.(type) {
			case Observe:
				f.snapshot(e, msg.reply.Snapshot)
			case Renew:
				m := f.life(e.Incarnation)
				f.bools(msg.reply.Snapshot.Beat > m.snapshot.Beat)
				f.moment(m.snapshot.Version, msg.reply.Snapshot)
			}
		}
	}
}

func (f *fingerprinter) call(e Effect) {
	switch e := e.(type) {
	case FetchGeneration:
		f.string("F")
	case Register:
		f.string("R" + e.Session.Incarnation)
		f.generation(e.Generation)
		for _, h := range e.Holdings {
			f.int(h.Partition)
			f.epoch(h.Partition, h.Epoch)
			f.residue(h.Partition, h.Residue)
		}
	case Renew:
		f.string("N" + e.Incarnation)
		f.generation(e.Generation)
	case Observe:
		f.string("O")
		f.generation(e.Generation)
		f.bools(e.Since == f.w.store.version)
		for _, inc := range e.Suspects {
			f.string(inc)
		}
		f.int(len(e.Suspects))
		for p := range f.w.store.parts {
			f.bools(e.Since < f.w.store.parts[p].version)
		}
	case Apply:
		f.string("A" + e.Incarnation)
		f.generation(e.Generation)
		for _, c := range e.Changes {
			f.change(c)
		}
	case Clear:
		f.string("C")
		f.generation(e.Generation)
		f.int(e.Partition)
		f.residue(e.Partition, e.Residue)
	case ClearLocks:
		f.string("K")
		f.generation(e.Generation)
		for _, m := range e.Moves {
			f.epoch(m.Partition, m.Epoch)
		}
	case WriteLocks:
		f.string("W" + e.Incarnation)
		f.generation(e.Generation)
		f.writes(e.Writes)
	case Release:
		f.string("L" + e.Incarnation)
	}
}

func (f *fingerprinter) reply(r Reply) {
	if r.Err != nil {
		f.string(r.Err.Error())
	}
	f.generation(r.Generation)
	f.generation(r.Snapshot.Generation)
	f.bools(r.Snapshot.Quarantine > 0)
	if f.w.sc.jumps() {
		f.span(r.Snapshot.Now-f.w.now-f.w.skew, -2*f.w.store.ttl)
	}
	for _, s := range slices.Concat(r.States, r.Snapshot.Partitions) {
		f.int(s.Partition)
		f.record(s.Partition, s.Record)
		f.residue(s.Partition, s.Residue)
		f.locks(s.Partition, s.Moved, s.Locks)
		f.writtenList(s.Written)
	}
	for i, n := range r.Wrote {
		f.number(i, n)
	}
	for p := range f.w.store.parts {
		f.bools(r.Snapshot.Version < f.w.store.parts[p].version)
	}
	for _, id := range r.Snapshot.Released {
		f.string(id)
	}
}

// snapshot writes what the answer to a look under way tells of sessions.
func (f *fingerprinter) snapshot(o Observe, r records.Snapshot) {
	f.moment(o.Since, r)
	for _, s := range r.Sessions {
		f.string(s.Incarnation)
	}
	f.int(len(r.Sessions))
	m := f.life(o.Incarnation)
	for _, s := range slices.Concat(r.Gone, r.Stamps) {
		f.string(s.Incarnation)
		f.renewal(m, s.Beat)
	}
}

// moment writes which changes and renewals a snapshot has seen.
func (f *fingerprinter) moment(since int64, r records.Snapshot) {
	f.bools(r.Version == since, r.Version == f.w.store.version)
	for _, s := range f.w.store.sessions {
		f.bools(r.Beat >= s.stamp)
	}
	for _, g := range f.w.store.gone {
		f.bools(r.Beat >= g.Beat)
	}
}

// life returns the process's life of an incarnation, or else the present one.
func (f *fingerprinter) life(incarnation string) *Machine {
	for _, l := range f.p.lives() {
		if l.me() == incarnation {
			return l
		}
	}
	return f.p.m
}
