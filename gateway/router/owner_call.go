package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// ownerCall is a call about holds of one partition to its owner.
type ownerCall struct {
	method, key string
	partition   int
	fields      link.Fields
	client      uint64                  // for whom it is made; 0 if that is not known
	body        func() []byte           // of the next attempt
	owner       time.Time               // until when it waits for an owner; zero for as long as requests do
	wait        func() time.Duration    // for how long the owner may let the next attempt wait; nil for not at all
	spans       *spans.Maker            // nil for no spans
	take        func(ownerAnswer) error // gets the owner's answer
	repeated    bool                    // an attempt that has no good answer may have had its effect
}

// ownerAnswer is what an owner answers to a call about holds.
type ownerAnswer struct {
	routing.Target
	peer     *peer
	sent     time.Time // before the call was
	status   int
	body     []byte
	repeated bool // a call before it may have had its effect
}

// ask makes a call to the owner of its partition, wherever that is, as a request finds it. All calls about holds may be
// repeated, so it is made anew if its connection breaks.
func (ws *workers) ask(ctx context.Context, c *ownerCall) error {
	forOwner := ws.routes.Patience
	if !c.owner.IsZero() {
		forOwner = min(forOwner, time.Until(c.owner))
	}
	return ws.routes.RouteWithin(ctx, c.partition, forOwner, func(t routing.Target) (out routing.Outcome) {
		if !t.Link { // it may take it in a moment, when it has just started
			return routing.Outcome{Verdict: routing.NotStarted, Err: noLink(t)}
		}
		req := &link.Request{Method: c.method, Key: c.key, Epoch: t.Epoch, Fields: c.fields, Client: c.client}
		if span := beginLockAttempt(ctx, c.spans, ws.ring, req, t.Member); span != nil {
			defer func() { endLockAttempt(span, out) }()
		}
		p := ws.peer(t.Member)
		p.use()
		defer p.leave()
		patience := ws.members.Settings().WithDefaults().TTL / 5
		if c.wait != nil {
			patience += c.wait()
		}
		attempt, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		body, sent := c.body(), time.Now()
		status, answer, err := p.call(attempt, req, body)
		if err != nil {
			c.repeated = c.repeated || !errors.Is(err, link.ErrNotStarted)
			return repeatable(ctx, t, err)
		}
		err = c.take(ownerAnswer{t, p, sent, status, answer, c.repeated})
		c.repeated = c.repeated || err != nil
		return routing.Outcome{Err: err}
	})
}

// noLink is the error of a worker that does not take calls.
func noLink(t routing.Target) error {
	return fmt.Errorf("router: worker %s at %s does not take the link, which a hold needs", t.Name, t.Addr)
}

// repeatable returns the outcome of a call about holds that has failed: another one may
// follow, whatever has become of it.
func repeatable(ctx context.Context, t routing.Target, err error) routing.Outcome {
	switch {
	case errors.Is(err, link.ErrNotStarted):
		return outcomeOf(ctx, t.Member, err, nil)
	case ctx.Err() != nil:
		return routing.Outcome{Err: context.Cause(ctx)}
	}
	return routing.Outcome{Verdict: routing.NotStarted, Err: fmt.Errorf("%s at %s: %w", t.Name, t.Addr, err)}
}

// call makes a call about holds to the worker, and returns the answer's status and body. All of these may be made again.
func (p *peer) call(ctx context.Context, req *link.Request, body []byte) (status int, answer []byte, err error) {
	req.Repeatable = true
	return p.ask(ctx, req, body, holds.MaxBody)
}
