package lock

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/keyway-go/keyway/localmutex/locking"
)

// hold is a claim that was granted, until it is released or lost. It renews
// itself. Callers of one process may hold it one after the other.
type hold struct {
	l     *Locker
	names []string
	io    chan struct{} // 1 buffered: held while a renewal or downgrade is under way
	alarm alarmPlace    // the Locker's alarm guards it

	mu       sync.Mutex
	claim    *claim
	line     *lockLine // nil if callers do not queue for it
	until    instant   // the lock is surely not another's before
	renewAt  time.Time
	taken    time.Time // in Redis
	token    int64     // last used
	reserved int64     // last that may be used
	tenure   *tenure   // of the caller who has it
	opts     locking.Options
	renewing bool
	over     bool // released, lost or expired: nothing more happens by itself
}

// tenure is one caller's time with a hold; reentrant calls share it.
type tenure struct {
	hold   *hold
	token  int64
	since  time.Time
	parent context.Context

	// Guarded by the hold's mu.
	count  int // handles not yet unlocked
	ctx    context.Context
	cancel context.CancelCauseFunc
	cause  error // why it ended, nil while it lasts
}

// hold starts a hold and its first tenure.
func (l *Locker) hold(w want, c *claim, line *lockLine, token int64, until, now instant) *Lock {
	h := &hold{
		l: l, names: c.names, io: make(chan struct{}, 1),
		claim: c, line: line, until: until, taken: now.mono,
		token: token, reserved: token + c.reserve, opts: w.opts,
		renewAt: l.renewAfter(until, c.ttl),
	}
	k := h.beginLocked(w, now.mono)
	if line != nil {
		l.mu.Lock()
		line.held = h
		l.mu.Unlock()
	}
	h.mu.Lock()
	h.wakeLocked(now)
	h.mu.Unlock()
	return k
}

func (l *Locker) acquired(w want, k *Lock, local bool) {
	l.emit(w.parent, acquired, slog.LevelDebug, Event{
		Keys: w.names, Read: w.read, Label: w.opts.Label, Token: k.tenure.token, Wait: k.tenure.since.Sub(w.began), Local: local,
	})
}

// reserve is how many fencing tokens an acquisition sets aside for hand-overs.
func (l *Locker) reserve(names int, read bool) int64 {
	if read || names > 1 {
		return 0
	}
	return int64(l.cfg.HandOvers)
}

// renewAfter is when to renew a lock with this TTL that lasts until then.
func (l *Locker) renewAfter(until instant, ttl time.Duration) time.Time {
	if l.cfg.NoRenewal {
		return until.mono.Add(ttl)
	}
	return until.mono.Add(l.cfg.renewEvery(ttl) - l.cfg.lease(ttl))
}

// beginLocked makes the tenure of a caller. A hold that is not shared yet need
// not be locked.
func (h *hold) beginLocked(w want, now time.Time) *Lock {
	h.tenure = &tenure{hold: h, token: h.token, since: now, parent: w.parent, count: 1}
	h.l.counts.held.Add(1)
	return &Lock{tenure: h.tenure}
}

// pass ends the tenure and begins that of another caller of this process, or
// returns nil if the bounds on that do not allow it.
func (h *hold) pass(w want) *Lock {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.l.now()
	switch {
	case h.over, h.token >= h.reserved,
		!alike(w.opts, h.opts, h.claim.ttl),
		now.mono.Sub(h.taken) > h.l.cfg.HandOverFor,
		h.until.left(now) < h.claim.ttl/3:
		return nil
	}
	h.token++
	return h.beginLocked(w, now.mono)
}

// wakeLocked has tick run again in time: for the renewal or the end, and in any
// case soon enough to see that the wall clock has run on.
func (h *hold) wakeLocked(now instant) {
	if h.over {
		return
	}
	d := h.claim.ttl / 6
	if left := h.until.left(now); left > 0 || !h.l.cfg.ContinueOnFailure {
		d = min(d, left)
	}
	if !h.renewing {
		d = min(d, h.renewAt.Sub(now.mono))
	}
	h.l.alarm.set(h, now.mono.Add(max(d, time.Millisecond)))
}

// tick is the alarm's.
func (h *hold) tick() {
	if !h.l.enter() {
		h.end(ErrClosed)
		return
	}
	defer h.l.leave()
	h.mu.Lock()
	if h.over {
		h.mu.Unlock()
		return
	}
	now := h.l.now()
	if h.until.left(now) <= 0 && !h.l.cfg.ContinueOnFailure {
		h.mu.Unlock()
		h.end(ErrExpired)
		return
	}
	due := !h.renewing && !now.mono.Before(h.renewAt)
	if due {
		h.renewing = true
	}
	h.wakeLocked(now)
	h.mu.Unlock()
	if due {
		h.autoRenew()
	}
}

