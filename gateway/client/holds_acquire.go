package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/localmutex/locking"
	"github.com/keyway-go/keyway/ring"
)

// acquisition is one call that acquires a key at its owner, for a caller or for a line of callers.
// One goroutine owns it. It ends with held or local set, or with an error, after which unsure
// owners are told to release the key.
type acquisition struct {
	want
	client *Client
	ctx    context.Context // of the wait
	caller context.Context // of the work
	traced context.Context // caller with the span of the call, if it has one
	key    string
	line   *callerLine // of the callers that it asks for; nil for one caller alone
	turns  int         // their number, without the first

	id     holds.ID
	held   *held        // once the key is held elsewhere
	local  *Lock        // once it is held by this process's worker
	unsure []*send.Peer // owners that may hold the key for id without having said so; in use
}

// acquire asks for the key. A done context always loses.
func (a *acquisition) acquire() error {
	workers := a.client.workers
	forOwner := workers.Routes.Patience
	if a.try {
		forOwner = min(forOwner, a.client.holder.Policy.TTL/5)
	}
	err := workers.Routes.Route(a.ctx, workers.Ring.Partition(a.key), forOwner, a.attempt)
	a.settleUnsure()
	switch {
	case err != nil:
		return err
	case a.confirmed() && a.ctx.Err() == nil:
		return nil
	}
	a.giveBack()
	return errAskAgain
}

func (a *acquisition) attempt(t routing.Target) (out routing.Outcome) {
	c := a.client
	switch {
	case c.closed.Load():
		return routing.Outcome{Err: errClientClosed}
	case c.isOwn(t, a.want) && a.line != nil:
		return routing.Outcome{Err: errAskAgain}
	case c.isOwn(t, a.want):
		return a.attemptLocal(t)
	case !t.Link:
		return send.NoLink(t)
	}
	req := &link.Request{Method: holds.Acquire, Key: a.key, Epoch: t.Epoch}
	if c.local != nil {
		for _, value := range c.local.Baggage(a.ctx, nil) {
			req.Fields = link.AppendField(req.Fields, "Baggage", value)
		}
	}
	if span := send.BeginLockAttempt(a.traced, c.spans, c.workers.Ring, req, t.Member); span != nil {
		defer func() { send.EndLockAttempt(span, out) }()
	}
	p := c.workers.Peer(t.Member)
	p.Use()
	sent := c.holder.Now()
	status, body, err := p.Call(undated{a.ctx}, req, holds.Request{ID: a.id, Try: a.try, Shared: a.shared, Lease: a.ttl, Turns: a.turns, Label: a.label}.Append(nil))
	if err != nil {
		return a.failed(t, p, err)
	}
	grant, err := holds.ParseGrant(body)
	switch {
	case status != http.StatusOK:
		p.Leave()
		why := gateway.ErrWaited
		if a.try {
			why = gateway.ErrLocked
		}
		return routing.Outcome{Err: refusalOf(t, a.key, why, status, body)}
	case err != nil:
		return a.failed(t, p, err)
	}
	a.held = a.hold(p, t.Member, holder.New(&c.holder.Policy, sent, holder.Grant(grant)))
	return routing.Outcome{}
}

// hold returns the key as a hold at a worker. Only the acquisition knows it so far.
func (a *acquisition) hold(p *send.Peer, owner ring.Member, l holder.Lock) *held {
	h := &held{
		ref: holds.Ref{ID: a.id, Partition: a.client.workers.Ring.Partition(a.key), Token: l.Token()},
		key: a.key, label: a.label, line: a.line, owner: owner, peer: p, holder: &a.client.holder,
	}
	h.Init(&a.client.holder.Set, h, []string{a.key}, a.shared, l)
	return h
}

// isOwn reports whether a key is held by an execution at this process's worker, which lasts for as long as its
// session, a TTL at most.
func (c *Client) isOwn(t routing.Target, w want) bool {
	return c.isLocal(t) && w.ttl <= c.holder.Policy.TTL && !w.shared
}

// undated is a context that hides its deadline. A worker that sees the deadline pass before its
// caller does would answer so.
type undated struct{ context.Context }

func (undated) Deadline() (end time.Time, ok bool) { return time.Time{}, false }

// failed says what it means that a call has failed: it can be repeated, since what
// the worker may hold for it is found by its id, or freed.
func (a *acquisition) failed(t routing.Target, p *send.Peer, err error) routing.Outcome {
	if errors.Is(err, link.ErrNotStarted) || slices.Contains(a.unsure, p) {
		p.Leave()
	} else {
		a.unsure = append(a.unsure, p)
	}
	return send.Repeatable(a.ctx, t, err)
}

