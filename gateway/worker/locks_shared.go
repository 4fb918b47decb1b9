package worker

import (
	"time"

	"github.com/keyway-go/keyway/localmutex"
)

// sharing is the shared locks that hold one key together, by one admission and with its
// token. Whoever wins a key for a shared lock takes those along that wait for shared ones
// right behind it, and others join them while nobody waits. The last one frees the key.
type sharing struct {
	token   int64
	cancels uint64 // as those of its locks
	blocks  bool   // likewise
	locks   int
}

// joinLocked has l hold its key with the shared locks that hold it already, if there are
// any, nobody waits behind them and nothing else runs with the key, and reports whether it does. It compares the lease and
// then what cancels, as for an admission.
func (p *partition) joinLocked(l *lock) bool {
	t := &p.locks
	s := t.shared[l.key]
	if s == nil || s.blocks || !t.open || !p.worker.admits(time.Now()) || s.cancels != p.cancels.Load() {
		return false
	}
	if k := p.table.Inspect(l.key); k.Waiters > 0 || k.Former != 0 || k.Blocked {
		return false
	}
	p.grantLocked(l, s.token, s.cancels)
	return true
}

// takeAlongLocked has all that wait for shared locks right behind l, which is one and
// holds the key, hold it too.
func (p *partition) takeAlongLocked(l *lock) {
	var taken []*localmutex.Item
	size := 0
	p.table.Take(l.key, l.token, func(i *localmutex.Item) (take, more bool) {
		other, take := i.Value.(*lock)
		if take = take && p.locks.fits(size+other.size()); take {
			size += other.size()
			taken = append(taken, i)
		}
		return take, take
	})
	for _, i := range taken {
		p.grantLocked(i.Value.(*lock), l.token, l.cancels)
		i.Finish()
	}
}

// shareLocked counts one more shared lock of a key that holds it.
func (t *lockTable) shareLocked(l *lock) {
	s := t.shared[l.key]
	if s == nil {
		s = &sharing{token: l.token, cancels: l.cancels, blocks: l.state != lockLive}
		if t.shared == nil {
			t.shared = make(map[string]*sharing)
		}
		t.shared[l.key] = s
	}
	s.locks++
}

// leaveLocked counts one less, and reports whether l was the last.
func (t *lockTable) leaveLocked(l *lock) (last bool) {
	s := t.shared[l.key]
	if s.locks--; s.locks > 0 {
		return false
	}
	if delete(t.shared, l.key); len(t.shared) == 0 {
		t.shared = nil
	}
	return true
}
