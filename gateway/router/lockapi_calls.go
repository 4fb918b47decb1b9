package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/router/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring/lease"
)

// lockCall is a call about a key to its owner.
type lockCall struct {
	method, key string
	fields      link.Fields
	body        func() []byte                                         // of the next attempt
	wait        func() time.Duration                                  // how long the owner may let the next attempt wait
	take        func(t routing.Target, status int, body []byte) error // takes the answer
}

// call makes a call to the owner of its key, wherever that is, as a request for the key finds it.
// All calls may be repeated, so it is made anew if its connection breaks.
func (s *LockService) call(ctx context.Context, c *lockCall) error {
	ws := &s.router.workers
	return ws.routes.Route(ctx, ws.ring.Partition(c.key), func(t routing.Target) (out routing.Outcome) {
		if !t.Link { // it may take it in a moment, when it has just started
			return routing.Outcome{Verdict: routing.NotStarted, Err: noLink(t)}
		}
		req := &link.Request{Method: c.method, Key: c.key, Epoch: t.Epoch, Fields: c.fields}
		if span := beginLockAttempt(ctx, s.router.spans, ws.ring, req, t.Member); span != nil {
			defer func() { endLockAttempt(span, out) }()
		}
		p := ws.peer(t)
		p.users.Add(1)
		defer p.leave()
		bound := s.patience()
		if c.wait != nil {
			bound += c.wait()
		}
		attempt, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		status, body, err := p.call(attempt, req, c.body())
		if err != nil {
			return repeatable(ctx, t, err)
		}
		return routing.Outcome{Err: c.take(t, status, body)}
	})
}

// patience is how long a worker may take for an answer for which nobody has to wait.
func (s *LockService) patience() time.Duration { return s.ttl() / 5 }

func (s *LockService) ttl() time.Duration { return s.router.members.Settings().WithDefaults().TTL }

// lockGrant is a key that is held at its owner.
type lockGrant struct {
	token int64
	sent  lease.Instant // before the call was sent that the owner has granted
	lasts time.Duration // from then on
}

// left returns for how long the key is held yet.
func (g lockGrant) left(now lease.Instant) time.Duration { return g.sent.Add(g.lasts).Left(now) }

// acquire asks for a key, for as long as the request waits.
func (s *LockService) acquire(ctx context.Context, q *lockRequest, key string) (g lockGrant, err error) {
	var fields link.Fields
	for _, value := range q.baggage {
		fields = link.AppendField(fields, "Baggage", value)
	}
	var wait time.Duration
	err = s.call(ctx, &lockCall{
		method: holds.Acquire, key: key, fields: fields,
		wait: func() time.Duration {
			wait = max(time.Until(q.until), 0)
			return wait
		},
		body: func() []byte {
			g.sent = s.now()
			return holds.Request{ID: q.lease.id(key), Try: wait == 0, Firm: true, Shared: q.shared, Lease: q.ttl, Wait: wait, Label: q.label}.Append(nil)
		},
		take: func(t routing.Target, status int, body []byte) error {
			if status != http.StatusOK {
				return lockRefusal(t, key, status, body)
			}
			return g.take(body)
		},
	})
	return g, err
}

// take takes what the owner grants.
func (g *lockGrant) take(body []byte) error {
	grant, err := holds.ParseGrant(body)
	if err != nil {
		return err
	}
	g.token, g.lasts = grant.Token, min(grant.Lease, grant.Surrender)
	return nil
}

// lockRefusal returns the error of a worker's answer.
func lockRefusal(t routing.Target, key string, status int, body []byte) error {
	text := bytes.TrimSpace(body[:min(len(body), 1024)])
	switch status {
	case http.StatusConflict:
		o, err := holds.ParseOccupancy(body)
		if err != nil {
			return err
		}
		return &lockHeldError{key, o}
	case http.StatusBadRequest:
		return badLock("%s", text)
	case http.StatusGone:
		return errLockGone
	case http.StatusLoopDetected:
		return fmt.Errorf("%w: %s", errNestedLock, text)
	case http.StatusServiceUnavailable:
		return fmt.Errorf("%w: worker %s at %s: %s", errNotNow, t.Name, t.Addr, text)
	}
	return fmt.Errorf("router: worker %s at %s answers %d %s", t.Name, t.Addr, status, text)
}

