package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/holding"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// isAway reports whether another worker than p, which cannot be reached, owns a partition as far as this process knows.
func (hs *holdings) isAway(partition int, p *send.Peer) bool {
	t, ok := hs.client.workers.Routes.Owner(partition)
	return ok && hs.client.workers.Peer(t.Member) != p
}

// callee is where a call about holds goes: to a worker, or without one to the owner of a partition.
type callee struct {
	method    string // Renew or Release
	peer      *send.Peer
	partition int
}

// askLocked has a call made about h, together with other holds that wait for a call there.
func (hs *holdings) askLocked(to callee, h *held) {
	list, asks := hs.asking[to]
	if hs.asking[to] = append(list, h); !asks || len(list)%holds.MaxRefs == holds.MaxRefs-1 {
		hs.wg.Go(func() { hs.ask(to) })
	}
}

// ask makes calls until there is nothing more to ask about.
func (hs *holdings) ask(to callee) {
	for {
		hs.Lock()
		list := hs.asking[to]
		n := min(len(list), holds.MaxRefs)
		if hs.asking[to] = list[n:]; n == 0 {
			delete(hs.asking, to)
			hs.Unlock()
			return
		}
		hs.Unlock()
		if to.method == holds.Renew {
			hs.renew(to, list[:n:n])
		} else {
			hs.release(to, list[:n:n])
		}
	}
}

// send makes a call about holds, and takes the answer. Without one, repeated says that the call may have had its effect.
func (hs *holdings) send(ctx context.Context, to callee, list []*held) (repeated bool, err error) {
	refs := make([]holds.Ref, 0, len(list))
	for _, h := range list {
		refs = append(refs, h.ref)
	}
	body := holds.AppendRefs(nil, refs)
	if to.peer == nil {
		return hs.askOwner(ctx, to.method, list[0].key, body, func(a send.OwnerAnswer) error { return hs.takeAnswer(to.method, list, a) })
	}
	ctx, cancel := context.WithTimeout(ctx, hs.Policy.TTL/5) // the age at which a hold of the session TTL is renewed
	defer cancel()
	a := send.OwnerAnswer{Sent: time.Now()}
	a.Status, a.Body, err = to.peer.Call(ctx, &link.Request{Method: to.method}, body)
	switch {
	case err != nil:
	case a.Status != http.StatusOK:
		err = fmt.Errorf("client: %s of holds: %d %s", to.method, a.Status, a.Body)
	default:
		err = hs.takeAnswer(to.method, list, a)
	}
	return !errors.Is(err, link.ErrNotStarted), err
}

// takeAnswer takes the answer to a call about holds.
func (hs *holdings) takeAnswer(method string, list []*held, a send.OwnerAnswer) error {
	answers, err := holds.ParseAnswers(a.Body, len(list))
	hs.Lock()
	defer hs.Unlock()
	for i, state := range answers.States {
		if h := list[i]; method == holds.Renew {
			h.settleLocked(a)
			h.ObeyLocked(h.Lock.Renewed(hs.Now(), hs.At(a.Sent), state, answers.Promise))
		} else {
			hs.releaseLocked(h, h.Lock.Answered(hs.Now(), state, a.Repeated), nil)
		}
	}
	return err
}

// renew asks an owner to renew holds.
func (hs *holdings) renew(to callee, list []*held) {
	ctx, cancel := context.WithTimeout(hs.ctx, hs.Policy.TTL)
	defer cancel()
	if _, err := hs.send(ctx, to, list); err == nil {
		return
	}
	hs.Lock()
	defer hs.Unlock()
	for _, h := range list {
		h.Lock.Failed(to.peer != nil && hs.isAway(h.ref.Partition, to.peer))
	}
}

// settleLocked has h kept at the owner that has answered a call about it, if that was looked for.
func (h *held) settleLocked(a send.OwnerAnswer) {
	if a.Peer != nil && h.peer != a.Peer && h.Lock.HasCaller() {
		a.Peer.Use()
		h.peer.Leave()
		h.peer, h.owner = a.Peer, a.Member
	}
}

