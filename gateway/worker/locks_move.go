package worker

import (
	"slices"

	"github.com/keyway-go/keyway/localmutex"
	"github.com/keyway-go/keyway/ring/handoff"
)

// closeTable closes the partition's table, freezes its locks, or drops those that the store
// keeps, and lists what runs: all of that at one moment. A key that has been won, and is no
// lock yet, is among what runs.
func (p *partition) closeTable() handoff.Closed {
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	closed := handoff.Closed{Partition: p.number}
	for _, h := range p.table.Close() {
		if !h.Remote {
			closed.Running = append(closed.Running, handoff.Execution{Key: h.Key, Token: h.Token})
		}
	}
	closed.Locks = lockText(t.order, t.done, p.worker.now())
	p.dropWrittenLocked()
	t.open = false
	closed.Frozen = len(t.order) > 0
	return closed
}

// openTable opens the partition's table, with the locks that come along. Those that are
// frozen go on if it is resumed; otherwise they have ended elsewhere, or are among these,
// but for those of a life that has lost its session: they block their keys until they end.
// Those that the store keeps go on in any case.
func (p *partition) openTable(e handoff.OpenTable) {
	w, t := p.worker, &p.locks
	listed, done, err := parseLocks(e.Locks, w.settings.TTL)
	if err != nil {
		w.cfg.Logger.Error("cannot read which keys other members hold in a partition: its former owner is of another version", "partition", p.number, "error", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !e.Resumed {
		p.dropFrozenLocked()
		t.done = nil
		for _, r := range done {
			p.rememberLocked(&lock{id: r.id, call: r.call})
		}
	}
	now, cancels := w.now(), p.cancels.Load()
	for _, l := range p.takeWrittenLocked(e, listed) {
		if !p.installLocked(l) {
			if l.stored > 0 {
				w.shell.post(nil, handoff.Write{Partition: p.number, Locks: []handoff.WrittenLock{l.kept(0)}})
			}
			continue
		}
		l.cancels, l.expires = cancels, now+l.expires
		w.locks.count.Add(1)
		p.addLocked(l, lockMovedIn)
		if wait := t.waits[l.id]; wait != nil && l.state == lockLive { // which would be for the lock itself
			wait.giveUp()
		}
	}
	for _, l := range t.order {
		if l.shared && p.vouches(l) {
			p.table.Share(l.key, l.token)
		}
	}
	t.open = true
	p.table.Open(tokens(e.Epoch, e.Blocked))
}

// installLocked has a lock hold its key that has come along, and reports whether it does. An
// execution of this worker may hold that key still: one that had been given up when the lock was granted
// elsewhere. Nobody else gets the key before both have ended.
func (p *partition) installLocked(l *lock) bool {
	holder := p.table.Inspect(l.key).Token
	if holder > l.token {
		return false // it had ended before
	}
	if holder != 0 && !(l.shared && holder == l.token) {
		for _, before := range slices.Clone(p.locks.order) {
			if before.token == holder && before.key == l.key {
				p.removeLocked(before, lockLost) // as l shows, which was granted after it
			}
		}
	}
	return len(p.table.Install([]localmutex.Held{{Key: l.key, Token: l.token, Shared: l.shared}})) == 0
}

// dropFrozenLocked drops the frozen locks of a table that others have served meanwhile, except those of a life before.
func (p *partition) dropFrozenLocked() {
	for _, l := range slices.Clone(p.locks.order) {
		switch {
		case p.vouches(l), l.state == lockBlocks:
			p.removeLocked(l, lockLost)
		case l.state == lockLive:
			p.loseLocked(l)
		}
	}
}

// dropLocks drops the locks that are frozen: they are their next owner's.
func (p *partition) dropLocks() {
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open {
		for len(t.order) > 0 {
			p.removeLocked(t.order[len(t.order)-1], lockMovedOut)
		}
	}
}

// lingers reports whether there are locks in a partition that is not served, or of a life
// before.
func (p *partition) lingers() bool {
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.open && len(t.order) > 0 || t.ofLife > 0
}
