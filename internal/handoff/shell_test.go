package handoff

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/records"
)

// spawn starts a worker's next life.
func (w *world) spawn(slot int) {
	p := w.procs[slot]
	*p = proc{slot: slot, life: p.life + 1, up: true, paused: -1, mono: p.mono, wall: time.Hour}
	p.tables = make([]table, len(w.sc.views[0]))
	p.cancels = make([]int, len(w.sc.views[0]))
	w.beginLife(p)
}

func lifeName(slot, life int) string { return fmt.Sprintf("%c%d", 'a'+slot, life) }

// beginLife starts a machine for a process's present life.
func (w *world) beginLife(p *proc) {
	p.name = lifeName(p.slot, p.life)
	m, err := New(Config{
		Session:    records.Session{Incarnation: p.name},
		Partitions: len(w.sc.views[0]),
		TTL:        w.store.ttl,
		Settle:     w.store.ttl / 20,
		NewCluster: !w.sc.cold && w.now == 0 || w.sc.trust,
		Batch:      w.sc.batch,
		Changes:    w.sc.batch,
		Floor:      p.highest,
	})
	if err != nil {
		panic(err)
	}
	m.off = w.off | w.sc.off
	if w.sc.timing != nil {
		w.sc.timing(m)
	}
	p.m, p.shared = m, false
	w.stepLife(p, m, Tick{})
}

// lives lists the machines of a process, the present one last.
func (p *proc) lives() []*Machine { return append(slices.Clip(p.before), p.m) }

// step steps every life of a process.
func (w *world) step(p *proc, in Input) {
	for _, m := range p.lives() {
		w.stepLife(p, m, in)
	}
}

// stepLife steps a machine and does what it says.
func (w *world) stepLife(p *proc, m *Machine, in Input) {
	if m == p.m && p.shared {
		m = m.clone(w.spares)
		p.m, p.shared = m, false
	}
	effects := m.Step(w.instant(p), in)
	var inputs []Input
	for _, e := range effects {
		if w.log != nil {
			if s := narrate(e); s != "" {
				w.say("    %s: %s", m.me(), s)
			}
		}
		switch e := e.(type) {
		case OpenTable:
			w.serve(p, e.Partition, e.Epoch)
			p.tables[e.Partition].blocked = keysOf(e.Blocked)
			w.openLocks(p, e)
		case Advance:
			w.serve(p, e.Partition, e.Epoch)
		case CloseTable:
			inputs = append(inputs, w.closeTable(p, m, e.Partition))
		case LocksWritten:
			w.locksWritten(p, e)
		case LocksForgotten:
			inputs = append(inputs, w.writeAgain(p)...)
		case LocksMoved:
			w.dropFrozen(p, e.Partition)
		case Unblock:
			t := &p.tables[e.Partition]
			t.blocked = slices.DeleteFunc(slices.Clone(t.blocked), func(k string) bool { return k == e.Key })
		case CancelHandlers:
			for i := range p.cancels {
				if e.All || i == e.Partition {
					p.cancels[i]++
				}
			}
			for i := range p.execs {
				if x := &p.execs[i]; !x.cancelled && (e.All || w.sc.keys[x.key] == e.Partition) {
					x.cancelled = true
					x.endBy = w.when(p, w.instant(p).Mono+lease.Grace(w.store.ttl))
					if p.resumed { // told late, which must not make it end late
						x.endBy = min(x.endBy, max(w.now, p.surrender))
					}
				}
			}
		case LeaseChanged:
			p.lease = e.Lease
			if e.Lease != (Lease{}) {
				p.surrender = w.rate(p).when(min(e.Lease.Surrender.Mono-p.mono, e.Lease.Surrender.Wall-p.wall))
			}
		case Owner:
		case Lost:
			p.lost = !w.sc.lives
			if w.sc.lives {
				p.before = append(slices.Clip(p.before), m)
				p.highest = max(p.highest, m.Highest())
				p.life++
				w.beginLife(p)
			}
		case Done:
			if m == p.m {
				p.done = true
				w.endProcess(p)
			} else {
				w.endLife(p, m)
			}
		default:
			w.msgs = append(w.msgs, message{from: p.slot, by: m.me(), call: e})
		}
	}
	for _, in := range inputs {
		w.stepLife(p, m, in)
	}
}

func (w *world) serve(p *proc, partition int, epoch int64) {
	t := &p.tables[partition]
	t.open, t.closing, t.epoch, t.seq = true, false, epoch, 0
	if epoch == w.served[partition] {
		w.fail("S2: %s serves partition %d at epoch %d, at which it has been served before", p.name, partition, epoch)
	}
	w.served[partition] = max(w.served[partition], epoch)
}

