package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// serveExtend gives a lock a longer lease.
func (ls *locks) serveExtend(w *link.ResponseWriter, r *link.ServerRequest, body []byte) {
	req, err := holds.ParseExtension(body)
	if err == nil {
		err = ls.worker.checkLease(req.Lease)
	}
	if err != nil {
		answerCall(w, http.StatusBadRequest, []byte(err.Error()))
		return
	}
	grant, err := ls.extend(r, req)
	if err != nil {
		ls.refuse(w, r, err)
		return
	}
	answerCall(w, http.StatusOK, grant.Append(nil))
}

// errNotHeld means that a lock that was to be extended is none.
var errNotHeld = errors.New("worker: the key is not held for who asks")

// extend lets a lock go on for that lease, which it has from then on. It may be the first
// that this incarnation promises of it.
func (ls *locks) extend(r *link.ServerRequest, e holds.Extension) (holds.Grant, error) {
	p, err := ls.awaitPartition(r)
	if err != nil {
		return holds.Grant{}, err
	}
	if err := ls.note(); err != nil {
		return holds.Grant{}, err
	}
	grant, err := ls.prolong(r.Context(), p, r, e, anyMode)
	if err != nil {
		return holds.Grant{}, err
	}
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.byID[e.ID]; l != nil {
		ls.tell(l, lockRenewed)
	}
	return grant, nil
}

// prolong gives a lock a lease from now on, without making what is left shorter. The store
// has to keep one whose lease is longer than a session's, or than what this worker can
// promise now to a holder that does not renew by itself. A call that waits for the store takes of its link's
// share for those that wait.
func (ls *locks) prolong(ctx context.Context, p *partition, r *link.ServerRequest, e holds.Extension, mode lockMode) (holds.Grant, error) {
	if e.Lease == 0 {
		e.Lease = ls.worker.settings.TTL
	}
	for {
		grant, ok, err := ls.tryProlong(p, r.Key, e, mode)
		if ok || err != nil {
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

// tryProlong is prolong, and reports false if the store has to keep the lock first.
func (ls *locks) tryProlong(p *partition, key string, e holds.Extension, mode lockMode) (g holds.Grant, ok bool, err error) {
	promise := ls.promise()
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	l := p.findLocked(e.ID)
	switch {
	case !t.open: // it has just been closed
		return g, false, p.elsewhere(key)
	case l == nil, !p.vouches(l):
		return g, false, fmt.Errorf("%w: %q", errNotHeld, key)
	case l.isFor(key, mode) != nil:
		return g, false, l.isFor(key, mode)
	case l.stored < e.Lease && (e.Lease > ls.worker.settings.TTL || e.Firm && e.Lease > promise.Surrender):
		return g, false, nil
	case promise.Surrender == 0: // others may have it
		return g, false, fmt.Errorf("%w: the session of worker %s is over", ErrUnavailable, ls.worker.name)
	case l.stored >= e.Lease || e.Firm:
		promise = holds.Promise{Cancel: e.Lease, Surrender: e.Lease}
	}
	l.lease, l.expires = e.Lease, max(l.expires, ls.worker.now()+e.Lease)
	return holds.Grant{Token: l.token, Lease: l.lease, Promise: promise}, true, nil
}