// refusalOf returns the error of a worker's answer that does not do what a call about key asks. why is the error if others
// have the key.
func refusalOf(t routing.Target, key string, why error, status int, body []byte) error {
	text := bytes.TrimSpace(body[:min(len(body), 1024)])
	o, err := holds.ParseOccupancy(body)
	switch {
	case status == http.StatusBadRequest: // the key has been checked before the worker was asked
		return fmt.Errorf("%w: worker %s at %s says: %s", locking.ErrOption, t.Name, t.Addr, text)
	case status != http.StatusConflict || err != nil:
		return fmt.Errorf("worker %s at %s answers %d %s", t.Name, t.Addr, status, text)
	}
	by := "is held by an execution"
	if o.Lock {
		by = fmt.Sprintf("is locked by %q for another %v", o.Label, o.Left.Round(100*time.Millisecond))
	} else if !o.Held {
		by = "was held until now"
	}
	return &holds.Refused{Why: why, Key: key, Text: fmt.Sprintf("%s, at worker %s (%s) with token %d, and %d wait", by, t.Name, t.Addr, o.Token, o.Waiting)}
}

// heldBy names the caller of the Client that keeps key from a caller with w; "" if only the owner
// knows.
func (hs *holdings) heldBy(key string, w want) string {
	hs.Lock()
	defer hs.Unlock()
	h := hs.byKey[key]
	if h == nil || h.Shared && w.shared || !h.Lock.Sure(hs.Now()) {
		return ""
	}
	return fmt.Sprintf("locked by %q, another caller of this client, at worker %s (%s) with token %d", h.label, h.owner.Name, h.owner.Addr, h.Lock.Token())
}

// attemptLocal asks the worker of this process.
func (a *acquisition) attemptLocal(t routing.Target) routing.Outcome {
	wait := time.Duration(0)
	if end, _ := a.ctx.Deadline(); a.wait > 0 {
		wait = max(time.Until(end), 1)
	}
	ctx, token, release, err := a.client.local.Acquire(a.traced, a.key, t.Epoch, a.try, wait)
	if err == nil {
		a.local = &Lock{client: a.client, key: a.key, token: token, ctx: ctx, free: release}
		return routing.Outcome{}
	}
	if refusal, refused := errors.AsType[*link.RefusedError](err); refused && refusal.Reason != link.Busy {
		return send.OutcomeOf(a.ctx, t.Member, errors.Join(link.ErrNotStarted, err), nil)
	}
	return routing.Outcome{Err: err}
}

// settleUnsure ends the uncertainty about workers that may hold the key. If one does, the others
// do not, as it is the same hold that goes along with its partition: to release it anywhere
// would end it, even later.
func (a *acquisition) settleUnsure() {
	for _, p := range a.unsure {
		if a.held != nil {
			p.Leave()
		} else {
			hs := &a.client.holder
			hs.giveBack(a.hold(p, ring.Member{}, holder.New(&hs.Policy, hs.Now(), holder.Grant{Lease: a.ttl})))
		}
	}
	a.unsure = nil
}

func (a *acquisition) lock() *Lock {
	if a.local != nil {
		return a.local
	}
	l, _ := a.client.holder.start(a.caller, a.held)
	return l
}

// giveBack frees the key before any work with it has begun.
func (a *acquisition) giveBack() {
	if a.local != nil {
		a.local.free()
	} else {
		a.client.holder.giveBack(a.held)
	}
}

// confirmed reports whether the key is held, after a wait however long. It renews a hold for as long as the owner may
// have it.
func (a *acquisition) confirmed() bool {
	if a.local != nil {
		return true
	}
	hs, h := &a.client.holder, a.held
	for began, asked := hs.Now(), false; ; asked = true {
		hs.Lock()
		to, d := callee{method: holds.Renew, partition: h.ref.Partition}, h.Lock.Confirm(hs.Now())
		hs.Unlock()
		switch {
		case d == holder.Begin || d == holder.CancelGone:
			return d == holder.Begin
		case asked && hs.Now().Mono-began.Mono >= max(hs.Policy.TTL, a.ttl):
			return false
		case d == holder.Renew:
			to.peer = h.peer
		}
		if asked && !wake.Sleep(hs.every(), a.ctx.Done()) {
			return false
		}
		hs.renew(to, []*held{h})
	}
}
