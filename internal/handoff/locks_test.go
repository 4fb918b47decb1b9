package handoff

import (
	"fmt"
	"github.com/keyway-go/keyway/internal/records"
	"slices"
	"strconv"
	"strings"
	"time"
)

// lock is a key that a worker holds for a holder elsewhere. Its worker may only
// keep the key for it, or renew it as well.
type lock struct {
	key       int
	token     int64
	ends      time.Duration // on its worker's monotonic clock, if it is not renewed
	frozen    bool          // its table has been closed since
	renewable bool

	// Of one with a long lease:
	id      string
	asked   time.Duration // true time at which its holder asked for it
	pending bool          // it is being written
	written bool          // the store keeps it
	ending  bool          // it is being removed from the store
}

// kept reports whether the store may keep a lock.
func (l lock) kept() bool { return l.pending || l.written || l.ending }

// longLease is that of locks that are written to the store.
func (w *world) longLease() time.Duration { return 2 * w.store.ttl }

// belief is what the holder of a key's latest lock takes for true: that it has
// the key, until a true time.
type belief struct {
	token int64
	until time.Duration
}

func (p *proc) lockOf(key int) int {
	return slices.IndexFunc(p.locks, func(l lock) bool { return l.key == key })
}

// hold locks a key at a worker for a holder elsewhere, if the worker admits it.
func (w *world) hold(p *proc, key int) bool {
	if !w.lock(p, key) {
		return false
	}
	e := p.execs[len(p.execs)-1]
	p.execs = p.execs[:len(p.execs)-1]
	w.checkHeld(p, key)
	l := lock{key: key, token: e.token, renewable: true}
	if !w.sc.long {
		p.locks = append(p.locks, l)
		p.promised = true
		w.held[key] = belief{}
		w.promise(p, len(p.locks)-1)
		return true
	}
	l.id, l.asked, l.pending = fmt.Sprint("l", w.left[evHold]), w.now, true
	l.ends = w.instant(p).Mono + w.store.ttl
	p.locks = append(p.locks, l)
	w.held[key] = belief{}
	if w.off&guardWriteFirst != 0 {
		w.promise(p, len(p.locks)-1)
	}
	w.write(p, l)
	return true
}

// write asks for a lock to be written, or to be removed if it ends.
func (w *world) write(p *proc, l lock) {
	w.step(p, Write{Partition: w.sc.keys[l.key], Locks: []records.WrittenLock{l.text()}})
}

func (l lock) text() records.WrittenLock {
	if l.ending {
		return records.WrittenLock{ID: l.id}
	}
	return records.WrittenLock{ID: l.id, Text: fmt.Sprint(l.key, " ", l.token)}
}

// locksWritten does what follows when locks have been written or removed.
func (w *world) locksWritten(p *proc, e LocksWritten) {
	for _, change := range e.Locks {
		i := slices.IndexFunc(p.locks, func(l lock) bool { return l.id == change.ID && l.ending == (change.Text == "") })
		switch {
		case i < 0:
		case p.locks[i].ending:
			p.locks = slices.Delete(p.locks, i, i+1)
		case p.locks[i].pending:
			l := &p.locks[i]
			l.pending, l.written = false, true
			l.ends = w.instant(p).Mono + w.longLease()
			if w.off&guardWriteFirst == 0 {
				w.promise(p, i)
			}
		}
	}
}

// writeAgain asks for all that the store is to keep, or not to keep.
func (w *world) writeAgain(p *proc) (inputs []Input) {
	for _, l := range p.locks {
		if part := w.sc.keys[l.key]; l.kept() && p.tables[part].open {
			inputs = append(inputs, Write{Partition: part, Locks: []records.WrittenLock{l.text()}})
		}
	}
	return inputs
}

// remove ends a lock that the store may keep: its key is free once the store does not.
func (w *world) remove(p *proc, i int) {
	l := &p.locks[i]
	l.ending, l.pending = true, false
	gone := *l
	if w.off&guardRemoveFirst != 0 {
		p.locks = slices.Delete(p.locks, i, i+1)
	}
	w.write(p, gone)
}

