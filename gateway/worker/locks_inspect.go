package worker

import (
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker/internal/remote"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// serveInspect says who has a key, once this worker serves it.
func (ls *locks) serveInspect(r *link.ServerRequest) ([]byte, error) {
	p, err := ls.awaitPartition(r)
	if err != nil {
		return nil, err
	}
	o, served := p.inspect(r.Key)
	if !served { // it has just been closed
		return nil, p.elsewhere(r.Key)
	}
	return o.Append(nil), nil
}

// inspect says who has a key of the partition, and whether the partition is served here.
func (p *partition) inspect(key string) (o holds.Occupancy, served bool) {
	p.locks.do(func(m *remote.Machine) { served = m.Serves() })
	state := p.table.Inspect(key)
	o = holds.Occupancy{Held: state.Token != 0 || state.Blocked, Token: state.Token, Waiting: state.Waiters}
	if l, shared, ok := p.holderOf(key, state.Token); ok && state.Token != 0 {
		o.Lock, o.Shared, o.Label, o.Left = true, shared, l.Label, l.Left(p.worker.now())
	}
	return o, served
}

// holderOf returns the lock that holds a key with that token, see [remote.Machine.Holder].
func (p *partition) holderOf(key string, token int64) (l remote.Lock, shared int, ok bool) {
	p.locks.do(func(m *remote.Machine) { l, shared, ok = m.Holder(key, token) })
	return l, shared, ok
}
