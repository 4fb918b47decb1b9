package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/holding"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// Lock is a key that is held for its caller until Unlock, or the keys that [Client.LockAll] has
// taken. It is a [locking.Lease]. Background renewals keep it, together with the other locks at its
// owner, without a goroutine for each.
type Lock struct {
	client *Client
	key    string
	token  int64
	use    holding.Use     // of a hold at another member; without a tenure at this process's worker
	ctx    context.Context // at this process's worker
	free   func()          // frees it there

	others []*Lock // of [Client.LockAll], in the order of their keys; each was taken in the context of the one before

	unlocked atomic.Bool
}

// Lock takes the lock of key. It waits until ctx ends, and then returns ctx's cause. Callers get
// the lock in the order of their calls, behind earlier executions, since Do, requests and the lock
// exclude each other. A caller that waits longer than the worker's Limits.MaxWait goes to the end
// of the queue. Callers of one Client that want the same key, TTL and Label take turns: one call
// asks for up to 64 of them, and they pass the lock on among themselves. The process that asked
// first is served first.
//
// These options of package locking apply. TTL is how long the key stays locked after this process
// has died: at least 10 ms, by default the session TTL, which it may exceed. Wait bounds the whole
// wait, including that for a reachable owner. After it Lock asks the owner who has the key, and
// returns [locking.ErrLocked], or [gateway.ErrUnavailable] if it is not answered within a fiftieth of
// the session TTL. Label is a text for operators of at most 64 bytes without control characters, by
// default the name of this member.
//
// The Context of the Lock descends from ctx. If ctx descends from the Context of another Lock of key, or from an
// execution that holds key, the new Lock shares the token and lease of the outer one, whatever its options. It is lost
// with the outer one, even if ctx does not end then. The key is free when both have ended, in either order. A call within
// a Lock, such as Do, keeps the key in the same way. The Context of the outer Lock may last as long. Outside of both, a
// caller that already holds the key deadlocks with itself until the wait ends.
//
// The errors are those of [Client.Do], and those of package locking that are named here.
func (c *Client) Lock(ctx context.Context, key string, opts ...locking.Option) (*Lock, error) {
	return c.lockAs(ctx, key, want{inLine: true}, opts)
}

// lockAs takes the lock of key as w says, and options.
func (c *Client) lockAs(ctx context.Context, key string, w want, opts []locking.Option) (*Lock, error) {
	if err := w.apply(opts); err != nil {
		return nil, fmt.Errorf("client: locking %q: %w", key, err)
	}
	return c.acquireKey(ctx, key, w)
}

// RLock takes the lock of key for reading, as Lock does for writing. Readers share the key and
// one token. A waiting writer keeps out readers that come later. Within a lock for reading, the
// key cannot be locked for writing.
func (c *Client) RLock(ctx context.Context, key string, opts ...locking.Option) (*Lock, error) {
	return c.lockAs(ctx, key, want{shared: true}, opts)
}

// TryLock takes the lock of key if it is free and has no waiters. Otherwise it returns
// [locking.ErrLocked], at once if another caller of the Client has it at another member. It waits
// for up to a fifth of the session TTL until the key has an owner. The options are those of
// [Client.Lock]; Wait has no effect.
func (c *Client) TryLock(ctx context.Context, key string, opts ...locking.Option) (*Lock, error) {
	return c.lockAs(ctx, key, want{try: true}, opts)
}

// TryRLock is TryLock for reading, see [Client.RLock].
func (c *Client) TryRLock(ctx context.Context, key string, opts ...locking.Option) (*Lock, error) {
	return c.lockAs(ctx, key, want{try: true, shared: true}, opts)
}

// want is how a caller asks for a key.
type want struct {
	try    bool
	shared bool          // with other callers that say so
	inLine bool          // in turn with other waiting callers of this process
	call   bool          // for a function, at whose end the key is freed; asks alone if it stands in line for longestInLine
	ttl    time.Duration // of the lease; 0 for the session TTL
	wait   time.Duration // bounds the wait; 0 for no bound, or with call for the owner's
	until  time.Time     // the end of that wait
	label  string        // "" for the client's
}

// apply adds what options say.
func (w *want) apply(opts []locking.Option) error {
	o, err := locking.Apply(opts)
	switch {
	case err != nil:
		return err
	case !holds.IsLabel(o.Label):
		return fmt.Errorf("%w: Label is %.*q, want at most %d bytes of text without control characters", locking.ErrOption, holds.MaxLabel, o.Label, holds.MaxLabel)
	}
	w.ttl, w.label = o.TTL, o.Label
	if !w.try {
		w.wait, w.until = o.Wait, time.Now().Add(o.Wait)
	}
	return nil
}

// takeRounds is how often a key is asked for anew that was lost before it was taken.
const takeRounds = 3

