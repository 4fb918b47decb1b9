package etcd

import (
	"slices"
	"time"

	"github.com/keyway-go/keyway/ring/records"
)

// own changes the record.
func (s *partition) own(epoch int64, owner string) {
	s.Record = records.Record{Epoch: max(epoch, time.Now().Unix()), Owner: owner}
	s.written, s.changed = true, true
}

func (s *partition) find(key string) int {
	return slices.IndexFunc(s.Residue, func(r records.Residue) bool { return r.Key == key })
}

func (s *partition) put(r records.Residue) {
	if i := s.find(r.Key); i >= 0 {
		s.Residue[i] = r
	} else {
		s.Residue = append(s.Residue, r)
	}
	s.written, s.changed = true, true
}

// hold re-asserts a holding: its record unless another worker has a later one, and its residue unless a later
// execution has left an entry of the same key.
func (s *partition) hold(incarnation string, h records.Holding) {
	if h.Epoch > 0 && (s.Record.Epoch <= h.Epoch || s.Record.Owner == incarnation) {
		s.own(max(s.Record.Epoch, h.Epoch)+1, incarnation)
	}
	for _, r := range h.Residue {
		if i := s.find(r.Key); i < 0 || s.Residue[i].Token <= r.Token {
			s.put(r)
		}
	}
}

// apply makes a change that is allowed.
func (s *partition) apply(incarnation string, c records.Change) {
	owner := incarnation
	if c.Op == records.OpMove {
		owner = c.To
		for _, r := range c.Residue {
			s.put(r)
		}
	}
	s.own(max(c.From.Epoch+1, c.Floor), owner)
	switch {
	case c.Op == records.OpMove && c.Served >= s.Moved:
		s.Moved, s.Locks = s.Record.Epoch, c.Locks
	case c.Op != records.OpAdvance && c.From.Owner == incarnation && c.Served < s.Moved && s.Moved == c.From.Epoch:
		s.Moved = s.Record.Epoch // the locks of the latest move, which nobody has served since
	}
}

// clear deletes residues, each if there is an equal one.
func (s *partition) clear(residue []records.Residue) {
	for _, r := range residue {
		if i := slices.Index(s.Residue, r); i >= 0 {
			s.Residue = slices.Delete(s.Residue, i, i+1)
			s.written, s.changed = true, true
		}
	}
}

// clearLocks forgets the locks of the move at an epoch.
func (s *partition) clearLocks(moved int64) {
	if s.Moved == moved && s.Locks != "" {
		s.Locks, s.written = "", true
	}
}

// write makes a write of locks, if it is the owner's and not late.
func (s *partition) write(incarnation string, w records.LockWrite) {
	late := s.wrote.Epoch == w.Number.Epoch && s.wrote.Number >= w.Number.Number
	if late || s.Record != (records.Record{Epoch: w.Number.Epoch, Owner: incarnation}) {
		return
	}
	s.wrote, s.written = w.Number, true
	for _, l := range w.Locks {
		s.Written = slices.DeleteFunc(s.Written, func(old records.WrittenLock) bool { return old.ID == l.ID })
		if l.Text != "" {
			s.Written = append(s.Written, l)
		}
	}
}
