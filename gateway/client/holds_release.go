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
	ctx, cancel := context.WithTimeout(hs.ctx, hs.ttl)
	defer cancel()
	for {
		repeated, err := hs.send(ctx, to, list)
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
