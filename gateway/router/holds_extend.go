package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/localmutex/locking"
	"github.com/keyway-go/keyway/ring/lease"
)

// extend asks the owner of h for a lease of ttl from now on, 0 for that which h has. Which one a
// renewal gives that is sent meanwhile nobody knows but the owner, and also later ones if a call has
// had no answer, which may yet have its effect after others have had theirs: the shortest counts.
func (hs *holder) extend(ctx context.Context, h *held, token int64, ttl time.Duration) error {
	hs.mu.Lock()
	if !h.isWithLocked(token) {
		hs.mu.Unlock()
		return h.endedMeanwhile()
	}
	if h.extending == nil {
		h.extending = make(chan struct{}, 1)
	}
	one := h.extending
	hs.mu.Unlock()
	select {
	case one <- struct{}{}:
		defer func() { <-one }()
	case <-ctx.Done():
		return fmt.Errorf("router: extending the lock of %q: %w", h.key, context.Cause(ctx))
	}
	hs.mu.Lock()
	ttl = cmp.Or(ttl, h.term)
	before := h.shortest
	h.shortest = min(h.shortest, ttl)
	h.term = min(h.term, h.shortest)
	hs.lookLocked(h.pauseLocked())
	hs.mu.Unlock()
	err := hs.askOwner(ctx, holds.Extend, h.key, h.partition, holds.Extension{ID: h.id, Lease: ttl}.Append(nil), func(a ownerAnswer) error {
		grant, err := holds.ParseGrant(a.body)
		if err != nil {
			return err
		}
		hs.mu.Lock()
		defer hs.mu.Unlock()
		h.settleLocked(a)
		h.takeLocked(holds.Held, lease.At(hs.base, a.sent), grant.Lease, grant.Promise)
		if !a.repeated {
			h.shortest = before
		}
		h.term = min(grant.Lease, h.shortest)
		hs.lookLocked(h.pauseLocked())
		return nil
	})
	hs.mu.Lock()
	defer hs.mu.Unlock()
	switch {
	case errors.Is(err, locking.ErrNotOwner):
		h.loseLocked("does not hold it any more")
	case err == nil && (h.lost || h.ended):
		return h.endedMeanwhile()
	case err != nil:
		return fmt.Errorf("router: extending the lock of %q: %w", h.key, err)
	}
	return err
}

func (h *held) endedMeanwhile() error {
	return fmt.Errorf("%w: %q was lost or unlocked meanwhile", locking.ErrNotOwner, h.key)
}
