package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/holding"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// Lock is a held lock, from the call that took it to Unlock.
// It is safe for concurrent use.
type Lock struct {
	hold     *heldClaim
	use      holding.Use
	unlocked atomic.Bool
}

// Keys returns the locked keys, sorted. The caller must not change them.
func (k *Lock) Keys() []string { return k.hold.Keys }

// Token returns the fencing token. It is above the tokens of all earlier holders of each of the
// keys, even if Redis has lost its data. A resource that refuses lower tokens than it has seen is
// safe from a holder that does not know that it lost the lock; see package fence.
func (k *Lock) Token() int64 { return k.use.Token }

// Context descends from the context of the call that took the lock, and ends before another client
// can get the lock. context.Cause then says why: ErrExpired, ErrLost, ErrUnlocked or ErrClosed.
// Lock and similar methods are reentrant if they are called with it.
func (k *Lock) Context() context.Context { return k.use.Context() }

// Until implements [locking.Lease].
func (k *Lock) Until() time.Time {
	left, _ := k.use.Left()
	return time.Now().Add(left)
}

// Extend implements [locking.Lease]. The TTL is at least 10ms. After an error other than
// locking.ErrNotOwner it may be tried again.
func (k *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl != 0 && ttl < locking.ShortestTTL {
		return fmt.Errorf("%w: extending %q: TTL is %v, want at least %v", locking.ErrOption, k.Keys(), ttl, locking.ShortestTTL)
	}
	return k.use.Alone(ctx, func() error { return k.extend(ctx, ttl.Truncate(time.Millisecond)) })
}

// Unlock releases the lock. It returns nil if the caller held it until then, and
// locking.ErrNotOwner if not. It returns locking.ErrUnlockUnknown, with the reason, if ctx or the
// lock's time ended without an answer. The release is repeated in the background until the lock's
// time is over or the Locker is closed, even if ctx ends, and never frees another caller's lock.
//
// The last Unlock of a reentrant lock releases it, and the others ask nobody. A second Unlock of one
// Lock returns locking.ErrNotOwner.
func (k *Lock) Unlock(ctx context.Context) error {
	_, err := k.unlock(ctx)
	return err
}

// unlock is Unlock. It reports whether other processes are known to wait for the lock that was released.
func (k *Lock) unlock(ctx context.Context) (others bool, err error) {
	if !k.unlocked.CompareAndSwap(false, true) {
		return false, fmt.Errorf("%w: unlocked before", locking.ErrNotOwner)
	}
	r, d := k.end()
	switch d {
	case holder.Wait:
		return false, holding.NotOwner(r.cause)
	case holder.Release:
		others, err = r.send(ctx)
	}
	k.hold.l.emitOf(ctx, releaseBy(err), k.use.Tenure, r.claim.ask, err)
	return others, err
}

// unlocking is the release of a lock by its last user.
type unlocking struct {
	h     *heldClaim
	cause error // why the work had ended before
	began time.Time
	claim *claim
	turn  int64
	until time.Time
}

// end ends the use of k. With the last, the next caller of this process gets the lock, or the caller releases it.
func (k *Lock) end() (r unlocking, d holder.Decision) {
	h := k.hold
	l := h.l
	l.locks.Lock()
	defer l.locks.Unlock()
	last, cause := k.use.EndLocked(ErrUnlocked)
	if r.cause = cause; !last {
		return r, holder.Wait
	}
	if cause == nil {
		l.counts.ended(k.use.Tenure)
	}
	r = unlocking{h: h, cause: cause, began: time.Now(), claim: h.claim, turn: h.turn}
	now := l.locks.At(r.began)
	r.until = r.began.Add(h.Lock.Rest(now) + l.cfg.Margin)
	if d = h.EndLocked(now, h.turn != 0 && l.turns.Queued(h.Keys[0]) > 0); d == holder.Pass {
		l.passed[h.Keys[0]], h.turn = h, 0
		l.next(h.Keys[0], r.turn)
	}
	return r, d
}