func (w *world) closeTable(p *proc, m *Machine, partition int) Closed {
	c := Closed{Partition: partition}
	p.tables[partition].open = false
	if w.off&guardCloseList != 0 {
		p.tables[partition].open = true
		p.tables[partition].closing = true
	}
	for i := range p.execs {
		if w.sc.keys[p.execs[i].key] == partition {
			p.execs[i].listed = true
			c.Running = append(c.Running, Execution{Key: keyName(p.execs[i].key), Token: p.execs[i].token})
		}
	}
	c.Locks, c.Frozen = w.freezeLocks(p, partition)
	w.checkMove(p, m, partition)
	return c
}

// checkMove checks that a live worker gives a partition to another only if
// the two see the same ring.
func (w *world) checkMove(p *proc, m *Machine, partition int) {
	to := m.wanted(partition)
	if m.phase != phaseLive || p.leaving || m.parts[partition].record.Owner != m.me() {
		return
	}
	for i, q := range w.procs {
		if q.life > 0 && q.name == to && p.seen.views[i] != p.seen.digest() {
			w.fail("M: %s gives partition %d to %s, which sees another ring", p.name, partition, to)
		}
	}
	if m.now.Mono < m.settled {
		w.fail("M: %s gives partition %d away before the ring has settled", p.name, partition)
	}
}

func keyName(k int) string { return "k" + strconv.Itoa(k) }

// lock wins a key's mutex at a worker, if it admits the key.
func (w *world) lock(p *proc, key int) bool {
	t := &p.tables[w.sc.keys[key]]
	if !t.open || slices.Contains(t.blocked, keyName(key)) || !w.admits(p) {
		return false
	}
	if slices.ContainsFunc(p.execs, func(e exec) bool { return e.key == key }) || p.lockOf(key) >= 0 {
		return false
	}
	t.seq++
	p.execs = append(p.execs, exec{key: key, token: t.epoch<<20 | t.seq, cancels: p.cancels[w.sc.keys[key]]})
	return true
}

func (w *world) admits(p *proc) bool {
	if w.off&guardEitherClock != 0 {
		return w.instant(p).Mono < p.lease.Admit.Mono
	}
	return w.sc.untimed || p.lease.Admits(w.instant(p))
}

// goOn lets the holder of a key's mutex go on. Where a process has several
// lives, the lease is compared first, and what cancels in another step.
func (w *world) goOn(p *proc, i int, recheck bool) {
	if !w.sc.lives {
		w.start(p, i, recheck)
		return
	}
	e := &p.execs[i]
	first, second := w.admits(p), e.cancels == p.cancels[w.sc.keys[e.key]]
	if w.off&guardConfirm != 0 {
		first, second = second, first
	}
	switch {
	case !e.confirmed && !first, e.confirmed && !second:
		w.end(p, i)
	case !e.confirmed:
		e.confirmed = true
	default:
		w.start(p, i, false)
	}
}

// start lets the holder of a key's mutex run, if its worker still admits.
func (w *world) start(p *proc, i int, recheck bool) {
	if recheck && !w.admits(p) {
		w.end(p, i)
		return
	}
	e := &p.execs[i]
	e.running = true
	w.checkHeld(p, e.key)
	for _, q := range w.procs {
		for _, o := range q.execs {
			if q != p && o.key == e.key && o.running && !o.void && w.counts(q) {
				w.fail("S1: %s runs at %s (token %s) and at %s (token %s)", keyName(e.key), q.name, token(o.token), p.name, token(e.token))
			}
		}
	}
	if e.token == w.last[e.key] || e.token < w.last[e.key] && !w.sc.untimed {
		w.fail("S2: %s starts at %s with token %s after one with token %s", keyName(e.key), p.name, token(e.token), token(w.last[e.key]))
	}
	w.last[e.key] = max(w.last[e.key], e.token)
}

// counts reports whether executions of a process count as running. Those of a
// suspended one do so only until it should have ended them: that handlers end
// by then is a condition of S1.
func (w *world) counts(p *proc) bool {
	return !w.sc.untimed && (p.paused < 0 || w.now < p.surrender)
}

func (w *world) end(p *proc, i int) {
	e := p.execs[i]
	p.execs = slices.Delete(p.execs, i, i+1)
	if !e.listed {
		return
	}
	in := Finished{Partition: w.sc.keys[e.key], Key: keyName(e.key), Token: e.token}
	if w.off&guardEveryLife != 0 {
		w.stepLife(p, p.m, in)
		return
	}
	w.step(p, in)
}

// endLife ends a lost life of a process that goes on.
func (w *world) endLife(p *proc, m *Machine) {
	p.before = slices.DeleteFunc(slices.Clone(p.before), func(o *Machine) bool { return o == m })
	for i := range w.msgs {
		if w.msgs[i].by == m.me() {
			w.msgs[i].stray = true
		}
	}
	w.dropStrays()
}

// endProcess ends a process: what it sent may still arrive.
func (w *world) endProcess(p *proc) {
	p.up = false
	p.paused = -1
	p.execs = nil
	p.locks = nil
	p.before = nil
	clear(p.tables)
	for i := range w.msgs {
		if w.msgs[i].from == p.slot {
			w.msgs[i].stray = true
		}
	}
	w.dropStrays()
	if p.done {
		p.noticed = true
	}
}
