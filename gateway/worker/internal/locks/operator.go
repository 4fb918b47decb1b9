package locks

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/calls"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/gateway/worker/internal/remote"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// serveInspect answers who has a key, once this worker serves it.
func (ls *Locks) serveInspect(r *link.ServerRequest) ([]byte, error) {
	p, err := ls.awaitPartition(r)
	if err != nil {
		return nil, err
	}
	o, served := ls.inspect(p, r.Key)
	if !served { // it has just been closed
		return nil, p.Elsewhere(r.Key)
	}
	return o.Append(nil), nil
}

// inspect says who has a key of p, and whether p is served here.
func (ls *Locks) inspect(p *keyed.Partition, key string) (o holds.Occupancy, served bool) {
	ls.of(p).do(func(m *remote.Machine, _ remote.Instant) { served = m.Serves() })
	state := p.Table.Inspect(key)
	o = holds.Occupancy{Held: state.Token != 0 || state.Blocked, Token: state.Token, Waiting: state.Waiters}
	if l, shared, ok := ls.HolderOf(p, key, state.Token); ok && state.Token != 0 {
		o.Lock, o.Shared, o.Label, o.Left = true, shared, l.Label, l.Left(ls.cfg.Keys.Now())
	}
	return o, served
}

// HolderOf returns the lock that holds a key of p with that token, see [remote.Machine.Holder].
func (ls *Locks) HolderOf(p *keyed.Partition, key string, token int64) (l remote.Lock, shared int, ok bool) {
	ls.of(p).do(func(m *remote.Machine, _ remote.Instant) { l, shared, ok = m.Holder(key, token) })
	return l, shared, ok
}

// Page returns a page of the locks of the partitions that this worker serves, see status.LockPage.
func (ls *Locks) Page(after string) (page status.LockPage) {
	first, size := 0, 0
	if after != "" {
		first = ls.cfg.Settings.Ring.Partition(after)
	}
	for i := first; i < len(ls.tables); i++ {
		for _, row := range ls.tables[i].rows() {
			if i == first && row.Key <= after {
				continue
			}
			size += 6*(len(row.Key)+len(row.Label)+len(row.HeldBy)) + 256 // in JSON, at most
			if n := len(page.Locks); n == status.MaxLockRows || size > calls.MaxAnswer {
				page.Next = page.Locks[n-1].Key
				return page
			}
			page.Locks = append(page.Locks, row)
		}
	}
	return page
}

// rows returns the keys that are locked, in their order.
func (t *lockTable) rows() []status.LockRow {
	at := t.lock()
	defer t.unlock()
	list := slices.SortedFunc(slices.Values(t.machine.All()), func(a, b *remote.Lock) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(b.Left(at.Now), a.Left(at.Now)))
	})
	var rows []status.LockRow
	for _, l := range list {
		n := len(rows)
		if n == 0 || rows[n-1].Key != l.Key {
			rows = append(rows, rowOf(l, at.Now))
			n++
		}
		if l.Shared {
			rows[n-1].Readers++
		}
	}
	return rows
}

func rowOf(l *remote.Lock, now time.Duration) status.LockRow {
	return status.LockRow{Key: l.Key, Token: l.Token, Label: l.Label, HeldBy: l.From, Written: l.Written(), LeaseSeconds: l.Left(now).Seconds()}
}

// Unlock releases all locks of a key, regardless of holder, and returns them: their renewals find
// them gone. by is for the log. If there are none, the error wraps [status.ErrNotLocked]. If the
// store may still keep one, it wraps [gateway.ErrUnavailable], and Unlock can be repeated.
func (ls *Locks) Unlock(ctx context.Context, key, by string) (rows []status.LockRow, err error) {
	if err := keysource.Check(key); err != nil {
		return nil, err
	}
	p := ls.cfg.Keys.Of(key)
	ctx, cancel := context.WithTimeout(ctx, ls.cfg.Settings.TTL)
	defer cancel()
	for _, removal := range ls.of(p).force(key, by, &rows) {
		if !removal.await(ctx) {
			return nil, fmt.Errorf("%w: the store may keep a lock of key %q: try again", gateway.ErrUnavailable, key)
		}
	}
	switch {
	case !p.Open.Load():
		return nil, p.Elsewhere(key)
	case len(rows) == 0:
		return nil, fmt.Errorf("%w: %q", status.ErrNotLocked, key)
	}
	return rows, nil
}

// force ends all locks of a key in a partition that is served, and adds them to rows.
func (t *lockTable) force(key, by string, rows *[]status.LockRow) (removals []*lockWait) {
	at := t.lock()
	defer t.unlock()
	removed := t.machine.Unlock(at, key, func(l *remote.Lock) {
		row := rowOf(l, at.Now)
		if l.Shared {
			row.Readers = 1
		}
		*rows = append(*rows, row)
		t.locks.cfg.Log.Warn("an operator releases a key that is held for another member", "by", by, "key", key, "token", l.Token, "label", l.Label, "from", l.From, "written", row.Written, "left", row.LeaseSeconds)
	})
	for _, l := range removed {
		removals = append(removals, t.waitFor(l))
	}
	return removals
}
