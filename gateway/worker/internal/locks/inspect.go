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
