package worker

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/ring/handoff"
)

// lockWrite is a change of what the store keeps of a lock, under way.
type lockWrite struct {
	lease   time.Duration // with which it is to be kept; 0 removes it
	made    bool          // set before settled is closed
	settled chan struct{} // closed when it is made, or nobody waits for it here any more
}

func (w *lockWrite) settle(made bool) {
	if w != nil {
		w.made = made
		close(w.settled)
	}
}

// await waits for the change, and reports whether it is made.
func (w *lockWrite) await(ctx context.Context) bool {
	select {
	case <-w.settled:
		return w.made
	case <-ctx.Done():
		return false
	}
}

// kept is l as the store keeps it with a lease.
func (l *lock) kept(lease time.Duration) handoff.WrittenLock {
	k := handoff.WrittenLock{ID: hex.EncodeToString(l.id[:])}
	if lease > 0 {
		as := *l
		as.lease, as.expires, as.stored, as.call = lease, lease, 0, 0 // what may change is not in it
		k.Text = lockText([]*lock{&as}, nil, 0)
	}
	return k
}

// storeLocked notes with which lease the store keeps a lock of the table.
func (p *partition) storeLocked(l *lock, lease time.Duration) {
	p.worker.locks.written.Add(int64(number(lease > 0) - number(l.stored > 0)))
	l.stored = lease
}

// writeLocked asks the store to keep l with a lease, or not to keep it. Who waits for an
// earlier change looks again.
func (p *partition) writeLocked(l *lock, lease time.Duration) {
	l.write.settle(false)
	l.write = &lockWrite{lease: lease, settled: make(chan struct{})}
	p.worker.shell.post(nil, handoff.Write{Partition: p.number, Locks: []handoff.WrittenLock{l.kept(lease)}})
}

// keep waits until the store keeps a lock with that lease at least, or the lock is none any
// more.
func (p *partition) keep(ctx context.Context, id holds.ID, lease time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, p.worker.cfg.MaxWait)
	defer cancel()
	for {
		settled := p.startToKeep(id, lease)
		if settled == nil {
			return nil
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return fmt.Errorf("%w: the store has not written down in time that a key is to be held for %v: %w", ErrUnavailable, lease, context.Cause(ctx))
		}
	}
}

func (p *partition) startToKeep(id holds.ID, lease time.Duration) (settled <-chan struct{}) {
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.byID[id]
	if !t.open || l == nil || !p.vouches(l) || l.stored >= lease {
		return nil
	}
	if l.write == nil {
		p.writeLocked(l, lease)
	}
	return l.write.settled
}

// mayBeKept reports whether the store may keep a lock, so that its end waits for the store.
func (p *partition) mayBeKept(id holds.ID) bool {
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.byID[id]
	return l != nil && (l.stored > 0 || l.write != nil)
}

// endLocked ends a lock of a partition that is served: at once, or, if the store may keep
// it, when it does not any more, for which removal waits.
func (p *partition) endLocked(l *lock, event lockEvent) (removal *lockWrite) {
	if event == lockReleased && l.end == lockGranted {
		p.rememberLocked(l)
	}
	if l.stored == 0 && l.write == nil {
		p.removeLocked(l, event)
		return nil
	}
	if l.end == lockGranted {
		l.end, l.due = event, never
		p.locks.down(int(l.place))
		p.locks.noteNext()
		p.writeLocked(l, 0)
	}
	return l.write
}

// locksWritten notes what the store keeps, or does not keep any more.
func (p *partition) locksWritten(list []handoff.WrittenLock) {
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range list {
		var id holds.ID
		_, _ = hex.Decode(id[:], []byte(k.ID)) // it is from here
		l := t.byID[id]
		if l == nil || l.write == nil || l.kept(l.write.lease) != k {
			continue // it was asked for before something else was
		}
		w := l.write
		if l.write = nil; w.lease > 0 {
			p.storeLocked(l, w.lease)
		} else {
			p.removeLocked(l, l.end)
		}
		w.settle(true)
	}
}

// writeLocksAgain asks the store again to keep what it kept, and for all that is under way.
func (p *partition) writeLocksAgain() {
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []handoff.WrittenLock
	for _, l := range t.order {
		switch {
		case l.write != nil:
			list = append(list, l.kept(l.write.lease))
		case l.stored > 0:
			list = append(list, l.kept(l.stored))
		}
	}
	if t.open && len(list) > 0 {
		p.worker.shell.post(nil, handoff.Write{Partition: p.number, Locks: list})
	}
}

// dropWrittenLocked drops the locks of a table that closes whose place is the store:
// whoever opens the partition next finds them there. What is under way is not waited for.
func (p *partition) dropWrittenLocked() {
	for _, l := range slices.Clone(p.locks.order) {
		l.write.settle(false)
		if l.write = nil; l.stored > 0 || l.end != lockGranted {
			p.removeLocked(l, lockMovedOut)
		}
	}
}

// takeWrittenLocked returns the locks that a partition which opens comes with: those that
// the store keeps, and of those that a move has listed the others. One that is frozen here
// goes on.
func (p *partition) takeWrittenLocked(e handoff.OpenTable, listed []*lock) (came []*lock) {
	left := make(map[holds.ID]*lock)
	for _, l := range listed {
		left[l.id] = l
	}
	for _, k := range e.Written {
		list, _, err := parseLocks(k.Text, 0)
		if err != nil || len(list) != 1 {
			p.worker.cfg.Logger.Error("cannot read a key that another member holds: its former owner is of another version", "partition", p.number, "error", err)
			continue
		}
		l, before := list[0], p.findLocked(list[0].id)
		l.stored = l.lease
		if move := left[l.id]; move != nil && e.Renewable {
			l.expires, l.lease, l.call = move.expires, move.lease, move.call
		}
		delete(left, l.id)
		if before != nil {
			p.storeLocked(before, l.stored)
			continue
		}
		came = append(came, l)
	}
	for _, l := range listed {
		if left[l.id] != nil && l.stored == 0 && !e.Resumed {
			if !e.Renewable {
				l.state = lockBlocks
			}
			came = append(came, l)
		}
	}
	return came
}
