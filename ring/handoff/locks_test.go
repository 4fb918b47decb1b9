package handoff

import (
	"fmt"
	"slices"
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
}

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
	p.locks = append(p.locks, lock{key: key, token: e.token, renewable: true})
	p.promised = true
	w.held[key] = belief{}
	w.promise(p, len(p.locks)-1)
	return true
}

// reaches reports whether a holder can renew or release its lock at a worker.
func (w *world) reaches(p *proc, l lock) bool {
	if l.frozen {
		return w.off&guardFreeze != 0
	}
	return l.renewable && p.tables[w.sc.keys[l.key]].open
}

// renew lets a holder ask for the lock that a worker holds for it.
func (w *world) renew(p *proc, i int) {
	if w.off&guardPromised == 0 {
		p.promised = true
	}
	w.promise(p, i)
}

// promise lets a worker tell a holder that it has its lock. The holder counts from
// before it asked, and no longer than the worker's own lease.
func (w *world) promise(p *proc, i int) {
	l := &p.locks[i]
	l.ends = w.instant(p).Mono + w.store.ttl
	until := w.now + w.store.ttl*95/100
	if w.off&guardPromise == 0 {
		until = min(until, p.surrender)
	}
	for _, q := range w.procs {
		for _, o := range q.execs {
			if o.key == l.key && o.running && !o.void && w.counts(q) {
				w.fail("S1: %s is locked at %s (token %s) while it runs at %s (token %s)", keyName(l.key), p.name(), token(l.token), q.name(), token(o.token))
			}
		}
	}
	if l.token < w.last[l.key] {
		w.fail("S2: %s is locked at %s with token %s after a start with token %s", keyName(l.key), p.name(), token(l.token), token(w.last[l.key]))
	}
	w.last[l.key] = l.token
	w.held[l.key] = belief{l.token, max(w.held[l.key].until, until)}
}

// checkHeld fails if a key is given to somebody at a worker while the holder of its
// lock believes that it has it.
func (w *world) checkHeld(p *proc, key int) {
	if b := w.held[key]; w.now < b.until {
		w.fail("S1: %s is given away at %s while its lock (token %s) is believed for another %s", keyName(key), p.name(), token(b.token), clockText(b.until-w.now, w.store.ttl))
	}
}

// free lets a holder release its lock at a worker.
func (w *world) free(p *proc, i int) {
	w.held[p.locks[i].key] = belief{}
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

// freezeLocks freezes the locks of a partition whose table closes, and lists them.
func (w *world) freezeLocks(p *proc, partition int) string {
	var entries []string
	for i := range p.locks {
		if l := &p.locks[i]; w.sc.keys[l.key] == partition {
			l.frozen = true
			entries = append(entries, fmt.Sprintf("%d %d %d %t", l.key, l.token, l.ends-w.instant(p).Mono, l.renewable))
		}
	}
	return strings.Join(entries, ";")
}

// listed takes a list of locks apart. Where they end it has how long they last.
func listedLocks(text string) (list []lock) {
	if text == "" {
		return nil
	}
	for entry := range strings.SplitSeq(text, ";") {
		var l lock
		if _, err := fmt.Sscan(entry, &l.key, &l.token, &l.ends, &l.renewable); err != nil {
			panic(err)
		}
		list = append(list, l)
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
		l.ends += w.instant(p).Mono
		l.renewable = l.renewable && o.Renewable
		p.locks = append(p.locks, l)
	}
}
