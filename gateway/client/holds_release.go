package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// tell reports the end of h to the waiter for its release. err is the error of the last call.
func (h *held) tell(d holder.Decision, err error) {
	switch {
	case h.told == nil:
		return
	case d == holder.TellReleased:
		err = nil
	case d == holder.TellNotOwner:
		err = fmt.Errorf("%w: %q: its owner does not hold it any more", locking.ErrNotOwner, h.key)
	case d == holder.TellUnanswered:
		err = fmt.Errorf("%w: %q: its owner does not hold it any more, and has not answered before", locking.ErrUnlockUnknown, h.key)
	default:
		err = fmt.Errorf("%w: %q: %w", locking.ErrUnlockUnknown, h.key, err)
	}
	h.told <- err // which has room
}

// errUnlockClosed is the error of an Unlock after the client was closed.
var errUnlockClosed error = closed("client: the client was closed before: the key is free at the end of its lease; unlock first, then close")

// releaseLocked does what was decided about the release of h, whose last call has had that error.
func (hs *holdings) releaseLocked(h *held, d holder.Decision, err error) {
	to := callee{partition: h.ref.Partition}
	switch d {
	case holder.Release:
		to = callee{peer: h.peer}
	case holder.ReleaseAtOwner:
	default:
		h.tell(d, err)
		return
	}
	list, sending := hs.releasing[to]
	if hs.releasing[to] = append(list, h); !sending {
		hs.wg.Go(func() { hs.sendReleases(to) })
	}
}

// sendReleases releases what there is to release at a worker or owner. Each hold that is released at a worker ends one use of it.
func (hs *holdings) sendReleases(to callee) {
	for {
		hs.mu.Lock()
		list := hs.releasing[to]
		n := min(len(list), holds.MaxRefs)
		if hs.releasing[to] = list[n:]; n == 0 {
			delete(hs.releasing, to)
			hs.mu.Unlock()
			return
		}
		hs.mu.Unlock()
		hs.sendRelease(to, list[:n:n])
		if to.peer != nil {
			for range n {
				to.peer.Leave()
			}
		}
	}
}

// sendRelease asks a worker for as long as it may still hold the keys, or an owner once, which takes as long.
func (hs *holdings) sendRelease(to callee, list []*held) {
	ctx, cancel := context.WithTimeout(hs.ctx, hs.ttl)
	defer cancel()
	for {
		repeated, err := hs.send(ctx, holds.Release, to, list)
		if err == nil {
			return
		}
		hs.mu.Lock()
		list = slices.DeleteFunc(list, func(h *held) bool {
			d := h.lock.Unanswered(repeated, to.peer != nil && hs.isAway(h.ref.Partition, to.peer))
			if d == holder.Release {
				return false
			}
			hs.releaseLocked(h, d, err)
			return true
		})
		hs.mu.Unlock()
		if len(list) == 0 {
			return
		}
		wake.Sleep(hs.every(), ctx.Done()) // for an error that has come at once
		if to.peer != nil && ctx.Err() == nil {
			continue
		}
		hs.mu.Lock()
		defer hs.mu.Unlock()
		for _, h := range list {
			hs.releaseLocked(h, h.lock.GiveUp(hs.now(), hs.ctx.Err() != nil), err)
		}
		return
	}
}
