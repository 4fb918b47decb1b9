package lock

import (
	"context"
	"fmt"

	"github.com/keyway-go/keyway/localmutex/locking"
)

// TryRLock takes the lock of a key for reading, beside other readers, or
// returns locking.ErrLocked if a writer holds it or waits for it.
func (l *Locker) TryRLock(ctx context.Context, key string, opts ...locking.Option) (*Lock, error) {
	return l.take(ctx, []string{key}, true, false, opts)
}

// RLock takes the lock of a key for reading, as Lock does for writing. A
// writer that waits keeps readers who come later out.
func (l *Locker) RLock(ctx context.Context, key string, opts ...locking.Option) (*Lock, error) {
	return l.take(ctx, []string{key}, true, true, opts)
}

// Downgrade turns a lock that Lock or TryLock took into one for reading,
// without anyone in between; its token stays. It returns locking.ErrNotOwner if the
// lock is gone or another's. After any other error the mode is unknown until
// Downgrade is repeated, and the lock still held. It must not run beside the
// lock's Unlock.
func (k *Lock) Downgrade(ctx context.Context) error {
	t := k.tenure
	h := t.hold
	select {
	case h.io <- struct{}{}:
		defer func() { <-h.io }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	h.mu.Lock()
	c, cause, count := h.claim, t.cause, t.count
	h.mu.Unlock()
	switch {
	case cause != nil:
		return fmt.Errorf("%w: %w", locking.ErrNotOwner, cause)
	case c.read:
		return nil
	case count > 1, len(h.names) > 1:
		return fmt.Errorf("%w: only a lock of one key that is not held reentrantly can be downgraded", ErrNested)
	}
	sent := h.l.now()
	state, err := h.l.server.downgrade(ctx, c)
	if err != nil {
		return fmt.Errorf("lock: downgrading %q: %w", h.names, err)
	}
	if state != renewOK {
		h.end(ErrLost)
		return fmt.Errorf("%w: %q", locking.ErrNotOwner, h.names)
	}
	h.becomeReader(c.reader(), sent.add(h.l.cfg.lease(c.ttl)))
	return nil
}

// becomeReader makes the hold a reader's, which leaves its line.
func (h *hold) becomeReader(c *claim, until instant) {
	h.mu.Lock()
	line := h.line
	h.line = nil
	h.claim = c
	h.until, h.renewAt = until, h.l.renewAfter(until, c.ttl)
	if h.over {
		line = nil
	}
	h.mu.Unlock()
	if line != nil {
		h.l.next(line)
	}
}