// expireWritten ends the locks whose long leases are over.
func (w *world) expireWritten(p *proc) {
	for i := len(p.locks) - 1; i >= 0; i-- {
		if l := p.locks[i]; l.kept() && !l.ending && w.instant(p).Mono >= l.ends {
			w.remove(p, i)
		}
	}
}

// reaches reports whether a holder can renew or release its lock at a worker.
func (w *world) reaches(p *proc, l lock) bool {
	if l.frozen {
		return w.off&guardFreeze != 0
	}
	return l.renewable && p.tables[w.sc.keys[l.key]].open && !l.pending && !l.ending
}

// renew lets a holder ask for the lock that a worker holds for it.
func (w *world) renew(p *proc, i int) {
	if w.off&guardPromised == 0 {
		p.promised = true
	}
	p.locks[i].asked = w.now
	w.promise(p, i)
}

// promise lets a worker tell a holder that it has its lock. The holder counts from
// before it asked, and no longer than the worker's own lease.
func (w *world) promise(p *proc, i int) {
	l := &p.locks[i]
	lease, asked := w.store.ttl, w.now
	if l.kept() {
		lease, asked = w.longLease(), l.asked
	}
	l.ends = w.instant(p).Mono + lease
	until := asked + lease*95/100
	if w.off&guardPromise == 0 && !l.kept() {
		until = min(until, p.surrender)
	}
	for _, q := range w.procs {
		for _, o := range q.execs {
			if o.key == l.key && o.running && !o.void && w.counts(q) {
				w.fail("S1: %s is locked at %s (token %s) while it runs at %s (token %s)", keyName(l.key), p.name, token(l.token), q.name, token(o.token))
			}
		}
	}
	if l.token < w.last[l.key] {
		w.fail("S2: %s is locked at %s with token %s after a start with token %s", keyName(l.key), p.name, token(l.token), token(w.last[l.key]))
	}
	w.last[l.key] = l.token
	w.held[l.key] = belief{l.token, max(w.held[l.key].until, until)}
}

// checkHeld fails if a key is given to somebody at a worker while the holder of its
// lock believes that it has it.
func (w *world) checkHeld(p *proc, key int) {
	if b := w.held[key]; w.now < b.until {
		w.fail("S1: %s is given away at %s while its lock (token %s) is believed for another %s", keyName(key), p.name, token(b.token), clockText(b.until-w.now, w.store.ttl))
	}
}

// free lets a holder release its lock at a worker.
func (w *world) free(p *proc, i int) {
	w.held[p.locks[i].key] = belief{}
	if p.locks[i].kept() {
		w.remove(p, i)
		return
	}
	p.locks = slices.Delete(p.locks, i, i+1)
}

