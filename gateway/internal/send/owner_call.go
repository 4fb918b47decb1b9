package send

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/localmutex/locking"
	"github.com/keyway-go/keyway/ring"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// OwnerCall is a call about holds of one partition to its owner.
type OwnerCall struct {
	Method, Key string // the key is one of the partition
	Fields      link.Fields
	Client      uint64 // that the call is made for; 0 if unknown
	Body        []byte
	OwnerBy     time.Time               // ends the wait for an owner; zero for the bound of requests
	Wait        time.Duration           // for which an attempt may wait at the owner
	Before      func()                  // is called before each attempt, to set Body and Wait; may be nil
	Spans       *spans.Maker            // nil for no spans
	Take        func(OwnerAnswer) error // gets the owner's answer
	Repeated    bool                    // an attempt without a good answer may have had its effect
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
	return ws.Routes.Route(ctx, ws.Ring.Partition(c.Key), forOwner, func(t routing.Target) (out routing.Outcome) {
		if !t.Link {
			return NoLink(t)
		}
		req := &link.Request{Method: c.Method, Key: c.Key, Epoch: t.Epoch, Fields: c.Fields, Client: c.Client}
		if span := BeginLockAttempt(ctx, c.Spans, ws.Ring, req, t.Member); span != nil {
			defer func() { EndLockAttempt(span, out) }()
		}
		p := ws.Peer(t.Member)
		p.Use()
		defer p.Leave()
		if c.Before != nil {
			c.Before()
		}
		attempt, cancel := context.WithTimeout(ctx, ws.Members.Settings().WithDefaults().TTL/5+c.Wait)
		defer cancel()
		sent := time.Now()
		status, answer, err := p.Call(attempt, req, c.Body)
		if err != nil {
			c.Repeated = c.Repeated || !errors.Is(err, link.ErrNotStarted)
			return Repeatable(ctx, t, err)
		}
		err = c.Take(OwnerAnswer{t, p, sent, status, answer, c.Repeated})
		c.Repeated = c.Repeated || err != nil
		return routing.Outcome{Err: err}
	})
}

// NoLink is the outcome at a worker that does not take calls. A worker that has just started takes them in a moment.
func NoLink(t routing.Target) routing.Outcome {
	return routing.Outcome{Verdict: routing.NotStarted, Err: fmt.Errorf("worker %s at %s does not speak the link protocol, which a hold needs", t.Name, t.Addr)}
}

// Repeatable returns the outcome of a failed call about holds: another attempt may follow, even if
// the call had its effect.
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

// KeyAttributes returns what spans say of a key.
func KeyAttributes(m *spans.Maker, keys ring.Config, key string) []attribute.KeyValue {
	return append(m.KeyAttributes(key), spans.Partition.Int(keys.Partition(key)))
}

// BeginLockAttempt begins the span of a call to a worker about a lock, within that of ctx, and has the call
// carry it. It returns nil if there is none. Without a span that is kept the call carries that of ctx.
func BeginLockAttempt(ctx context.Context, m *spans.Maker, keys ring.Config, req *link.Request, to ring.Member) (span trace.Span) {
	if m == nil {
		return nil
	}
	sc := trace.SpanContextFromContext(ctx)
	if trace.SpanFromContext(ctx).IsRecording() {
		_, span = m.Start(ctx, strings.TrimPrefix(req.Method, ":"), trace.SpanKindClient, func() []attribute.KeyValue {
			return append(append(KeyAttributes(m, keys, req.Key), spans.Worker.String(to.Name)), spans.ServerAttributes(to.Addr)...)
		})
		sc = span.SpanContext()
	}
	req.Fields = req.Fields[:len(req.Fields):len(req.Fields)] // of which there may be another attempt
	for name, value := range spans.Fields(sc) {
		req.Fields = link.AppendField(req.Fields, name, value)
	}
	return span
}

// EndLockAttempt ends the span of a call, unless it is nil.
func EndLockAttempt(span trace.Span, out routing.Outcome) {
	if span == nil {
		return
	}
	switch {
	case out.Verdict != routing.Settled:
		spans.Fail(span, attemptFailure(out))
	case out.Err != nil:
		spans.Fail(span, LockFailure(out.Err))
	}
	span.End()
}

// LockFailure says why there is no lock.
func LockFailure(err error) string {
	switch {
	case errors.Is(err, gateway.ErrLocked):
		return problem.KeyHeld.String()
	case errors.Is(err, gateway.ErrWaited):
		return problem.KeyWaited.String()
	case errors.Is(err, locking.ErrNotOwner):
		return problem.LockGone.String()
	}
	return FailureOf(err)
}
