package ownership

import (
	"cmp"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/status"
)

// lingering is residue: a key that runs on at a former owner.
type lingering struct {
	records.Residue
	since time.Time
	burst *burst // with which the key's partition came; nil for residue of this worker's own
}

// unblocked records that a key no longer runs at the former owner of its partition.
func (m *Moves) unblocked(p int, key string) {
	m.remove(m.inherited, p, func(l *lingering) bool { return l.Key == key })
}

// finished records the end of an execution whose partition this worker has closed.
func (m *Moves) finished(in handoff.Finished) {
	m.remove(m.left, in.Partition, func(l *lingering) bool { return l.Key == in.Key && l.Token == in.Token })
}

// remove removes residue of a partition from a list.
func (m *Moves) remove(list map[int][]lingering, p int, over func(*lingering) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rest := slices.DeleteFunc(list[p], func(l lingering) bool {
		if !over(&l) {
			return false
		}
		if l.burst != nil {
			l.burst.running--
		}
		return true
	})
	if list[p] = rest; len(rest) == 0 {
		delete(list, p)
	}
	m.calmLocked()
}

// OldestResidue returns for how long keys have been waited for that run on at a former owner of
// their partition, at the longest; 0 if there are none.
func (m *Moves) OldestResidue() (age time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, list := range m.inherited {
		for i := range list {
			age = max(age, time.Since(list[i].since))
		}
	}
	return age
}

// residueOf is the residue of one holder.
type residueOf struct {
	keys   int
	oldest time.Time
}

// residueLocked returns, by holder, the residue of this worker and the residue that it waits for.
func (m *Moves) residueLocked() map[string]residueOf {
	held := make(map[string]residueOf)
	for _, lists := range []map[int][]lingering{m.inherited, m.left} {
		for _, list := range lists {
			for i := range list {
				h := held[list[i].Holder]
				if h.keys++; h.oldest.IsZero() || list[i].since.Before(h.oldest) {
					h.oldest = list[i].since
				}
				held[list[i].Holder] = h
			}
		}
	}
	return held
}

// alarmLocked has residue looked at then, or before.
func (m *Moves) alarmLocked(at time.Time) {
	if m.alarmAt.IsZero() || at.Before(m.alarmAt) {
		m.alarmAt = at
	}
}

// warnLocked logs residue that is older than Limits.SlowKey, of each holder when it is
// twice as old as before.
func (m *Moves) warnLocked(now time.Time) {
	m.alarmAt = time.Time{}
	for holder, h := range m.residueLocked() {
		after, age := m.alarms[holder], now.Sub(h.oldest)
		if after == 0 {
			after = m.cfg.SlowKey
		}
		if age >= after {
			m.cfg.Logger.Warn("executions at a former owner of partitions still run: requests for their keys wait at the new one",
				"worker", m.nameLocked(holder), "keys", h.keys, "oldest", age.Round(time.Millisecond))
			after = 2 * age
			m.alarms[holder] = after
		}
		m.alarmLocked(h.oldest.Add(after))
	}
}

// calmLocked logs that residue which was warned of is no more.
func (m *Moves) calmLocked() {
	if len(m.alarms) == 0 {
		return
	}
	held := m.residueLocked()
	for holder := range m.alarms {
		if held[holder].keys == 0 {
			delete(m.alarms, holder)
			m.cfg.Logger.Info("the executions at the former owner of partitions have ended", "worker", m.nameLocked(holder))
		}
	}
}

// Residue returns the residue by holder, that of the most keys first.
func (m *Moves) Residue(now time.Time) (list []status.ResidueStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for holder, h := range m.residueLocked() {
		list = append(list, status.ResidueStatus{Worker: m.nameLocked(holder), Keys: h.keys, OldestSeconds: now.Sub(h.oldest).Seconds()})
	}
	slices.SortFunc(list, func(a, b status.ResidueStatus) int {
		return cmp.Or(cmp.Compare(b.Keys, a.Keys), cmp.Compare(a.Worker, b.Worker))
	})
	return list
}

// ResidueOfKey returns the execution at a former owner that key waits for, nil for none.
func (m *Moves) ResidueOfKey(p int, key string, now time.Time) *status.KeyResidue {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.inherited[p] {
		if l.Key == key {
			return &status.KeyResidue{Worker: m.nameLocked(l.Holder), Token: l.Token, Seconds: now.Sub(l.since).Seconds()}
		}
	}
	return nil
}
