package router

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/localmutex/locking"
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
	err := hs.askOwner(ctx, holds.Renew, list[0].key, refs[0].Partition, holds.AppendRefs(nil, refs), func(a ownerAnswer) error {
		answer, err := holds.ParseRenewal(a.body, len(list))
		if err != nil {
			return err
		}
		hs.mu.Lock()
		defer hs.mu.Unlock()
		for i, h := range list {
			h.settleLocked(a)
			h.takeLocked(answer.States[i], lease.At(hs.base, a.sent), h.term, answer.Promise)
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

// settleLocked has h kept at the owner that has answered a call about it.
func (h *held) settleLocked(a ownerAnswer) {
	if h.away = false; h.peer != a.peer && !h.ended {
		a.peer.users.Add(1)
		h.peer.leave()
		h.peer, h.owner = a.peer, a.Member
	}
}

// askOwner makes a call about holds of one partition to its owner: it waits, and follows
// it, as a request for the key does. take gets the answer of an owner that does what the call says.
func (hs *holder) askOwner(ctx context.Context, method, key string, partition int, request []byte, take func(ownerAnswer) error) error {
	return hs.client.ask(ctx, &ownerCall{
		method: method, key: key, partition: partition, spans: hs.client.spans,
		body: func() []byte { return request },
		take: func(a ownerAnswer) error {
			switch a.status {
			case http.StatusOK:
				return take(a)
			case http.StatusBadRequest:
				return badOption(a.Target, a.body)
			case http.StatusGone:
				return fmt.Errorf("%w: worker %s at %s does not hold it any more", locking.ErrNotOwner, a.Name, a.Addr)
			}
			return fmt.Errorf("worker %s at %s answers %d %s", a.Name, a.Addr, a.status, a.body)
		},
	})
}

// letGo is a hold that is to be released.
type letGo struct {
	holds.Ref
	key      string
	until    lease.Instant // when its lease ends
	told     chan<- error  // gets what [Lock.Unlock] returns; nil if nobody waits for it
	repeated bool          // a call may have released it before
	released bool          // a call has, if it is not there any more
}

// tell says what has become of a hold: state, unless there is an error.
func (l *letGo) tell(state holds.State, err error) {
	switch {
	case l.told == nil:
		return
	case err != nil:
		err = fmt.Errorf("%w: %q: %w", locking.ErrUnlockUnknown, l.key, err)
	case state == holds.Gone && l.released:
	case state == holds.Gone && l.repeated:
		err = fmt.Errorf("%w: %q: its owner does not hold it any more, and has not answered before", locking.ErrUnlockUnknown, l.key)
	case state == holds.Gone:
		err = fmt.Errorf("%w: %q: its owner does not hold it any more", locking.ErrNotOwner, l.key)
	}
	l.told <- err // which has room
}

// goesOn notes what a worker says of a hold, and reports whether its owner is to be asked next.
func (l *letGo) goesOn(state holds.State) bool {
	l.released = l.released || state == holds.Released
	return state == holds.Elsewhere || state == holds.Released
}

// errUnlockClosed is the error of what is unlocked after its client was closed.
var errUnlockClosed error = closed("router: the client was closed before: the key is free at the end of its lease; unlock first, then close")

// releaseWay is where holds are released: at a worker, or without one at the owner of a
// partition.
type releaseWay struct {
	peer      *peer
	partition int
}

// releaseList is what is to be released on one way.
type releaseList struct{ list []letGo }

// release lets an owner end a hold, sooner or later. It ends one use of p.
func (hs *holder) release(p *peer, l letGo) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.closed {
		p.leave()
		l.tell(0, errUnlockClosed)
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
			l.repeated = l.repeated || err != nil && !errors.Is(err, link.ErrNotStarted)
			switch {
			case err == nil && l.goesOn(states[i]), err != nil && hs.isAway(l.Partition, p):
				hs.releaseLocked(releaseWay{partition: l.Partition}, l)
			case err != nil:
				again = append(again, l)
			default:
				l.tell(states[i], nil)
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
			hs.releaseLater(list, err)
			return
		}
	}
}

// releaseLater lets those holds that may still be there be released at their partitions'
// owners, of which one error is known.
func (hs *holder) releaseLater(list []letGo, err error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, l := range list {
		if hs.ctx.Err() != nil || l.until.Passed(hs.now()) {
			l.tell(0, err)
		} else {
			hs.releaseLocked(releaseWay{partition: l.Partition}, l)
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

// releaseAtOwner asks whoever owns the partition of holds, for as long as they may be there.
func (hs *holder) releaseAtOwner(list []letGo) {
	ctx, cancel := context.WithTimeout(hs.ctx, hs.ttl)
	defer cancel()
	err := hs.askOwner(ctx, holds.Release, list[0].key, list[0].Partition, holds.AppendRefs(nil, released(list)), func(a ownerAnswer) error {
		states, err := holds.ParseStates(a.body, len(list))
		hs.mu.Lock()
		defer hs.mu.Unlock()
		for i, state := range states {
			l := list[i]
			if l.repeated = l.repeated || a.repeated; l.goesOn(state) {
				hs.releaseLocked(releaseWay{partition: l.Partition}, l)
			} else {
				l.tell(state, nil)
			}
		}
		return err
	})
	if err == nil {
		return
	}
	select {
	case <-time.After(hs.every()): // for an error that has come at once
	case <-hs.ctx.Done():
	}
	hs.releaseLater(list, err)
}

func released(list []letGo) []holds.Ref {
	refs := make([]holds.Ref, 0, len(list))
	for _, l := range list {
		refs = append(refs, l.Ref)
	}
	return refs
}
