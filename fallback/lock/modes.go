package lock

import (
	"context"
	"fmt"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// TryRLock takes the lock of a key for reading, shared with other readers, or returns
// locking.ErrLocked if a writer holds it or waits for it.
func (l *Locker) TryRLock(ctx context.Context, key string, opts ...locking.Option) (*Lock, error) {
	return l.acquireNames(ctx, []string{key}, true, false, opts)
}

// RLock takes the lock of a key for reading, as Lock does for writing. A waiting writer keeps out
// readers that come later.
func (l *Locker) RLock(ctx context.Context, key string, opts ...locking.Option) (*Lock, error) {
	return l.acquireNames(ctx, []string{key}, true, true, opts)
}

// Downgrade turns a lock that Lock or TryLock took into one for reading, without letting another
// caller in between; its token stays. It returns locking.ErrNotOwner if the lock is gone or
// another's. After any other error the lock is still held, but its mode is unknown until Downgrade
// is repeated. It must not run at the same time as the lock's Unlock.
func (k *Lock) Downgrade(ctx context.Context) error {
	t := k.tenure
	h := t.hold
	return t.alone(ctx, func(c *claim, nested bool) error {
		switch {
		case c.read:
			return nil
		case nested, len(h.names) > 1:
			return fmt.Errorf("%w: only a lock of one key that is not held reentrantly can be downgraded", ErrNested)
		}
		h.mu.Lock()
		turn := h.turn
		h.turn = 0 // from now on it may be a reader's lock, which is passed on to nobody
		h.mu.Unlock()
		h.l.next(h.names[0], turn)
		sent := h.l.now()
		said, err := h.l.server.verdict(ctx, func(ctx context.Context, n *lockNode) (int64, error) { return n.downgrade(ctx, c) })
		if err != nil {
			return fmt.Errorf("lock: downgrading %q: %w", h.names, err)
		}
		h.decide(ErrLost, func() holder.Decision {
			if said != holder.Held {
				return h.lock.Lose()
			}
			h.lock.Retaken(sent, holder.Grant{Lease: c.opts.TTL, Next: t.token + 1})
			h.claim = c.reader()
			return holder.Wait
		})
		return t.ended()
	})
}

// TryLockAll takes the locks of several keys if all are free, and otherwise returns
// locking.ErrLocked. See LockAll.
func (l *Locker) TryLockAll(ctx context.Context, keys []string, opts ...locking.Option) (*Lock, error) {
	return l.acquireNames(ctx, distinct(keys), false, false, opts)
}

// LockAll takes the locks of several keys in one step, all or none, so callers with overlapping
// sets cannot deadlock. It also excludes callers that lock one of the keys alone. Order and
// repetitions do not matter. The options are those of Lock, for all keys together.
//
// In a cluster all keys must be in one slot. Redis derives the slot from the part in braces: with a
// Prefix like "{orders}:" all keys of a Locker are in one.
func (l *Locker) LockAll(ctx context.Context, keys []string, opts ...locking.Option) (*Lock, error) {
	return l.acquireNames(ctx, distinct(keys), false, true, opts)
}