// acquireKey holds key for a caller that works under a descendant of ctx. When the owner's bound of a wait is over, it
// asks again, except for a call.
func (c *Client) acquireKey(ctx context.Context, key string, w want) (lock *Lock, err error) {
	if err := keysource.Check(key); err != nil {
		return nil, fmt.Errorf("client: key %.64q: %w", key, err)
	}
	switch {
	case ctx.Err() != nil:
		return nil, failedCall(key, context.Cause(ctx))
	case c.closed.Load():
		return nil, failedCall(key, errClientClosed)
	}
	if l, err := c.lockAlong(ctx, key, w); err != nil {
		return nil, failedCall(key, err)
	} else if l != nil {
		return l, nil
	}
	traced := ctx
	if c.spans != nil {
		var span trace.Span
		traced, span = beginLockCall(ctx, c.spans, c.workers.Ring, key)
		defer func() { endLockCall(span, lock, err) }()
	}
	w.label = cmp.Or(w.label, c.label)
	wait := ctx
	if w.wait > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithDeadlineCause(ctx, w.until, &holds.Refused{Why: locking.ErrLocked, Key: key, Text: fmt.Sprintf("is still locked after %v", w.wait)})
		defer cancel()
	}
	for lost := 0; lost < takeRounds; {
		l, err := c.takeOnce(wait, ctx, traced, key, w)
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, errAskAgain), errors.Is(err, errAskAlone):
			lost++
			w.inLine = w.inLine && !errors.Is(err, errAskAlone)
		case w.call, !errors.Is(err, gateway.ErrWaited):
			return nil, c.notHeld(wait, ctx, key, w, err)
		default:
			lost = 0
		}
		if wait.Err() != nil {
			return nil, c.notHeld(wait, ctx, key, w, context.Cause(wait))
		}
	}
	return nil, failedCall(key, fmt.Errorf("%w: the lock ended before its caller could begin, %d times: owners were lost, or its TTL is too short", gateway.ErrUnavailable, takeRounds))
}

// notHeld returns the error of a call that has failed. If the wait for others was given up, it says
// who has the key. At the end of its bound, with ErrLocked, only the owner knows that somebody has it.
func (c *Client) notHeld(wait, ctx context.Context, key string, w want, err error) error {
	err = failedCall(key, err)
	if wait.Err() == nil {
		return err
	}
	if by := c.holder.heldBy(key, w); by != "" {
		return fmt.Errorf("%w: %s", err, by)
	}
	if ctx.Err() != nil || !errors.Is(err, locking.ErrLocked) {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.holder.every(), errors.New("its owner has not answered within the wait"))
	defer cancel()
	_, held := c.holder.askOwner(ctx, holds.Inspect, key, nil, func(a send.OwnerAnswer) error {
		return refusalOf(a.Target, key, locking.ErrLocked, http.StatusConflict, a.Body)
	})
	if errors.Is(held, locking.ErrLocked) {
		return failedCall(key, held)
	}
	return &callError{key, gateway.ErrUnavailable, held}
}

// takeOnce takes part in one call for key, or makes it. traced is ctx with the span of the caller's call.
func (c *Client) takeOnce(wait, ctx, traced context.Context, key string, w want) (_ *Lock, err error) {
	if w.try {
		if by := c.holder.heldBy(key, w); by != "" {
			return nil, &holds.Refused{Why: gateway.ErrLocked, Key: key, Text: "is " + by}
		}
	}
	if c.standsInLine(ctx, key, w) {
		l, t := c.holder.enter(traced, lineKey{key, w.ttl, w.label})
		switch {
		case t != nil:
			return c.takeTurn(wait, ctx, w, t)
		case l != nil:
			defer func() {
				c.holder.Lock()
				defer c.holder.Unlock()
				c.holder.leaveLocked(l, err)
			}()
		}
	}
	a := &acquisition{want: w, client: c, ctx: wait, caller: ctx, traced: traced, key: key, id: holds.NewID()}
	if err := a.acquire(); err != nil {
		return nil, err
	}
	return a.lock(), nil
}

// lockAlong returns a Lock within what holds key along ctx, nil if nothing does.
func (c *Client) lockAlong(ctx context.Context, key string, w want) (*Lock, error) {
	if l, err := c.holder.lockAlong(ctx, key, w); l != nil || err != nil || c.local == nil || !c.local.Along(ctx, key) {
		return l, err
	}
	held, token, free, err := c.local.Acquire(ctx, key, 0, true, 0)
	if err != nil {
		return nil, err
	}
	return &Lock{client: c, key: key, token: token, ctx: held, free: free}, nil
}

// Key returns the key, of several keys the first in the order of their bytes.
func (l *Lock) Key() string { return l.key }

// Keys returns all keys, sorted, each once.
func (l *Lock) Keys() []string {
	keys := []string{l.key}
	for _, one := range l.others {
		keys = append(keys, one.key)
	}
	return keys
}

// Token implements [locking.Lease]. It is the token of [Lock.Key].
func (l *Lock) Token() int64 { return l.token }

// TokenOf returns the fencing token of one of Keys, 0 for any other key.
func (l *Lock) TokenOf(key string) int64 {
	for _, one := range l.each() {
		if one.key == key {
			return one.token
		}
	}
	return 0
}

