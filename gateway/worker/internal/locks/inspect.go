package locks

import (
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/gateway/worker/internal/remote"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// serveInspect answers who has a key, once this worker serves it.
func (ls *Locks) serveInspect(r *link.ServerRequest) ([]byte, error) {
	p, err := ls.awaitPartition(r)
	if err != nil {
		return nil, err
	}
	o, served := ls.of(p).inspect(r.Key)
	if !served { // it has just been closed
		return nil, p.Elsewhere(r.Key)
	}
	return o.Append(nil), nil
}

// inspect says who has a key of the partition, and whether the partition is served here.
func (t *lockTable) inspect(key string) (o holds.Occupancy, served bool) {
	t.do(func(m *remote.Machine) { served = m.Serves() })
	state := t.part.Table.Inspect(key)
	o = holds.Occupancy{Held: state.Token != 0 || state.Blocked, Token: state.Token, Waiting: state.Waiters}
	if l, shared, ok := t.holderOf(key, state.Token); ok && state.Token != 0 {
		o.Lock, o.Shared, o.Label, o.Left = true, shared, l.Label, l.Left(t.locks.cfg.Keys.Now())
	}
	return o, served
}

// holderOf returns the lock that holds a key with that token, see [remote.Machine.Holder].
func (t *lockTable) holderOf(key string, token int64) (l remote.Lock, shared int, ok bool) {
	t.do(func(m *remote.Machine) { l, shared, ok = m.Holder(key, token) })
	return l, shared, ok
}

// HolderOf is [lockTable.holderOf] for a key of p.
func (ls *Locks) HolderOf(p *keyed.Partition, key string, token int64) (l remote.Lock, shared int, ok bool) {
	return ls.of(p).holderOf(key, token)
}