// lockHeldError says that others have a key.
type lockHeldError struct {
	key string
	by  holds.Occupancy
}

func (e *lockHeldError) Error() string { return fmt.Sprintf("router: others have key %q", e.key) }

var (
	errNestedLock = errors.New("router: the key is held along the request's own chain of calls")
	errNotNow     = errors.New("router: the worker does not do it now")
)

// extend has the locks of all keys of q go on, for its time from now on at least.
func (s *LockService) extend(ctx context.Context, q *lockRequest) (any, error) {
	grants, err := forEach(q.keys, func(key string) (g lockGrant, err error) {
		err = s.call(ctx, &lockCall{
			method: holds.Extend, key: key,
			body: func() []byte {
				g.sent = s.now()
				return holds.Extension{ID: q.lease.id(key), Firm: true, Lease: q.ttl}.Append(nil)
			},
			take: func(t routing.Target, status int, body []byte) error {
				if status != http.StatusOK {
					return lockRefusal(t, key, status, body)
				}
				return g.take(body)
			},
		})
		return g, err
	})
	if err != nil {
		return nil, err
	}
	return s.answer(q, grants)
}

// unlock frees all keys of q.
func (s *LockService) unlock(ctx context.Context, q *lockRequest) error {
	_, err := forEach(q.keys, func(key string) (struct{}, error) { return struct{}{}, s.release(ctx, q.lease, key) })
	return err
}

// release frees a key. The error is errLockGone if it was not held.
func (s *LockService) release(ctx context.Context, l lockLease, key string) error {
	ref := holds.Ref{ID: l.id(key), Partition: s.router.ring.Partition(key)}
	for released := false; ; {
		var state holds.State
		err := s.call(ctx, &lockCall{
			method: holds.Release, key: key,
			body: func() []byte { return holds.AppendRefs(nil, []holds.Ref{ref}) },
			take: func(t routing.Target, status int, body []byte) error {
				if status != http.StatusOK {
					return lockRefusal(t, key, status, body)
				}
				states, err := holds.ParseStates(body, 1)
				if err == nil {
					state = states[0]
				}
				return err
			},
		})
		switch {
		case err != nil:
			return err
		case state == holds.Released:
			released = true
		case state == holds.Held, released:
			return nil
		default:
			return errLockGone
		}
	}
}

// giveUp frees what may be held of keys for a request that is not told of it. It leaves alone
// what has a lease that the client has chosen: the same request may have come another time, and
// have been told.
func (s *LockService) giveUp(q *lockRequest, keys []string) {
	if q.chosen {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.ttl())
	defer cancel()
	_, _ = forEach(keys, func(key string) (struct{}, error) { return struct{}{}, s.release(ctx, q.lease, key) })
}

// giveBack frees what a request with a lease that the client has chosen has made of locks, and is
// not told of, but for what the same request has found that came another time. That ends with
// its time.
func (s *LockService) giveBack(q *lockRequest, grants []lockGrant) {
	if !q.chosen {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.ttl())
	defer cancel()
	_, _ = forEach(q.keys[:len(grants)], func(key string) (struct{}, error) {
		token := grants[slices.Index(q.keys, key)].token
		return struct{}{}, s.call(ctx, &lockCall{
			method: holds.Abandon, key: key,
			body: func() []byte { return holds.Made{ID: q.lease.id(key), Token: token}.Append(nil) },
			take: func(routing.Target, int, []byte) error { return nil },
		})
	})
}

// inspect asks who has a key.
func (s *LockService) inspect(ctx context.Context, key string) (o holds.Occupancy, err error) {
	err = s.call(ctx, &lockCall{
		method: holds.Inspect, key: key,
		body: func() []byte { return nil },
		take: func(t routing.Target, status int, body []byte) (err error) {
			if status != http.StatusOK {
				return lockRefusal(t, key, status, body)
			}
			o, err = holds.ParseOccupancy(body)
			return err
		},
	})
	return o, err
}

// forEach calls f with all of one list at once, and returns what it returns, with the first error in
// the list's order.
func forEach[E, T any](of []E, f func(E) (T, error)) ([]T, error) {
	list, errs := make([]T, len(of)), make([]error, len(of))
	var all sync.WaitGroup
	for i, e := range of {
		all.Go(func() { list[i], errs[i] = f(e) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}
