package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/localmutex/locking"
)

// Lock is a held lock, from the call that took it to Unlock.
// It is safe for concurrent use.
type Lock struct {
	tenure   *tenure
	ctx      context.Context // of a reentrant call: the caller's, which already ends with the lock
	unlocked atomic.Bool
}

// heldKey finds the tenure of a key in a context.
type heldKey struct {
	l   *Locker
	key string
}

// lockContext is the context of a tenure. It compares the clocks whenever it
// is asked, since a timer may be late.
type lockContext struct {
	context.Context
	tenure *tenure
}

func (c lockContext) Err() error {
	c.tenure.hold.check()
	return c.Context.Err()
}

func (c lockContext) Value(key any) any {
	if k, ok := key.(heldKey); ok && k.l == c.tenure.hold.l && slices.Contains(c.tenure.hold.names, k.key) {
		return c.tenure
	}
	return c.Context.Value(key)
}

// Keys returns the locked keys, sorted. The caller must not change them.
func (k *Lock) Keys() []string { return k.tenure.hold.names }

// Token returns the fencing token, which is above the tokens of all earlier holders of each
// of the keys, also when Redis lost its data meanwhile. A resource that
// refuses lower tokens than it has seen is safe from a holder that does not
// know that it lost the lock; see package fence.
func (k *Lock) Token() int64 { return k.tenure.token }

// Context descends from the context of the call that took the lock, and ends
// at the latest before another client can get the lock. context.Cause then
// says why: ErrExpired, ErrLost, ErrUnlocked or ErrClosed.
// Passed on to Lock and its like, it makes them reentrant.
func (k *Lock) Context() context.Context {
	if k.ctx != nil {
		return k.ctx
	}
	t := k.tenure
	t.hold.mu.Lock()
	defer t.hold.mu.Unlock()
	if t.ctx == nil {
		var inner context.Context
		inner, t.cancel = context.WithCancelCause(t.parent)
		t.ctx = lockContext{inner, t}
		if t.cause != nil {
			t.cancel(t.cause)
		}
	}
	return t.ctx
}

// Until implements [locking.Lease].
func (k *Lock) Until() time.Time {
	h := k.tenure.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	left := time.Duration(0)
	if !h.over && k.tenure.cause == nil {
		left = max(h.until.left(h.l.now()), 0)
	}
	return time.Now().Add(left)
}

// Extend implements [locking.Lease]. The TTL is at least 10ms. After an error other than
// locking.ErrNotOwner it may be tried again.
func (k *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	h := k.tenure.hold
	if ttl != 0 && ttl < locking.ShortestTTL {
		return fmt.Errorf("%w: extending %q: TTL is %v, want at least %v", locking.ErrOption, h.names, ttl, locking.ShortestTTL)
	}
	h.mu.Lock()
	cause := k.tenure.cause
	h.mu.Unlock()
	if cause != nil {
		return fmt.Errorf("%w: %w", locking.ErrNotOwner, cause)
	}
	return h.extend(ctx, ttl.Truncate(time.Millisecond))
}

// Unlock gives the lock back. It returns nil if it was the caller's up to
// then; locking.ErrNotOwner if not; locking.ErrUnlockUnknown, with the reason, if ctx or the
// lock's time ended without an answer. Releasing goes on in the background
// until the lock's time is over, whatever happens to ctx, and never frees
// another's lock.
//
// Of a reentrant lock the last Unlock gives it back. A second Unlock of one
// Lock returns locking.ErrNotOwner.
func (k *Lock) Unlock(ctx context.Context) error {
	if !k.unlocked.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: unlocked before", locking.ErrNotOwner)
	}
	now := time.Now()
	t := k.tenure
	h := t.hold
	h.mu.Lock()
	t.count--
	last, c, line := t.count == 0, h.claim, h.line
	h.mu.Unlock()
	if !last {
		return nil
	}
	local := h.l.handOver(h, line)
	var err error
	if local {
		h.mu.Lock()
		t.finishLocked(ErrUnlocked)
		h.mu.Unlock()
	} else {
		err = h.release(ctx, t, now)
	}
	level := slog.LevelDebug
	if err != nil {
		level = slog.LevelWarn
	}
	h.l.emit(ctx, released, level, Event{
		Keys: h.names, Read: c.read, Label: c.label, Token: t.token, Held: now.Sub(t.since), Local: local, Err: err,
	})
	return err
}