// Context implements [locking.Lease]. If a key is lost, it ends with a cause that wraps
// [gateway.ErrOwnershipLost]: at once when the owner says so, otherwise at 0.8 of the lease. The
// work must end by 0.95 of it.
func (l *Lock) Context() context.Context {
	if n := len(l.others); n > 0 {
		l = l.others[n-1]
	}
	if l.ctx != nil {
		return l.ctx
	}
	return l.use.Context()
}

// Until implements [locking.Lease]. For several keys it is the earliest end.
func (l *Lock) Until() time.Time {
	left := l.left()
	for _, one := range l.others {
		left = min(left, one.left())
	}
	return time.Now().Add(left)
}

func (l *Lock) left() time.Duration {
	switch {
	case l.unlocked.Load():
	case l.use.Tenure != nil:
		left, _ := l.use.Left()
		return left
	case l.ctx.Err() == nil:
		return l.client.local.Left()
	}
	return 0
}

// Extend implements [locking.Lease]. A lock at this process's own worker lasts a session TTL after
// each renewal of the session; a longer TTL is possible only when the lock is taken. Several keys
// are extended at once. The error is that of the first key that failed; others may have been
// extended.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	return holds.Each(l.each(), func(_ int, one *Lock) error { return one.extend(ctx, ttl) })
}

func (l *Lock) extend(ctx context.Context, ttl time.Duration) error {
	switch {
	case ttl != 0 && ttl < locking.ShortestTTL:
		return fmt.Errorf("%w: extending the lock of %q: TTL is %v, want at least %v", locking.ErrOption, l.key, ttl, locking.ShortestTTL)
	case l.unlocked.Load():
		return l.unlockedBefore()
	case l.use.Tenure != nil:
		err := l.use.Alone(ctx, func() error { return l.client.holder.extend(ctx, l.use.Tenure, ttl) })
		if err != nil {
			err = fmt.Errorf("client: extending the lock of %q: %w", l.key, err)
		}
		return err
	case l.lost() != nil:
		return l.lost()
	case ttl > l.client.holder.Policy.TTL:
		return fmt.Errorf("%w: extending the lock of %q: TTL is %v, want at most %v at this process's own worker, unless the lock was taken with a longer TTL", locking.ErrOption, l.key, ttl, l.client.holder.Policy.TTL)
	}
	return nil
}

// Unlock implements [locking.Lease]. It waits for the owner's answer, unless the lock passes to
// another caller of the Client, or a Lock or call around or within this one still keeps the key. Without an answer the
// release is repeated in the background until the lock's lease is over, even if ctx ends. Several keys are unlocked at
// once. The error joins those of the keys that were not, or not certainly, held until then.
func (l *Lock) Unlock(ctx context.Context) error {
	if l.others == nil {
		told, asked := l.beginUnlock()
		return l.awaitUnlock(ctx, told, asked)
	}
	all := l.each()
	told, asked, errs := make([]<-chan error, len(all)), make([]bool, len(all)), make([]error, len(all))
	for i, one := range slices.Backward(all) {
		told[i], asked[i] = one.beginUnlock()
	}
	for i, one := range all {
		errs[i] = one.awaitUnlock(ctx, told[i], asked[i])
	}
	return errors.Join(errs...)
}

// beginUnlock returns a channel for the result, which is there unless an owner is asked.
func (l *Lock) beginUnlock() (_ <-chan error, asked bool) {
	told := make(chan error, 1)
	switch {
	case !l.unlocked.CompareAndSwap(false, true):
		told <- l.unlockedBefore()
	case l.use.Tenure == nil:
		told <- l.lost()
		l.free()
	default:
		asked = l.release(told)
	}
	return told, asked
}

// awaitUnlock returns the result, which it awaits until ctx ends.
func (l *Lock) awaitUnlock(ctx context.Context, told <-chan error, asked bool) (err error) {
	if asked {
		if span := l.beginRelease(ctx); span != nil {
			defer func() { send.EndLockAttempt(span, routing.Outcome{Err: err}) }()
		}
	}
	if len(told) > 0 {
		return <-told // it counts though ctx has ended
	}
	select {
	case err := <-told:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %q: %w", locking.ErrUnlockUnknown, l.key, context.Cause(ctx))
	}
}

func (l *Lock) unlockedBefore() error {
	return fmt.Errorf("%w: %q was unlocked before, or never locked", locking.ErrNotOwner, l.key)
}

// lost returns an error if a lock at this process's worker is known to be no longer the caller's.
func (l *Lock) lost() error {
	cause := cmp.Or(context.Cause(l.ctx), errLetGo)
	if l.client.local.Along(l.ctx, l.key) && !errors.Is(cause, gateway.ErrOwnershipLost) {
		return nil
	}
	return fmt.Errorf("%w: %q: %w", locking.ErrNotOwner, l.key, cause)
}

// release frees the key, unless others still use it within. told, unless it is nil, gets the answer of an owner elsewhere,
// or nil if the key passes to another caller.
func (l *Lock) release(told chan<- error) (asked bool) {
	if l.use.Tenure != nil {
		return l.client.holder.endUse(&l.use, told)
	}
	l.free()
	return false
}
