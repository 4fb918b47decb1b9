package router

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/router/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring/lease"
)

// isAway reports whether a partition is to be looked for at another worker than p, which
// cannot be reached.
func (hs *holder) isAway(partition int, p *peer) bool {
	t, ok := hs.client.routes.Owner(partition)
	return ok && hs.client.peer(t) != p
}

// follow renews holds of one partition at its owner, wherever that is, and keeps to it
// from then on.
func (hs *holder) follow(partition int, list []*held) {
	for part := range slices.Chunk(list, holds.MaxRefs) {
		_ = hs.renewAtOwner(part) // again at the next tick
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	delete(hs.following, partition)
}

// renewAtOwner asks whoever owns the partition of holds to let them go on.
func (hs *holder) renewAtOwner(list []*held) error {
	ctx, cancel := context.WithTimeout(hs.ctx, hs.ttl)
	defer cancel()
	refs := refsOf(list)
	err := hs.askOwner(ctx, holds.Renew, list[0].key, refs, func(t routing.Target, p *peer, sent lease.Instant, body []byte) error {
		answer, err := holds.ParseRenewal(body, len(list))
		if err != nil {
			return err
		}
		hs.mu.Lock()
		defer hs.mu.Unlock()
		for i, h := range list {
			if h.away = false; h.peer != p && !h.ended {
				p.users.Add(1)
				h.peer.leave()
				h.peer, h.owner = p, t.Member
			}
			h.takeLocked(answer.States[i], sent, answer.Promise)
		}
		return nil
	})
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range list {
		h.renewing = false
	}
	return err
}

// askOwner makes a call about holds of one partition to its owner: it waits, and follows
// it, as a request for the key does. take gets the owner's answer, and when the call was
// sent at the earliest.
func (hs *holder) askOwner(ctx context.Context, method, key string, refs []holds.Ref, take func(t routing.Target, p *peer, sent lease.Instant, body []byte) error) error {
	return hs.client.routes.Route(ctx, refs[0].Partition, func(t routing.Target) routing.Outcome {
		if !t.Link {
			return routing.Outcome{Err: noLink(t)}
		}
		p := hs.client.peer(t)
		p.users.Add(1)
		defer p.leave()
		attempt, cancel := context.WithTimeout(ctx, hs.due())
		defer cancel()
		sent := hs.now()
		status, body, err := p.call(attempt, &link.Request{Method: method, Key: key, Epoch: t.Epoch}, holds.AppendRefs(nil, refs))
		switch {
		case err != nil:
			return repeatable(ctx, t, err)
		case status != http.StatusOK:
			return routing.Outcome{Err: fmt.Errorf("worker %s at %s answers %d %s", t.Name, t.Addr, status, body)}
		}
		return routing.Outcome{Err: take(t, p, sent, body)}
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

// letGo is a hold that is to be released.
type letGo struct {
	holds.Ref
	key string
}

// releaseWay is where holds are released: at a worker, or without one at the owner of a
// partition.
type releaseWay struct {
	peer      *peer
	partition int
}

// releaseList is what is to be released on one way.
type releaseList struct{ list []letGo }

// release lets an owner end a hold, sooner or later: nobody waits for it. It ends
// one use of p.
func (hs *holder) release(p *peer, l letGo) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.closed {
		p.leave() // the owner frees it at the end of its lease
		return
	}
	hs.releaseLocked(releaseWay{peer: p}, l)
}

func (hs *holder) releaseLocked(to releaseWay, l letGo) {
	if r := hs.releasing[to]; r != nil {
		r.list = append(r.list, l)
		return
	}
	r := &releaseList{list: []letGo{l}}
	hs.releasing[to] = r
	hs.wg.Go(func() { hs.sendReleases(to, r) })
}

// sendReleases sends what is on the list until it is empty.
func (hs *holder) sendReleases(to releaseWay, r *releaseList) {
	for {
		hs.mu.Lock()
		n := min(len(r.list), holds.MaxRefs)
		list := r.list[:n:n]
		if r.list = r.list[n:]; n == 0 {
			delete(hs.releasing, to)
			hs.mu.Unlock()
			return
		}
		hs.mu.Unlock()
		if to.peer == nil {
			hs.releaseAtOwner(list)
			continue
		}
		hs.sendRelease(to.peer, list)
		for range list {
			to.peer.leave()
		}
	}
}

// sendRelease asks one worker for as long as it may still hold the keys, and the owners of
// those that have gone elsewhere.
func (hs *holder) sendRelease(p *peer, list []letGo) {
	ctx, cancel := context.WithTimeout(hs.ctx, hs.ttl)
	defer cancel()
	for len(list) > 0 {
		states, err := hs.tryRelease(ctx, p, list)
		hs.mu.Lock()
		var again []letGo
		for i, l := range list {
			switch {
			case err == nil && states[i] == holds.Elsewhere, err != nil && hs.isAway(l.Partition, p):
				hs.releaseLocked(releaseWay{partition: l.Partition}, l)
			case err != nil:
				again = append(again, l)
			}
		}
		list = again
		hs.mu.Unlock()
		if len(list) == 0 {
			return
		}
		select {
		case <-time.After(hs.every()):
		case <-ctx.Done():
			return
		}
	}
}

func (hs *holder) tryRelease(ctx context.Context, p *peer, list []letGo) ([]holds.State, error) {
	ctx, cancel := context.WithTimeout(ctx, hs.due())
	defer cancel()
	status, body, err := p.call(ctx, &link.Request{Method: holds.Release}, holds.AppendRefs(nil, released(list)))
	switch {
	case err != nil:
		return nil, err
	case status != http.StatusOK:
		return nil, fmt.Errorf("router: releasing holds: %d %s", status, body)
	}
	return holds.ParseStates(body, len(list))
}

// releaseAtOwner asks whoever owns the partition of holds, once. Should that fail, they
// end with their leases.
func (hs *holder) releaseAtOwner(list []letGo) {
	ctx, cancel := context.WithTimeout(hs.ctx, hs.ttl)
	defer cancel()
	_ = hs.askOwner(ctx, holds.Release, list[0].key, released(list), func(routing.Target, *peer, lease.Instant, []byte) error { return nil })
}

func released(list []letGo) []holds.Ref {
	refs := make([]holds.Ref, 0, len(list))
	for _, l := range list {
		refs = append(refs, l.Ref)
	}
	return refs
}