// send frees the lock in Redis. It reports whether other processes are known to wait for the lock. Without an answer it
// continues in the background.
func (r unlocking) send(ctx context.Context) (bool, error) {
	h, l := r.h, r.h.l
	f, unanswered := l.server.release(ctx, r.claim)
	if unanswered == nil {
		l.yield(h.Keys[0], r.turn, f.others, r.began)
		return f.others, r.answered(f.freed, nil)
	}
	result := make(chan error, 1)
	l.spawn(func() {
		h.Decide(func(lease.Instant) holder.Decision { return h.Lock.Unanswered(true, false) })
		freed, err := l.repeatRelease(l.server, r.claim, r.until)
		if err != nil {
			d := h.Decide(func(now lease.Instant) holder.Decision { return h.Lock.GiveUp(now, true) })
			result <- holding.Told(d, h.Keys, r.cause, err)
		} else {
			result <- r.answered(freed, unanswered)
		}
		l.next(h.Keys[0], r.turn)
	})
	select {
	case told := <-result:
		return false, told
	case <-ctx.Done():
		return false, fmt.Errorf("%w: %q: %w", locking.ErrUnlockUnknown, h.Keys, context.Cause(ctx))
	}
}

// answered takes what a server says of a release: whether it has freed the lock. unknown is the error if that does not say
// enough.
func (r unlocking) answered(freed bool, unknown error) error {
	a := holder.Gone
	if freed {
		a = holder.Held
	}
	d := r.h.Decide(func(now lease.Instant) holder.Decision { return r.h.Lock.Answered(now, a, false) })
	return holding.Told(d, r.h.Keys, r.cause, unknown)
}

// Downgrade turns a lock that Lock or TryLock took into one for reading, without letting another
// caller in between; its token stays. It returns locking.ErrNotOwner if the lock is gone or
// another's. After any other error the lock is still held, but its mode is unknown until Downgrade
// is repeated. It must not run at the same time as the lock's Unlock.
func (k *Lock) Downgrade(ctx context.Context) error {
	h := k.hold
	return k.use.Alone(ctx, func() error {
		h.l.locks.Lock()
		c, nested := h.claim, k.use.IsSharedLocked() || len(h.Keys) > 1
		if !c.read && !nested {
			h.Shared = true // from now on it may be a reader's lock, which is passed on to nobody
			h.l.next(h.Keys[0], h.turn)
			h.turn = 0
		}
		h.l.locks.Unlock()
		switch {
		case c.read:
			return nil
		case nested:
			return fmt.Errorf("%w: only a lock of one key that is not held reentrantly can be downgraded", ErrNested)
		}
		sent := h.l.locks.Now()
		said, err := h.l.server.verdict(ctx, func(ctx context.Context, n *lockNode) (int64, error) { return n.downgrade(ctx, c) })
		if err != nil {
			return fmt.Errorf("lock: downgrading %q: %w", h.Keys, err)
		}
		h.Decide(func(lease.Instant) holder.Decision {
			if said != holder.Held {
				return h.Lock.Lose()
			}
			h.Lock.Retaken(sent, holder.Grant{Lease: c.opts.TTL, Next: k.use.Token + 1})
			h.claim = c.reader()
			return holder.Wait
		})
		return k.use.Err()
	})
}

// reenter returns a lock on what ctx already holds, or nil if it holds none
// of it.
func (l *Locker) reenter(ctx context.Context, names []string, read bool) (*Lock, error) {
	use, err := l.locks.Within(ctx, read, names...)
	switch {
	case errors.Is(err, holding.ErrPartly), errors.Is(err, holding.ErrShared):
		return nil, fmt.Errorf("%w: %q %w", ErrNested, names, err)
	case err != nil || use.Tenure == nil:
		return nil, err
	}
	return &Lock{hold: use.Backend().(*heldClaim), use: use}, nil
}