// release frees the hold in Redis.
func (h *hold) release(ctx context.Context, t *tenure, now time.Time) error {
	h.mu.Lock()
	line := h.line
	if h.over {
		line = nil // end has let its next caller contend
	}
	h.stopLocked()
	t.finishLocked(ErrUnlocked)
	c, until, used := h.claim, h.until, h.usedLocked()
	cause := t.cause
	h.mu.Unlock()

	f, err := h.l.server.release(ctx, c, used)
	if err == nil {
		h.l.yield(line, f.others, now)
		if !f.freed {
			return fmt.Errorf("%w: %q", locking.ErrNotOwner, h.names)
		}
		return nil
	}
	result := make(chan error, 1)
	h.l.spawn(func() {
		result <- h.releaseLate(c, used, until, cause, err)
		h.l.yield(line, false, now)
	})
	select {
	case err = <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %q: %w", locking.ErrUnlockUnknown, h.names, context.Cause(ctx))
	}
}

// releaseLate repeats a release of which one try got no answer, of a tenure that
// has ended with a cause.
func (h *hold) releaseLate(c *claim, used int64, until instant, cause, first error) error {
	err := h.l.free(c, used, until.mono.Add(h.l.cfg.margin(c.ttl)))
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, errNotHeld):
		return fmt.Errorf("%w: %q: %w", locking.ErrUnlockUnknown, h.names, err)
	case errors.Is(cause, ErrLost), errors.Is(cause, ErrForced):
		return fmt.Errorf("%w: %q: %w", locking.ErrNotOwner, h.names, cause)
	case until.left(h.l.now()) <= 0:
		return fmt.Errorf("%w: %q: %w", locking.ErrUnlockUnknown, h.names, first)
	}
	return h.freedOrForced(c, first)
}

// freedOrForced tells who has freed a lock before its time was over: it was the
// first try to release it, or somebody by force, for nobody can have taken it.
func (h *hold) freedOrForced(c *claim, first error) error {
	var state int64
	err := h.l.repeat(context.Background(), func() (err error) {
		state, err = h.l.server.renew(context.Background(), c)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: %q: %w", locking.ErrUnlockUnknown, h.names, first)
	case state == renewForced:
		return fmt.Errorf("%w: %q: %w", locking.ErrNotOwner, h.names, forcedError(c))
	}
	return nil
}

// usedLocked is the last fencing token used if the reserved ones must be given
// back, else 0. Few of them need not be: at one acquisition per reserved
// microsecond the counter stays behind the clock it starts from.
func (h *hold) usedLocked() int64 {
	if h.claim.reserve <= 32 {
		return 0
	}
	return h.token
}

// reenter returns a lock on what ctx already holds, or nil if it holds none
// of it.
func (l *Locker) reenter(ctx context.Context, names []string, read bool) (*Lock, error) {
	var t *tenure
	for i, name := range names {
		held, _ := ctx.Value(heldKey{l, name}).(*tenure)
		if i > 0 && held != t {
			return nil, fmt.Errorf("%w: some of %q, but not all together", ErrNested, names)
		}
		t = held
	}
	if t == nil {
		return nil, nil
	}
	h := t.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case t.cause != nil:
		return nil, t.cause
	case t.count == 0:
		return nil, nil // its unlocking is under way
	case h.claim.read && !read:
		return nil, fmt.Errorf("%w: %q, for reading; there is no upgrade", ErrNested, names)
	}
	t.count++
	return &Lock{tenure: t, ctx: ctx}, nil
}
