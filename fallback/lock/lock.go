package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// Lock is a held lock, from the call that took it to Unlock.
// It is safe for concurrent use.
type Lock struct {
	tenure   *tenure
	ctx      context.Context // of a reentrant call; nil for that of the tenure
	end      func()          // ends ctx
	unlocked atomic.Bool
}

// heldKey finds the tenure of a key in a context.
type heldKey struct {
	l   *Locker
	key string
}

// FindsHolder marks the keys of context values that find who holds a key.
func (heldKey) FindsHolder() {}

// lockContext is the context of a tenure. It compares the clocks whenever it
// is asked, since a timer may be late.
type lockContext struct {
	context.Context
	tenure *tenure
}

// innermost finds the lockContext that a context descends from.
type innermost struct{}

// Err implements [context.Context]. It compares the clocks for all locks along c.
func (c lockContext) Err() error {
	for along, is := c, true; is; along, is = along.Context.Value(innermost{}).(lockContext) {
		_ = along.tenure.ended()
	}
	return c.Context.Err()
}

func (c lockContext) Value(key any) any {
	if key == (innermost{}) {
		return c
	}
	if k, ok := key.(heldKey); ok && k.l == c.tenure.hold.l && slices.Contains(c.tenure.hold.names, k.key) && c.tenure.ended() == nil {
		return c.tenure
	}
	return c.Context.Value(key)
}

// Keys returns the locked keys, sorted. The caller must not change them.
func (k *Lock) Keys() []string { return k.tenure.hold.names }

// Token returns the fencing token. It is above the tokens of all earlier holders of each of the
// keys, even if Redis has lost its data. A resource that refuses lower tokens than it has seen is
// safe from a holder that does not know that it lost the lock; see package fence.
func (k *Lock) Token() int64 { return k.tenure.token }

// Context descends from the context of the call that took the lock, and ends before another client
// can get the lock. context.Cause then says why: ErrExpired, ErrLost, ErrUnlocked or ErrClosed.
// Lock and similar methods are reentrant if they are called with it.
func (k *Lock) Context() context.Context {
	if k.ctx != nil {
		return k.ctx
	}
	t := k.tenure
	t.made.Do(func() {
		inner, cancel := context.WithCancelCause(t.parent) // without mu: it may find that a lock around this one has expired
		t.hold.mu.Lock()
		defer t.hold.mu.Unlock()
		if t.ctx, t.cancel = (lockContext{inner, t}), cancel; t.cause != nil {
			cancel(t.cause)
		}
	})
	return t.ctx
}

// Until implements [locking.Lease].
func (k *Lock) Until() time.Time {
	t := k.tenure
	t.hold.mu.Lock()
	defer t.hold.mu.Unlock()
	left := time.Duration(0)
	if t.cause == nil {
		left = t.hold.lock.Left(t.hold.l.now(), t.token)
	}
	return time.Now().Add(left)
}

// Extend implements [locking.Lease]. The TTL is at least 10ms. After an error other than
// locking.ErrNotOwner it may be tried again.
func (k *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	t := k.tenure
	if ttl != 0 && ttl < locking.ShortestTTL {
		return fmt.Errorf("%w: extending %q: TTL is %v, want at least %v", locking.ErrOption, t.hold.names, ttl, locking.ShortestTTL)
	}
	return t.alone(ctx, func(*claim, bool) error { return t.extend(ctx, ttl.Truncate(time.Millisecond)) })
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
	if k.end != nil {
		k.end()
	}
	t := k.tenure
	h := t.hold
	r, last, local := h.l.endHandle(t)
	if !last {
		return false, t.ended()
	}
	if !local {
		others, err = r.send(ctx)
	}
	t.emit(ctx, releaseBy(err), r.claim.ask, err)
	return others, err
}

// unlocking is the release of a lock by the caller of a tenure.
type unlocking struct {
	t     *tenure
	began time.Time
	claim *claim
	turn  int64
	until time.Time
}

