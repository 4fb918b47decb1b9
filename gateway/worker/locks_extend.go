package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker/internal/remote"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// serveExtend lets a lock go on for a lease, which it has from then on. It may be the first that this incarnation promises
// of it.
func (ls *locks) serveExtend(r *link.ServerRequest, body []byte) ([]byte, error) {
	e, err := holds.ParseExtension(body)
	if err == nil {
		err = ls.worker.checkLease(e.Lease)
	}
	if err != nil {
		return nil, badCall{err}
	}
	p, err := ls.awaitPartition(r)
	if err == nil {
		err = ls.note()
	}
	if err != nil {
		return nil, err
	}
	grant, err := ls.prolong(r.Context(), p, r, e, remote.Any)
	return grant.Append(nil), err
}

// prolong gives a lock a lease from now on, once the store keeps the lock if it has to. A call that waits for the store
// counts among the waiting calls of its link.
func (ls *locks) prolong(ctx context.Context, p *partition, r *link.ServerRequest, e holds.Extension, mode remote.Mode) (holds.Grant, error) {
	if e.Lease == 0 {
		e.Lease = ls.worker.settings.TTL
	}
	for {
		grant, err := ls.tryProlong(p, r.Key, e, mode)
		if err != remote.ErrKeepFirst {
			return grant, err
		}
		if !r.BeginWait() {
			return holds.Grant{}, errLinkFull
		}
		err = p.keep(ctx, e.ID, e.Lease)
		r.EndWait()
		if err != nil {
			return holds.Grant{}, err
		}
	}
}

func (ls *locks) tryProlong(p *partition, key string, e holds.Extension, mode remote.Mode) (holds.Grant, error) {
	promise := ls.promise()
	t := &p.locks
	at := t.lock()
	defer t.unlock()
	l, firm, err := t.machine.Extend(at, remote.Extension{ID: remote.ID(e.ID), Key: key, Mode: mode, Lease: e.Lease, Firm: e.Firm, Vouch: promise.Surrender})
	if err != nil {
		return holds.Grant{}, t.refusalOf(err, key)
	}
	if firm {
		promise = holds.Promise{Cancel: e.Lease, Surrender: e.Lease}
	}
	return holds.Grant{Token: l.Token, Lease: l.Lease, Promise: promise}, nil
}

// keep waits until the store keeps a lock with that lease at least, or the lock is none any
// more.
func (p *partition) keep(ctx context.Context, id holds.ID, lease time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, p.worker.cfg.MaxWait)
	defer cancel()
	for {
		at := p.locks.lock()
		w := p.locks.waitFor(p.locks.machine.Keep(at, remote.ID(id), lease))
		p.locks.unlock()
		if w == nil {
			return nil
		}
		if !w.await(ctx) && ctx.Err() != nil {
			return fmt.Errorf("%w: the store has not written down in time that a key is to be held for %v: %w", ErrUnavailable, lease, context.Cause(ctx))
		}
	}
}
