package send

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

// OwnerCall is a call about holds of one partition to its owner.
type OwnerCall struct {
	Method, Key string
	Partition   int
	Fields      link.Fields
	Client      uint64                  // for whom it is made; 0 if that is not known
	Body        func() []byte           // of the next attempt
	OwnerBy     time.Time               // until when it waits for an owner; zero for as long as requests do
	Wait        func() time.Duration    // for how long the owner may let the next attempt wait; nil for not at all
	Spans       *spans.Maker            // nil for no spans
	Take        func(OwnerAnswer) error // gets the owner's answer
	Repeated    bool                    // an attempt that has no good answer may have had its effect
}

// OwnerAnswer is what an owner answers to a call about holds.
type OwnerAnswer struct {
	routing.Target
	Peer     *Peer
	Sent     time.Time // before the call was
	Status   int
	Body     []byte
	Repeated bool // a call before it may have had its effect
}

// AskOwner makes a call to the owner of its partition, wherever that is, as a request finds it. All calls about holds may be
// repeated, so it is made anew if its connection breaks.
func (ws *Workers) AskOwner(ctx context.Context, c *OwnerCall) error {
	forOwner := ws.Routes.Patience
	if !c.OwnerBy.IsZero() {
		forOwner = min(forOwner, time.Until(c.OwnerBy))
	}
	return ws.Routes.RouteWithin(ctx, c.Partition, forOwner, func(t routing.Target) (out routing.Outcome) {
		if !t.Link { // it may take it in a moment, when it has just started
			return routing.Outcome{Verdict: routing.NotStarted, Err: NoLink(t)}
		}
		req := &link.Request{Method: c.Method, Key: c.Key, Epoch: t.Epoch, Fields: c.Fields, Client: c.Client}
		if span := BeginLockAttempt(ctx, c.Spans, ws.Ring, req, t.Member); span != nil {
			defer func() { EndLockAttempt(span, out) }()
		}
		p := ws.Peer(t.Member)
		p.Use()
		defer p.Leave()
		patience := ws.Members.Settings().WithDefaults().TTL / 5
		if c.Wait != nil {
			patience += c.Wait()
		}
		attempt, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		body, sent := c.Body(), time.Now()
		status, answer, err := p.Call(attempt, req, body)
		if err != nil {
			c.Repeated = c.Repeated || !errors.Is(err, link.ErrNotStarted)
			return Repeatable(ctx, t, err)
		}
		err = c.Take(OwnerAnswer{t, p, sent, status, answer, c.Repeated})
		c.Repeated = c.Repeated || err != nil
		return routing.Outcome{Err: err}
	})
}

// NoLink is the error of a worker that does not take calls.
func NoLink(t routing.Target) error {
	return fmt.Errorf("worker %s at %s does not take the link, which a hold needs", t.Name, t.Addr)
}

// Repeatable returns the outcome of a call about holds that has failed: another one may
// follow, whatever has become of it.
func Repeatable(ctx context.Context, t routing.Target, err error) routing.Outcome {
	switch {
	case errors.Is(err, link.ErrNotStarted):
		return OutcomeOf(ctx, t.Member, err, nil)
	case ctx.Err() != nil:
		return routing.Outcome{Err: context.Cause(ctx)}
	}
	return routing.Outcome{Verdict: routing.NotStarted, Err: fmt.Errorf("%s at %s: %w", t.Name, t.Addr, err)}
}

// Call makes a call about holds to the worker, and returns the answer's status and body. All of these may be made again.
func (p *Peer) Call(ctx context.Context, req *link.Request, body []byte) (status int, answer []byte, err error) {
	req.Repeatable = true
	return p.Ask(ctx, req, body, holds.MaxBody)
}
