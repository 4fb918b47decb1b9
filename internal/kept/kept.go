// Package kept has what a store keeps of a partition, and the rules for changing it.
// Stores that compute in Go share it; those of Redis stand in fallback/store/lua.
package kept

import (
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/records"
)

// Partition is what a store keeps of one.
type Partition struct {
	records.PartitionState
	Wrote   records.WriteNumber // the latest write of Written
	Touched bool                // since it was read: anything
	Changed bool                // likewise: what Observe shows to all
}

// own changes the record.
func (p *Partition) own(epoch int64, owner string, now time.Time) {
	p.Record = records.Record{Epoch: max(epoch, now.Unix()), Owner: owner}
	p.Touched, p.Changed = true, true
}

func (p *Partition) find(key string) int {
	return slices.IndexFunc(p.Residue, func(r records.Residue) bool { return r.Key == key })
}

func (p *Partition) put(r records.Residue) {
	if i := p.find(r.Key); i >= 0 {
		p.Residue[i] = r
	} else {
		p.Residue = append(p.Residue, r)
	}
	p.Touched, p.Changed = true, true
}

// Hold re-asserts a holding: its record unless another worker has a later one, and its residue unless a later
// execution has left an entry of the same key.
func (p *Partition) Hold(incarnation string, h records.Holding, now time.Time) {
	if h.Epoch > 0 && (p.Record.Epoch <= h.Epoch || p.Record.Owner == incarnation) {
		p.own(max(p.Record.Epoch, h.Epoch)+1, incarnation, now)
	}
	for _, r := range h.Residue {
		if i := p.find(r.Key); i < 0 || p.Residue[i].Token <= r.Token {
			p.put(r)
		}
	}
}

// Allows reports whether an incarnation that is live may change the record that the change is from. In a
// quarantine nothing of the dead is claimed.
func Allows(incarnation string, c records.Change, quarantine bool, live, released func(incarnation string) bool) bool {
	owner := c.From.Owner
	switch c.Op {
	case records.OpClaim:
		if owner == incarnation || owner != "" && released(owner) {
			return true
		}
		return !quarantine && (owner == "" || !live(owner))
	case records.OpMove:
		return owner == incarnation && c.To != "" && live(c.To)
	case records.OpAdvance:
		return owner == incarnation
	}
	return false
}

// Apply makes a change that is allowed.
func (p *Partition) Apply(incarnation string, c records.Change, now time.Time) {
	owner := incarnation
	if c.Op == records.OpMove {
		owner = c.To
		for _, r := range c.Residue {
			p.put(r)
		}
	}
	p.own(max(c.From.Epoch+1, c.Floor), owner, now)
	switch {
	case c.Op == records.OpMove && c.Served >= p.Moved:
		p.Moved, p.Locks = p.Record.Epoch, c.Locks
	case c.Op != records.OpAdvance && c.From.Owner == incarnation && c.Served < p.Moved && p.Moved == c.From.Epoch:
		p.Moved = p.Record.Epoch // the locks of the latest move, which nobody has served since
	}
}

// Clear deletes residues, each if there is an equal one.
func (p *Partition) Clear(residue []records.Residue) {
	for _, r := range residue {
		if i := slices.Index(p.Residue, r); i >= 0 {
			p.Residue = slices.Delete(p.Residue, i, i+1)
			p.Touched, p.Changed = true, true
		}
	}
}

// ClearLocks forgets the locks of the move at an epoch.
func (p *Partition) ClearLocks(moved int64) {
	if p.Moved == moved && p.Locks != "" {
		p.Locks, p.Touched = "", true
	}
}

// Write makes a write of locks, if it is the owner's and not late.
func (p *Partition) Write(incarnation string, w records.LockWrite) {
	late := p.Wrote.Epoch == w.Number.Epoch && p.Wrote.Number >= w.Number.Number
	if late || p.Record != (records.Record{Epoch: w.Number.Epoch, Owner: incarnation}) {
		return
	}
	p.Wrote, p.Touched = w.Number, true
	for _, l := range w.Locks {
		p.Written = slices.DeleteFunc(p.Written, func(old records.WrittenLock) bool { return old.ID == l.ID })
		if l.Text != "" {
			p.Written = append(p.Written, l)
		}
	}
}

// Told returns the partition as an incarnation sees it: only the owner gets its locks.
func (p *Partition) Told(incarnation string) records.PartitionState {
	state := p.PartitionState
	if incarnation == "" || incarnation != p.Record.Owner {
		state.Locks, state.Written = "", nil
	}
	return state
}