// endLocks ends locks of a worker, and tells its machines of the last of a
// partition that is frozen.
func (w *world) endLocks(p *proc, ended func(lock) bool) {
	var parts []int
	for _, l := range p.locks {
		if part := w.sc.keys[l.key]; ended(l) && l.frozen && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	p.locks = slices.DeleteFunc(p.locks, ended)
	for _, part := range parts {
		if !slices.ContainsFunc(p.locks, func(l lock) bool { return l.frozen && w.sc.keys[l.key] == part }) {
			w.step(p, LocksEnded{Partition: part})
		}
	}
}

// dropFrozen drops the frozen locks of a partition, and reports whether there were
// any.
func (w *world) dropFrozen(p *proc, partition int) bool {
	before := len(p.locks)
	p.locks = slices.DeleteFunc(p.locks, func(l lock) bool { return l.frozen && w.sc.keys[l.key] == partition })
	return len(p.locks) < before
}

// freezeLocks lists the locks of a partition whose table closes. It freezes those that the
// store does not keep, and drops the others.
func (w *world) freezeLocks(p *proc, partition int) (list string, frozen bool) {
	var entries []string
	for i := range p.locks {
		if l := &p.locks[i]; w.sc.keys[l.key] == partition {
			left := max(l.ends-w.instant(p).Mono, 0)
			if l.ending {
				left = 0
			}
			entry := strconv.AppendInt(nil, int64(l.key), 10)
			entry = strconv.AppendInt(append(entry, ' '), l.token, 10)
			entry = strconv.AppendInt(append(entry, ' '), int64(left), 10)
			entry = strconv.AppendBool(append(entry, ' '), l.renewable)
			entry = strconv.AppendBool(append(entry, ' '), l.written)
			entries = append(entries, string(entry)+" "+l.id)
			l.frozen, l.pending = true, false
		}
	}
	p.locks = slices.DeleteFunc(p.locks, func(l lock) bool { return l.frozen && (l.written || l.ending) })
	frozen = slices.ContainsFunc(p.locks, func(l lock) bool { return l.frozen && w.sc.keys[l.key] == partition })
	return strings.Join(entries, ";"), frozen
}

// listed takes a list of locks apart. Where they end it has how long they last.
func listedLocks(text string) (list []lock) {
	if text == "" {
		return nil
	}
	for entry := range strings.SplitSeq(text, ";") {
		next := func() (field string) {
			field, entry, _ = strings.Cut(entry, " ")
			return field
		}
		number := func() int64 {
			n, err := strconv.ParseInt(next(), 10, 64)
			if err != nil {
				panic(err)
			}
			return n
		}
		list = append(list, lock{
			key: int(number()), token: number(), ends: time.Duration(number()),
			renewable: next() == "true", written: next() == "true", id: next(),
		})
	}
	return list
}

// openLocks does what an OpenTable says of locks.
func (w *world) openLocks(p *proc, o OpenTable) {
	if o.Resumed {
		for i := range p.locks {
			if w.sc.keys[p.locks[i].key] == o.Partition {
				p.locks[i].frozen = false
			}
		}
	} else if w.dropFrozen(p, o.Partition) {
		for _, m := range p.before {
			w.stepLife(p, m, LocksEnded{Partition: o.Partition})
		}
	}
	if w.off&guardInstall != 0 {
		return
	}
	for _, l := range listedLocks(o.Locks) {
		written := slices.ContainsFunc(o.Written, func(k records.WrittenLock) bool { return k.ID == l.id })
		if l.written && !written || written && !o.Renewable || o.Resumed && !l.written {
			continue // it has ended, or counts as it is written
		}
		l.ends += w.instant(p).Mono
		l.renewable = l.renewable && o.Renewable
		p.locks = append(p.locks, l)
	}
	for _, k := range o.Written {
		i := slices.IndexFunc(p.locks, func(l lock) bool { return l.id == k.ID && w.sc.keys[l.key] == o.Partition })
		if i < 0 {
			l := lock{id: k.ID, renewable: true, ends: w.instant(p).Mono + w.longLease()}
			if _, err := fmt.Sscan(k.Text, &l.key, &l.token); err != nil {
				panic(err)
			}
			p.locks = append(p.locks, l)
			i = len(p.locks) - 1
		}
		p.locks[i].written = true
	}
	w.checkKept(p, o)
}

// checkKept fails if a lock that its holder believes in does not go on in a partition that
// opens, though nothing but late and lost calls has happened to the cluster.
func (w *world) checkKept(p *proc, o OpenTable) {
	for k := range eventFaults {
		if w.sc.lossy || w.left[k] < w.sc.limit[k] && k != evTimeout && k != evDuplicate && k != evSlow {
			return
		}
	}
	for key, b := range w.held {
		if w.sc.keys[key] != o.Partition || w.now >= b.until {
			continue
		}
		if !slices.ContainsFunc(p.locks, func(l lock) bool { return l.key == key && l.token == b.token && l.renewable && !l.frozen }) {
			w.fail("M: the lock of %s (token %s) is lost in a planned move to %s", keyName(key), token(b.token), p.name)
		}
	}
}
