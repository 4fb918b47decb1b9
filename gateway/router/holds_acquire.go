package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/router/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// acquisition is the way to a key at its owner, for one call.
type acquisition struct {
	client *Client
	ctx    context.Context
	key    string
	try    bool

	id     holds.ID
	held   *held      // once the key is held elsewhere
	local  *localHold // once it is held by this process's worker
	unsure []*peer    // which may hold the key for id although they have not said so; in use
}

// attempt asks a worker for the key.
func (a *acquisition) attempt(t routing.Target) routing.Outcome {
	c := a.client
	switch {
	case c.closed.Load():
		return routing.Outcome{Err: errClientClosed}
	case c.local != nil && c.local.Incarnation() == t.Incarnation:
		return a.attemptLocal(t)
	case !t.Link:
		return routing.Outcome{Err: noLink(t)}
	}
	req := &link.Request{Method: holds.Acquire, Key: a.key, Epoch: t.Epoch}
	if c.local != nil {
		for _, value := range c.local.Baggage(a.ctx, nil) {
			req.Fields = link.AppendField(req.Fields, "Baggage", value)
		}
	}
	p := c.peer(t)
	p.users.Add(1)
	sent := c.holder.now()
	status, body, err := p.call(a.ctx, req, holds.Request{ID: a.id, Try: a.try, Label: c.label}.Append(nil))
	if err != nil {
		return a.failed(t, p, err)
	}
	grant, err := holds.ParseGrant(body)
	switch {
	case status != http.StatusOK:
		p.leave()
		return routing.Outcome{Err: refusedHold(t, a.try, status, body)}
	case err != nil:
		return a.failed(t, p, err)
	}
	a.held = &held{
		id: a.id, key: a.key, partition: c.ring.Partition(a.key), token: grant.Token, term: min(grant.Lease, c.holder.ttl),
		owner: t.Member, peer: p, holder: &c.holder, cancel: func(error) {},
	}
	a.held.extend(sent, grant.Promise)
	return routing.Outcome{}
}

// failed says what it means that a call has failed: it can be repeated, since what
// the worker may hold for it is found by its id, or freed.
func (a *acquisition) failed(t routing.Target, p *peer, err error) routing.Outcome {
	if errors.Is(err, link.ErrNotStarted) || slices.Contains(a.unsure, p) {
		p.leave()
	} else {
		a.unsure = append(a.unsure, p)
	}
	return repeatable(a.ctx, t, err)
}

// refusedHold returns the error of a worker's answer that does not hold the key. With try
// the worker was not to wait.
func refusedHold(t routing.Target, try bool, status int, body []byte) error {
	o, err := holds.ParseOccupancy(body)
	switch {
	case status != http.StatusConflict || err != nil:
		return fmt.Errorf("worker %s at %s answers %d %s", t.Name, t.Addr, status, bytes.TrimSpace(body[:min(len(body), 1024)]))
	case try:
		err = gateway.ErrHeld
	default:
		err = gateway.ErrWaited
	}
	return &occupiedError{err, t.Name, t.Addr, o}
}

// occupiedError is the answer of a worker at which others have the key.
type occupiedError struct {
	why          error
	worker, addr string
	by           holds.Occupancy
}

func (e *occupiedError) Unwrap() error { return e.why }

func (e *occupiedError) Error() string {
	holder := "an execution"
	if e.by.Lock {
		holder = strconv.Quote(e.by.Label)
	}
	return fmt.Sprintf("%v: %s has it at worker %s (%s) with token %d, and %d wait", e.why, holder, e.worker, e.addr, e.by.Token, e.by.Waiting)
}

// localHold is a key that is held at the worker of this process.
type localHold struct {
	ctx     context.Context
	token   int64
	release func()
}

// attemptLocal asks the worker of this process.
func (a *acquisition) attemptLocal(t routing.Target) routing.Outcome {
	ctx, token, release, err := a.client.local.Acquire(a.ctx, a.key, t.Epoch, a.try)
	if err == nil {
		a.local = &localHold{ctx, token, release}
		return routing.Outcome{}
	}
	if refusal, refused := errors.AsType[*link.RefusedError](err); refused && refusal.Reason != link.Busy {
		return outcomeOf(a.ctx, t.Member, errors.Join(link.ErrNotStarted, err), nil)
	}
	return routing.Outcome{Err: err}
}

// settle ends the uncertainty about workers that may hold the key. If one does, the others
// do not, as it is the same hold that goes along with its partition: to release it anywhere
// would end it, even later.
func (a *acquisition) settle() {
	for _, p := range a.unsure {
		if a.held != nil {
			p.leave()
		} else {
			a.client.holder.release(p, a.letGo())
		}
	}
	a.unsure = nil
}

// letGo returns the hold, to be released where it may be.
func (a *acquisition) letGo() letGo {
	return letGo{holds.Ref{ID: a.id, Partition: a.client.ring.Partition(a.key)}, a.key}
}

// confirm makes sure that the key is still held, if it was waited for: the lease runs
// from before it was asked for. It reports false if that fails for as long as the
// owner may hold it.
func (a *acquisition) confirm() bool {
	hs, h := &a.client.holder, a.held
	for began := hs.now(); ; {
		if hs.isFresh(h) {
			return true
		}
		if hs.renewNow(h) == nil && hs.isFresh(h) {
			return true
		}
		if hs.isLost(h) || hs.now().Mono-began.Mono >= hs.ttl {
			return false
		}
		select {
		case <-time.After(hs.every()):
		case <-a.ctx.Done():
			return false
		}
	}
}

// renewNow renews one hold, with which nobody works yet.
func (hs *holder) renewNow(h *held) error {
	hs.mu.Lock()
	away, p := h.away, h.peer
	hs.mu.Unlock()
	if away {
		return hs.renewAtOwner([]*held{h})
	}
	return hs.renew(p, []*held{h})
}

// isFresh reports whether work may start with h held.
func (hs *holder) isFresh(h *held) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	now := hs.now()
	return !h.lost && h.lease.Admits(now) && now.Mono-h.sent.Mono < hs.due()
}

func (hs *holder) isLost(h *held) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return h.lost
}