// askOwner makes a call about holds of one partition to its owner. Like a request for the key, it
// waits for the owner and follows it. An owner that did what the call asks has its answer passed to
// take. If repeated is true, a call without such an answer may have had its effect.
func (hs *holdings) askOwner(ctx context.Context, method, key string, request []byte, take func(send.OwnerAnswer) error) (repeated bool, err error) {
	call := send.OwnerCall{
		Method: method, Key: key, Spans: hs.client.spans, Body: request,
		Take: func(a send.OwnerAnswer) error {
			switch a.Status {
			case http.StatusOK:
				return take(a)
			case http.StatusGone:
				return fmt.Errorf("%w: worker %s at %s does not hold it any more", locking.ErrNotOwner, a.Name, a.Addr)
			}
			return refusalOf(a.Target, key, locking.ErrLocked, a.Status, a.Body)
		},
	}
	err = hs.client.workers.AskOwner(ctx, &call)
	return call.Repeated, err
}

// extend asks the owner of h for a lease of ttl from now on, 0 for that which h has.
func (hs *holdings) extend(ctx context.Context, t *holding.Tenure, ttl time.Duration) error {
	h := t.Backend().(*held)
	err := t.While(func(lease.Instant) {
		ttl = h.Lock.Extend(ttl)
		h.LookLocked()
	})
	if err != nil {
		return err
	}
	_, err = hs.askOwner(ctx, holds.Extend, h.key, holds.Request{ID: h.ref.ID, Lease: ttl}.Append(nil), func(a send.OwnerAnswer) error {
		grant, err := holds.ParseGrant(a.Body)
		if err != nil {
			return err
		}
		hs.Lock()
		defer hs.Unlock()
		h.settleLocked(a)
		h.ObeyLocked(h.Lock.Extended(hs.Now(), hs.At(a.Sent), holder.Grant(grant), a.Repeated))
		h.LookLocked()
		return nil
	})
	hs.Lock()
	if h.Lock.Unextended(); errors.Is(err, locking.ErrNotOwner) {
		h.ObeyLocked(h.Lock.Lose())
	}
	hs.Unlock()
	return cmp.Or(err, t.Err())
}

// tell reports the end of h to the waiter for its release, which has room for that. err is the error of the last call.
func (h *held) tell(d holder.Decision, err error) {
	if h.told != nil {
		h.told <- holding.Told(d, h.Keys, nil, err)
	}
}

// errUnlockClosed is the error of an Unlock after the client was closed.
var errUnlockClosed error = closed("client: the client was closed before: the key is free at the end of its lease; unlock first, then close")

// releaseLocked does what was decided about the release of h, whose last call has had that error.
func (hs *holdings) releaseLocked(h *held, d holder.Decision, err error) {
	switch d {
	case holder.Release:
		hs.askLocked(callee{method: holds.Release, peer: h.peer}, h)
	case holder.ReleaseAtOwner:
		hs.askLocked(callee{method: holds.Release, partition: h.ref.Partition}, h)
	default:
		h.tell(d, err)
	}
}

// release asks a worker to release holds for as long as it may still hold the keys, or an owner once, which takes as long.
// Each hold that is released at a worker ends one use of it.
func (hs *holdings) release(to callee, list []*held) {
	if to.peer != nil {
		defer func(n int) {
			for range n {
				to.peer.Leave()
			}
		}(len(list))
	}
	ctx, cancel := context.WithTimeout(hs.ctx, hs.Policy.TTL)
	defer cancel()
	for {
		repeated, err := hs.send(ctx, to, list)
		if err == nil {
			return
		}
		hs.Lock()
		list = slices.DeleteFunc(list, func(h *held) bool {
			d := h.Lock.Unanswered(repeated, to.peer != nil && hs.isAway(h.ref.Partition, to.peer))
			if d == holder.Release {
				return false
			}
			hs.releaseLocked(h, d, err)
			return true
		})
		hs.Unlock()
		if len(list) == 0 {
			return
		}
		wake.Sleep(hs.every(), ctx.Done()) // for an error that has come at once
		if to.peer != nil && ctx.Err() == nil {
			continue
		}
		hs.Lock()
		defer hs.Unlock()
		for _, h := range list {
			hs.releaseLocked(h, h.Lock.GiveUp(hs.Now(), hs.ctx.Err() != nil), err)
		}
		return
	}
}