// endHandle ends one of the handles of a tenure. With the last, the next caller of this process gets the lock, or it is released.
func (l *Locker) endHandle(t *tenure) (r unlocking, last, local bool) {
	h := t.hold
	l.mu.Lock()
	defer l.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.count--; t.count > 0 {
		return r, false, false
	}
	t.finishLocked(ErrUnlocked)
	r = unlocking{t: t, began: time.Now(), claim: h.claim, turn: h.turn}
	now := l.at(r.began)
	r.until = r.began.Add(h.lock.Rest(now) + l.cfg.Margin)
	waits := h.turn != 0 && l.turns.Queued(h.names[0]) > 0
	if h.lock.End(now, waits) == holder.Pass {
		l.passed[h.names[0]], h.turn = h, 0
		l.next(h.names[0], r.turn)
		return r, true, true
	}
	l.dropLocked(h)
	return r, true, false
}

// send frees the lock in Redis. It reports whether other processes are known to wait for the lock. Without an answer it
// continues in the background.
func (r unlocking) send(ctx context.Context) (bool, error) {
	h := r.t.hold
	l := h.l
	f, unanswered := l.server.release(ctx, r.claim)
	if unanswered == nil {
		l.yield(h.names[0], r.turn, f.others, r.began)
		return f.others, r.answered(f.freed, nil)
	}
	result := make(chan error, 1)
	l.spawn(func() {
		h.decide(nil, func() holder.Decision { return h.lock.Unanswered(true, false) })
		freed, err := l.cfg.repeatRelease(l.server, r.claim, r.until, l.closing)
		if err != nil {
			result <- r.told(h.decide(nil, func() holder.Decision { return h.lock.GiveUp(l.now(), true) }), err)
		} else {
			result <- r.answered(freed, unanswered)
		}
		l.next(h.names[0], r.turn)
	})
	select {
	case told := <-result:
		return false, told
	case <-ctx.Done():
		return false, fmt.Errorf("%w: %q: %w", locking.ErrUnlockUnknown, h.names, context.Cause(ctx))
	}
}

// answered takes what a server says of a release: whether it has freed the lock. unknown is the error if that does not say
// enough.
func (r unlocking) answered(freed bool, unknown error) error {
	h, a := r.t.hold, holder.Gone
	if freed {
		a = holder.Held
	}
	return r.told(h.decide(nil, func() holder.Decision { return h.lock.Answered(h.l.now(), a, false) }), unknown)
}

// told returns the error that describes the lock's end. err is the reason if that is unknown.
func (r unlocking) told(d holder.Decision, err error) error {
	names := r.t.hold.names
	switch {
	case d == holder.TellReleased:
		return nil
	case d != holder.TellNotOwner:
		return fmt.Errorf("%w: %q: %w", locking.ErrUnlockUnknown, names, err)
	case !errors.Is(r.t.cause, ErrUnlocked):
		return fmt.Errorf("%w: %w", locking.ErrNotOwner, r.t.cause)
	}
	return fmt.Errorf("%w: %q", locking.ErrNotOwner, names)
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

// reenter returns a lock on what ctx already holds, or nil if it holds none
// of it.
func (l *Locker) reenter(ctx context.Context, names []string, read bool) (*Lock, error) {
	var t *tenure
	for i, name := range names {
		held, _ := ctx.Value(heldKey{l, name}).(*tenure)
		if i > 0 && held != t {
			return nil, fmt.Errorf("%w: it holds some of %q, but not all by one call", ErrNested, names)
		}
		t = held
	}
	if t == nil {
		return nil, nil
	}
	if err := t.reenter(read); err != nil {
		return nil, err
	}
	inner, stop := context.WithCancelCause(ctx) // ctx may outlast the lock
	unhook := context.AfterFunc(t.ctx, func() { stop(context.Cause(t.ctx)) })
	return &Lock{tenure: t, ctx: lockContext{inner, t}, end: func() {
		unhook()
		stop(ErrUnlocked)
	}}, nil
}

// reenter counts another handle of the tenure.
func (t *tenure) reenter(read bool) error {
	h := t.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case t.cause != nil:
		return t.cause
	case h.claim.read && !read:
		return fmt.Errorf("%w: %q is held for reading, and cannot be upgraded", ErrNested, h.names)
	}
	t.count++
	return nil
}
