package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// remoteHolds are the keys that this worker holds for other members. Each is an
// execution whose function runs elsewhere. It ends when its holder releases it, or
// a session TTL after the holder's last renewal, as this process's monotonic clock
// counts: the holder, which counts from before it sent that, has ended by then.
type remoteHolds struct {
	worker *Worker

	mu     sync.Mutex // guards what follows, and the holds
	byID   map[holds.ID]*hold
	closed bool

	noting sync.Mutex // guards noted
	noted  string     // the incarnation that Config.OnHold was called with last
}

// hold is a key that another member holds, or waits for.
type hold struct {
	key     string
	from    string             // address of the member
	cancel  context.CancelFunc // of the wait; nil once the key is held
	settled chan struct{}      // closed when the wait is over

	// While the key is held.
	x       Execution
	expires time.Time
	timer   *time.Timer // calls expire
}

// serve answers a call about holds.
func (hs *remoteHolds) serve(w *link.ResponseWriter, r *link.ServerRequest, body []byte) {
	switch r.Method {
	case holds.Acquire:
		hs.serveAcquire(w, r, body)
		return
	case holds.Renew, holds.Release:
		ids, err := holds.ParseIDs(body)
		switch {
		case err != nil:
			answerCall(w, http.StatusBadRequest, []byte(err.Error()))
		case r.Method == holds.Renew:
			answerCall(w, http.StatusOK, hs.renew(ids).Append(nil))
		default:
			hs.releaseAll(ids)
			answerCall(w, http.StatusOK, nil)
		}
		return
	}
	answerCall(w, http.StatusNotImplemented, fmt.Appendf(nil, "worker: %q is no call between members that this worker knows", r.Method))
}

func (hs *remoteHolds) serveAcquire(w *link.ResponseWriter, r *link.ServerRequest, body []byte) {
	var grant holds.Grant
	req, err := holds.ParseRequest(body)
	if err != nil {
		answerCall(w, http.StatusBadRequest, []byte(err.Error()))
		return
	}
	if _, held := splitBaggage(fieldValues(r.Fields, "Baggage")); slices.Contains(held, hashOf(r.Key)) {
		err = fmt.Errorf("%w: %q", ErrNested, r.Key)
	} else {
		grant, err = hs.acquire(r, req)
	}
	if err != nil {
		hs.worker.counts.refused(r.Context(), err)
	}
	switch refusal := refusalOf(err); {
	case err == nil:
		answerCall(w, http.StatusOK, grant.Append(nil))
	case refusal != nil:
		_ = w.Refuse(refusal) // nothing of the body is left to read, so it can only fail with the connection
	default:
		answerCall(w, problemOf(err).Status(), []byte(err.Error()))
	}
}

// acquire waits for key, and holds it then for who asks. One who repeats himself
// gets what he has already.
func (hs *remoteHolds) acquire(r *link.ServerRequest, req holds.Request) (holds.Grant, error) {
	ctx, key := r.Context(), r.Key
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	h, err := hs.enter(wait, cancel, r, req.ID)
	if err != nil {
		return holds.Grant{}, err
	}
	if h.cancel != nil {
		if err := hs.await(wait, h, req, r); err != nil {
			return holds.Grant{}, err
		}
	}
	if err := hs.note(); err != nil {
		hs.releaseAll([]holds.ID{req.ID})
		return holds.Grant{}, err
	}
	promise, live := hs.promise()
	hs.mu.Lock()
	defer hs.mu.Unlock()
	given := wait.Err() != nil || ctx.Err() != nil // up meanwhile; wait follows ctx a little later
	if hs.byID[req.ID] == h && (given || !live(h)) {
		hs.endLocked(req.ID)
	}
	if hs.byID[req.ID] != h {
		return holds.Grant{}, fmt.Errorf("%w: what was to hold key %q has ended already", ErrUnavailable, key)
	}
	return holds.Grant{Token: h.x.token, Promise: promise}, nil
}

