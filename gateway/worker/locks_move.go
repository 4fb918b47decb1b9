package worker

import "github.com/keyway-go/keyway/ring/handoff"

// closeTable closes the partition's table, freezes its locks and lists what runs: all of that at one moment. A key that
// has been won, and is no lock yet, is among what runs.
func (p *partition) closeTable() handoff.Closed {
	t := &p.locks
	at := t.lock()
	defer t.unlock()
	closed := handoff.Closed{Partition: p.number}
	for _, h := range p.table.Close() {
		if !h.Remote {
			closed.Running = append(closed.Running, handoff.Execution{Key: h.Key, Token: h.Token})
		}
	}
	closed.Locks, closed.Frozen = t.machine.Close(at)
	return closed
}

// openTable opens the partition's table, with the locks that come along.
func (p *partition) openTable(e handoff.OpenTable) {
	t := &p.locks
	at := t.lock()
	defer t.unlock()
	if err := t.machine.Open(at, e); err != nil {
		p.worker.cfg.Logger.Error("cannot read which keys other members hold in a partition: its former owner is of another version", "partition", p.number, "error", err)
	}
	p.table.Open(tokens(e.Epoch, e.Blocked))
}

// lingers reports whether there are locks in a partition that is not served, or of a life before.
func (p *partition) lingers() bool {
	p.locks.lock()
	defer p.locks.unlock()
	return p.locks.machine.Lingers()
}
