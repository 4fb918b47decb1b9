package lockservice

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// callOwner makes a call about a key to its owner, and returns what read finds in the answer of an owner that does what
// the call says.
func callOwner[T any](ctx context.Context, s *Service, c *send.OwnerCall, read func(send.OwnerAnswer) (T, error)) (got T, err error) {
	c.Spans = s.spans
	c.Take = func(a send.OwnerAnswer) (err error) {
		if a.Status != http.StatusOK {
			return lockRefusal(c.Key, a)
		}
		got, err = read(a)
		return err
	}
	err = s.workers.AskOwner(ctx, c)
	return got, err
}

func (s *Service) ttl() time.Duration {
	return s.workers.Members.Settings().WithDefaults().TTL
}

// grace is for how long a request without a wait waits for an owner, and how much longer than its wait a request
// waits for an answer.
func (s *Service) grace() time.Duration { return s.ttl() / 5 }

// lockGrant is a key that is held at its owner.
type lockGrant struct {
	token int64
	sent  lease.Instant // before the call was sent that the owner has granted
	lasts time.Duration // from then on
}

// left returns how much longer the key is held.
func (g lockGrant) left(now lease.Instant) time.Duration { return g.sent.Add(g.lasts).Left(now) }

// acquire asks for a key, for as long as the request waits.
func (s *Service) acquire(ctx context.Context, q *lockRequest, key string) (lockGrant, error) {
	var fields link.Fields
	for _, value := range q.baggage {
		fields = link.AppendField(fields, "Baggage", value)
	}
	ownerBy := q.until
	if q.wait == 0 {
		ownerBy = ownerBy.Add(s.grace())
	}
	patience := max(time.Until(ownerBy), 0) + s.grace()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errNoAnswer)
	defer cancel()
	call := &send.OwnerCall{Method: holds.Acquire, Key: key, Fields: fields, Client: q.client, OwnerBy: ownerBy}
	call.Before = func() {
		q.asked = max(q.asked, slices.Index(q.keys, key)+1)
		call.Wait = max(time.Until(q.until), 0)
		call.Body = holds.Request{ID: q.lease.id(key), Call: q.number, Try: call.Wait == 0, Firm: true, Shared: q.shared, Lease: q.ttl, Wait: call.Wait, Label: q.label}.Append(nil)
	}
	return callOwner(ctx, s, call, s.grant)
}

func (s *Service) grant(a send.OwnerAnswer) (lockGrant, error) {
	grant, err := holds.ParseGrant(a.Body)
	return lockGrant{grant.Token, lease.At(s.base, a.Sent), min(grant.Lease, grant.Surrender)}, err
}

// lockRefusal returns the error of a worker's answer about a key.
func lockRefusal(key string, a send.OwnerAnswer) error {
	text := bytes.TrimSpace(a.Body[:min(len(a.Body), 1024)])
	switch a.Status {
	case http.StatusConflict:
		o, err := holds.ParseOccupancy(a.Body)
		if err != nil {
			return err
		}
		answer, holder := problem.Of(problem.LockHeld), holderOf(key, o)
		answer.Holder = &holder
		return refuse(answer, "another caller holds key %q: %w", key, gateway.ErrLocked)
	case http.StatusBadRequest:
		return badLock("%s", text)
	case http.StatusUnprocessableEntity:
		text = bytes.TrimPrefix(text, []byte("worker: "))
		return refuse(problem.Of(problem.LockOther).With(string(text)), "a request for a lock: %s", text)
	case http.StatusGone:
		return errLockGone
	case http.StatusLoopDetected:
		return refuse(problem.Of(problem.Nested), "the key is held along the request's own chain of calls: %s", text)
	case http.StatusServiceUnavailable:
		return refuse(problem.Of(problem.Unavailable), "worker %s at %s does not take the call now: %s", a.Name, a.Addr, text)
	}
	return fmt.Errorf("lockservice: worker %s at %s answers %d %s", a.Name, a.Addr, a.Status, text)
}

var errNoAnswer = refuse(problem.Of(problem.Unavailable), "the worker has not answered within the request's wait")

// extend extends the locks of all keys of q, for at least its TTL from now on.
func (s *Service) extend(ctx context.Context, q *lockRequest) (any, error) {
	grants := make([]lockGrant, len(q.keys))
	err := holds.Each(q.keys, func(i int, key string) (err error) {
		extension := holds.Request{ID: q.lease.id(key), Firm: true, Lease: q.ttl}
		grants[i], err = callOwner(ctx, s, &send.OwnerCall{Method: holds.Extend, Key: key, Body: extension.Append(nil)}, s.grant)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.answer(q, grants)
}

func (s *Service) unlock(ctx context.Context, q *lockRequest) error {
	return holds.Each(q.keys, func(_ int, key string) error { return s.release(ctx, q.lease, key) })
}

// release frees a key. The error is errLockGone if it was not held.
func (s *Service) release(ctx context.Context, l lockLease, key string) error {
	ref := holds.AppendRefs(nil, []holds.Ref{{ID: l.id(key), Partition: s.workers.Ring.Partition(key)}})
	for released := false; ; {
		answers, err := callOwner(ctx, s, &send.OwnerCall{Method: holds.Release, Key: key, Body: ref}, func(a send.OwnerAnswer) (holds.Answers, error) { return holds.ParseAnswers(a.Body, 1) })
		switch {
		case err != nil:
			return err
		case answers.States[0] == holder.Released:
			released = true
		case answers.States[0] == holder.Held, released:
			return nil
		default:
			return errLockGone
		}
	}
}

// giveUp frees keys that may be held for a request whose client does not learn of them. Owners may
// have granted the keys in asked, and have granted those in granted. A lease that the client has
// chosen may also belong to another attempt of the request, whose answer arrived. Only the locks of
// this attempt are then freed; the rest of the lease ends with its TTL.
func (s *Service) giveUp(q *lockRequest, asked, granted []string) {
	ctx, cancel := context.WithTimeout(context.Background(), s.ttl())
	defer cancel()
	if !q.chosen {
		_ = holds.Each(asked, func(_ int, key string) error { return s.release(ctx, q.lease, key) })
		return
	}
	_ = holds.Each(granted, func(_ int, key string) error {
		made := holds.Request{ID: q.lease.id(key), Call: q.number}
		_, err := callOwner(ctx, s, &send.OwnerCall{Method: holds.Abandon, Key: key, Body: made.Append(nil)},
			func(send.OwnerAnswer) (none struct{}, _ error) { return none, nil })
		return err
	})
}

func (s *Service) inspect(ctx context.Context, key string) (holds.Occupancy, error) {
	return callOwner(ctx, s, &send.OwnerCall{Method: holds.Inspect, Key: key}, func(a send.OwnerAnswer) (holds.Occupancy, error) { return holds.ParseOccupancy(a.Body) })
}