// enter returns the hold of that id: one that is held already, or a new one, for
// which the caller has to wait, with cancel set.
func (hs *remoteHolds) enter(ctx context.Context, cancel context.CancelFunc, r *link.ServerRequest, id holds.ID) (*hold, error) {
	for {
		hs.mu.Lock()
		h := hs.byID[id]
		switch {
		case hs.closed:
			hs.mu.Unlock()
			return nil, ErrUnavailable
		case h == nil && len(hs.byID) >= hs.worker.cfg.MaxHolds:
			hs.mu.Unlock()
			return nil, fmt.Errorf("%w: %d keys are held for other members (Config.MaxHolds)", ErrBusy, hs.worker.cfg.MaxHolds)
		case h == nil:
			h = &hold{key: r.Key, from: r.Remote(), cancel: cancel, settled: make(chan struct{})}
			if hs.byID == nil {
				hs.byID = make(map[holds.ID]*hold)
			}
			hs.byID[id] = h
			hs.mu.Unlock()
			return h, nil
		case h.key != r.Key:
			hs.mu.Unlock()
			return nil, fmt.Errorf("%w: the hold is one of another key", gateway.ErrBadKey)
		case h.cancel == nil:
			h.expires = time.Now().Add(hs.worker.settings.TTL)
			hs.mu.Unlock()
			return h, nil
		}
		h.cancel() // the call before this one was given up
		hs.mu.Unlock()
		select {
		case <-h.settled:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// await waits for the key of h, which is new.
func (hs *remoteHolds) await(ctx context.Context, h *hold, req holds.Request, r *link.ServerRequest) error {
	defer close(h.settled)
	x, err := hs.worker.admit(ctx, h.key, asking{try: req.Try, epoch: r.Epoch, share: r})
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if err != nil {
		hs.forgetLocked(req.ID)
		return err
	}
	ttl := hs.worker.settings.TTL
	x.run.parent = context.WithoutCancel(ctx) // the execution outlives the call
	h.x, h.cancel, h.expires = x, nil, time.Now().Add(ttl)
	h.timer = time.AfterFunc(ttl, func() { hs.expire(req.ID, h) })
	return nil
}

// note tells Config.OnHold of the incarnation, once.
func (hs *remoteHolds) note() error {
	cfg, id := &hs.worker.cfg, hs.worker.Incarnation()
	hs.noting.Lock()
	defer hs.noting.Unlock()
	if hs.noted == id {
		return nil
	}
	switch {
	case cfg.OnHold != nil:
		if err := cfg.OnHold(id); err != nil {
			return fmt.Errorf("%w: writing down that keys are held for other members: %w", ErrUnavailable, err)
		}
	case cfg.OnIncarnation != nil:
		return errors.New("worker: keys are not held for other members: Config.OnIncarnation is set, and Config.OnHold is not")
	}
	hs.noted = id
	return nil
}

// promise returns how much longer this worker can vouch for the holds of which
// live, called after that, says that they go on. The lease is read before what
// cancels is compared: it may be that of the worker's next incarnation.
func (hs *remoteHolds) promise() (p holds.Promise, live func(*hold) bool) {
	now, lease := hs.worker.instant(time.Now()), hs.worker.lease.Load()
	p = holds.Promise{Cancel: lease.Cancel.Left(now), Surrender: lease.Surrender.Left(now)}
	return p, func(h *hold) bool {
		return h != nil && h.cancel == nil && h.x.run.part.cancels.Load() == h.x.run.cancels
	}
}

// renew lets those holds go on that have not ended, and whose keys this worker has
// not lost.
func (hs *remoteHolds) renew(ids []holds.ID) holds.Renewal {
	promise, live := hs.promise()
	r := holds.Renewal{Promise: promise, Held: make([]bool, len(ids))}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	expires := time.Now().Add(hs.worker.settings.TTL)
	for i, id := range ids {
		if h := hs.byID[id]; live(h) {
			h.expires, r.Held[i] = expires, true
		}
	}
	return r
}

// releaseAll ends holds, and the waits for them.
func (hs *remoteHolds) releaseAll(ids []holds.ID) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, id := range ids {
		hs.endLocked(id)
	}
}

// endLocked ends a hold, or the wait for it, if there is one.
func (hs *remoteHolds) endLocked(id holds.ID) {
	h := hs.byID[id]
	switch {
	case h == nil:
	case h.cancel != nil:
		h.cancel()
	default:
		h.timer.Stop()
		hs.forgetLocked(id)
		hs.worker.release(h.x)
	}
}

func (hs *remoteHolds) forgetLocked(id holds.ID) {
	if delete(hs.byID, id); len(hs.byID) == 0 {
		hs.byID = nil // a map never shrinks
	}
}

// expire ends a hold whose holder has not renewed it for a TTL.
func (hs *remoteHolds) expire(id holds.ID, h *hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.byID[id] != h {
		return
	}
	if left := time.Until(h.expires); left > 0 {
		h.timer.Reset(left)
		return
	}
	hs.worker.log.Warn("a key was held for another member that has not been heard of for a session TTL: it is free again", "key", h.key, "token", h.x.token)
	hs.endLocked(id)
}

// close forgets all holds of a worker that is closed: its session expires by
// itself, later than what was promised.
func (hs *remoteHolds) close() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.closed = true
	for _, h := range hs.byID {
		if h.cancel != nil {
			h.cancel()
		} else {
			h.timer.Stop()
		}
	}
	hs.byID = nil
}
