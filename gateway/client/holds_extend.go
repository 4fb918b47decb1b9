package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// extend asks the owner of h for a lease of ttl from now on, 0 for that which h has.
func (hs *holdings) extend(ctx context.Context, h *held, token int64, ttl time.Duration) error {
	hs.mu.Lock()
	if h.extending == nil {
		h.extending = make(chan struct{}, 1)
	}
	one := h.extending
	hs.mu.Unlock()
	select {
	case one <- struct{}{}:
		defer func() { <-one }()
	case <-ctx.Done():
		return fmt.Errorf("client: extending the lock of %q: %w", h.key, context.Cause(ctx))
	}
	hs.mu.Lock()
	if !h.lock.Has(token) {
		hs.mu.Unlock()
		return h.endedMeanwhile()
	}
	ttl = h.lock.Extend(ttl)
	hs.lookLocked(h.lock.Pause())
	hs.mu.Unlock()
	_, err := hs.askOwner(ctx, holds.Extend, h.key, h.ref.Partition, holds.Extension{ID: h.ref.ID, Lease: ttl}.Append(nil), func(a send.OwnerAnswer) error {
		grant, err := holds.ParseGrant(a.Body)
		if err != nil {
			return err
		}
		hs.mu.Lock()
		defer hs.mu.Unlock()
		h.settleLocked(a)
		h.obeyLocked(h.lock.Extended(hs.now(), lease.At(hs.base, a.Sent), holder.Grant(grant), a.Repeated))
		hs.lookLocked(h.lock.Pause())
		return nil
	})
	hs.mu.Lock()
	defer hs.mu.Unlock()
	switch h.lock.Unextended(); {
	case errors.Is(err, locking.ErrNotOwner):
		h.obeyLocked(h.lock.Lose())
	case err == nil && h.lock.Left(hs.now(), token) == 0:
		return h.endedMeanwhile()
	case err != nil:
		return fmt.Errorf("client: extending the lock of %q: %w", h.key, err)
	}
	return err
}

func (h *held) endedMeanwhile() error {
	return fmt.Errorf("%w: %q was lost or unlocked meanwhile", locking.ErrNotOwner, h.key)
}