// autoRenew renews once, and plans the next time.
func (h *hold) autoRenew() {
	err := h.renew(context.Background())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewing = false
	if h.over {
		return
	}
	if err != nil { // a success has moved renewAt
		h.renewAt = time.Now().Add(min(h.claim.ttl/20, 250*time.Millisecond))
	}
	h.wakeLocked(h.l.now())
}

// renew extends the hold in Redis. It ends the hold if it is lost.
func (h *hold) renew(ctx context.Context) error { return h.extend(ctx, 0) }

// extend is renew with another TTL, if it is above 0.
func (h *hold) extend(ctx context.Context, ttl time.Duration) error {
	select {
	case h.io <- struct{}{}:
		defer func() { <-h.io }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return h.extendAlone(ctx, ttl)
}

// extendAlone is extend for who has io.
func (h *hold) extendAlone(ctx context.Context, ttl time.Duration) error {
	h.mu.Lock()
	if ttl > 0 && ttl != h.claim.ttl {
		h.claim = h.claim.lasting(ttl)
	}
	c := h.claim
	h.mu.Unlock()
	sent := h.l.now()
	state, err := h.l.server.renew(ctx, c)
	retaken := false
	if err == nil && state == renewGone && h.l.cfg.ContinueOnFailure {
		state, err = h.retake(ctx, c)
		retaken = true
	}
	e := Event{Keys: h.names, Read: c.read, Label: c.label, Held: time.Since(h.taken), Err: err}
	if err != nil {
		h.l.emit(ctx, renewFailed, slog.LevelWarn, e)
		return fmt.Errorf("lock: renewing %q: %w", h.names, err)
	}
	if state == renewForced {
		cause := forcedError(c)
		h.end(cause)
		return fmt.Errorf("%w: %q: %w", locking.ErrNotOwner, h.names, cause)
	}
	if state != renewOK {
		h.end(ErrLost)
		return fmt.Errorf("%w: %q", locking.ErrNotOwner, h.names)
	}
	until := sent.add(h.l.cfg.lease(c.ttl))
	h.mu.Lock()
	h.renewAt = h.l.renewAfter(until, c.ttl)
	if !retaken { // a shorter TTL has taken nothing away
		until = later(until, h.until)
	}
	h.until = until
	h.wakeLocked(h.l.now())
	h.mu.Unlock()
	h.l.emit(ctx, renewed, slog.LevelDebug, e)
	return nil
}

// forcedError says by whom and why a claim was released by force.
func forcedError(c *claim) error { return fmt.Errorf("%w %s", ErrForced, *c.forced.Load()) }

// retake takes a lock again that is gone. The tenure keeps its token, so a
// resource that has seen a later one refuses it. A release that comes
// meanwhile finds the claim unsettled and makes a later retake fail.
func (h *hold) retake(ctx context.Context, c *claim) (int64, error) {
	h.mu.Lock()
	over := h.over
	c.unsettled.Store(true)
	h.mu.Unlock()
	if over {
		return renewGone, nil
	}
	g, err := h.l.server.acquire(ctx, c, true)
	if err != nil || g.token == 0 {
		return renewTaken, err
	}
	h.mu.Lock()
	h.token, h.reserved = g.token, g.token+c.reserve
	h.mu.Unlock()
	return renewOK, nil
}

// end ends a hold that was not released: its context ends, and the next
// caller of this process contends.
func (h *hold) end(cause error) {
	h.mu.Lock()
	if h.over {
		h.mu.Unlock()
		return
	}
	h.stopLocked()
	t, c, line := h.tenure, h.claim, h.line
	t.finishLocked(fmt.Errorf("%w: %q", cause, h.names))
	h.mu.Unlock()

	what := lost
	if cause == ErrExpired {
		what = expired
	}
	h.l.emit(t.parent, what, slog.LevelWarn, Event{Keys: h.names, Read: c.read, Label: c.label, Token: t.token, Held: time.Since(t.since), Err: cause})
	if line != nil {
		h.l.next(line)
	}
}

// stopLocked ends what happens by itself.
func (h *hold) stopLocked() {
	h.over = true
	h.l.alarm.clear(h)
}

// finishLocked ends the tenure's context.
func (t *tenure) finishLocked(cause error) {
	if t.cause != nil {
		return
	}
	t.cause = cause
	t.hold.l.counts.ended(time.Since(t.since))
	if t.cancel != nil {
		t.cancel(cause)
	}
}

// check ends the hold if its time is over, whatever the timer has seen.
func (h *hold) check() {
	h.mu.Lock()
	late := !h.over && !h.l.cfg.ContinueOnFailure && h.until.left(h.l.now()) <= 0
	h.mu.Unlock()
	if late {
		h.end(ErrExpired)
	}
}
