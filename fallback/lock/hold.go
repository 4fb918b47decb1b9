package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/keytable"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// heldClaim is a granted claim, until it is released. Callers of one process may use it one after the
// other. Its state machine, lock, decides under mu whether it is renewed, lost or released.
type heldClaim struct {
	l     *Locker
	names []string
	io    chan struct{} // 1 buffered: full while a renewal or downgrade is under way
	timer *time.Timer   // of tick; guarded by the Locker's mu

	mu     sync.Mutex // guards what follows; locked after the Locker's, if both are
	lock   holder.Lock
	claim  *claim
	turn   int64   // of its caller, among the callers of this process; 0 if they contend for the lock, or it is passed on
	tenure *tenure // of the latest caller
}

// tenure is one caller's time with a hold; reentrant calls share it. It lasts until cause is set:
// by the last Unlock, by Detach or Close, or when the lock may be lost.
type tenure struct {
	hold   *heldClaim
	token  int64
	since  time.Time
	parent context.Context
	made   sync.Once       // of ctx, when it is first asked for
	ctx    context.Context // written once

	// Guarded by the hold's mu.
	count  int // handles not yet unlocked
	cancel context.CancelCauseFunc
	cause  error // why it ended, nil while it lasts
}

// hold starts a hold and its first tenure.
func (l *Locker) hold(w want, c *claim, turn int64, granted holder.Lock, now lease.Instant) *Lock {
	h := &heldClaim{l: l, names: c.names, io: make(chan struct{}, 1), lock: granted, claim: c, turn: turn}
	h.lock.Begin(now)
	k := h.admitLocked(w, now)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds[h] = struct{}{}
	h.timer = time.AfterFunc(h.pauseLocked(now), h.tick)
	return k
}

// admitLocked makes the tenure of a caller.
func (h *heldClaim) admitLocked(w want, now lease.Instant) *Lock {
	h.tenure = &tenure{hold: h, token: h.lock.Token(), since: h.l.base.Add(now.Mono), parent: w.parent, count: 1}
	h.l.counts.held.Add(1)
	return &Lock{tenure: h.tenure}
}

func (l *Locker) acquired(w want, k *Lock, how event) {
	wait := k.tenure.since.Sub(w.began)
	l.counts.waits.Observe(wait)
	l.emit(w.parent, how, w.ask, nil, slog.Int64("token", k.tenure.token), slog.Duration("wait", wait))
}

// tick ends the hold if it is overdue, or renews it if that is due. It runs again for as long as the
// hold is neither released nor lost.
func (h *heldClaim) tick() {
	l, free := h.l, true
	if !l.enter() {
		return
	}
	defer l.leaveCall()
	select {
	case h.io <- struct{}{}:
	default:
		free = false
	}
	var pause time.Duration
	d := h.decide(ErrLost, func() (d holder.Decision) {
		now := l.now()
		if d = h.lock.Check(now); d == holder.Wait && free {
			d = h.lock.Tick(now)
		}
		pause = h.pauseLocked(now)
		return d
	})
	switch {
	case d == holder.Renew:
		l.spawn(func() {
			defer func() { <-h.io }()
			_ = h.renew(context.Background())
		})
	case free:
		<-h.io
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, lasts := l.holds[h]; lasts {
		h.timer.Reset(pause)
	}
}

// pauseLocked is how soon tick is to run: in any case soon enough to see that the wall clock has run on.
func (h *heldClaim) pauseLocked(now lease.Instant) time.Duration {
	pause := h.lock.Pause()
	if left := h.lock.Left(now, h.lock.Token()); left > 0 {
		pause = max(min(pause, left), time.Millisecond)
	}
	return pause
}

// decide makes the state machine take a step. If that ends the work, it ends the tenure with the
// cause, and the next caller of this process contends.
func (h *heldClaim) decide(cause error, step func() holder.Decision) holder.Decision {
	h.mu.Lock()
	d := step()
	what := lost
	switch d {
	case holder.CancelOverdue:
		what, cause = expired, ErrExpired
	case holder.CancelGone:
	default:
		h.mu.Unlock()
		return d
	}
	t, c, turn := h.tenure, h.claim, h.turn
	h.turn = 0
	t.finishLocked(fmt.Errorf("%w: %q", cause, h.names))
	h.mu.Unlock()
	t.emit(t.parent, what, c.ask, cause)
	h.l.forget(h, turn)
	return d
}

// forget has nothing more happen to a hold by itself, and the next caller of this process contend.
func (l *Locker) forget(h *heldClaim, turn int64) {
	l.mu.Lock()
	l.dropLocked(h)
	l.mu.Unlock()
	l.next(h.names[0], turn)
}

func (l *Locker) dropLocked(h *heldClaim) {
	delete(l.holds, h)
	h.timer.Stop()
}

// alone makes a call about the hold of a caller while no other one is under way. nested says that others have it reentrantly.
func (t *tenure) alone(ctx context.Context, call func(c *claim, nested bool) error) error {
	h := t.hold
	select {
	case h.io <- struct{}{}:
		defer func() { <-h.io }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := t.ended(); err != nil {
		return err
	}
	h.mu.Lock()
	c, nested := h.claim, t.count > 1
	h.mu.Unlock()
	return call(c, nested)
}

// ended returns why the tenure has ended, nil while it lasts. It compares the clocks, since a timer may be late.
func (t *tenure) ended() error {
	h := t.hold
	h.decide(nil, func() holder.Decision { return h.lock.Check(h.l.now()) })
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.cause == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", locking.ErrNotOwner, t.cause)
}

// extend renews the hold for another TTL, or for its present one if ttl is 0. The tenure may end meanwhile.
func (t *tenure) extend(ctx context.Context, ttl time.Duration) error {
	t.hold.mu.Lock()
	t.hold.lock.Extend(ttl)
	t.hold.mu.Unlock()
	return cmp.Or(t.hold.renew(ctx), t.ended())
}

// renew makes the call of a renewal that is due.
func (h *heldClaim) renew(ctx context.Context) error {
	h.mu.Lock()
	if term := h.lock.Term(); term != h.claim.opts.TTL {
		lasting := *h.claim
		lasting.opts.TTL = term
		h.claim = &lasting
	}
	c, t := h.claim, h.tenure
	h.mu.Unlock()
	sent := h.l.now()
	said, err := h.l.server.verdict(ctx, renewing(c, 0))
	d := h.decide(ErrLost, func() (d holder.Decision) {
		if err != nil {
			h.lock.Failed(false)
			return holder.Wait
		}
		if d = h.lock.Renewed(h.l.now(), sent, said, holder.Promise{}); d == holder.Retake {
			c.unsettled.Store(true) // a release that comes meanwhile makes a later retake fail
		}
		return d
	})
	if d == holder.Retake {
		d, err = h.retake(ctx, c)
	}
	switch {
	case err != nil:
		t.emit(ctx, renewFailed, c.ask, err)
		return fmt.Errorf("lock: renewing %q: %w", h.names, err)
	case d == holder.Wait:
		t.emit(ctx, renewed, c.ask, nil)
	}
	return nil
}

// retake takes a lock again that is gone. Its caller keeps the token, so a resource that has seen a later one refuses it.
func (h *heldClaim) retake(ctx context.Context, c *claim) (holder.Decision, error) {
	sent := h.l.now()
	g, err := h.l.server.acquire(ctx, c, true)
	return h.decide(ErrLost, func() holder.Decision {
		switch {
		case err != nil:
			h.lock.Failed(false)
		case g.token == 0:
			return h.lock.Renewed(h.l.now(), sent, holder.Taken, holder.Promise{})
		default:
			h.lock.Retaken(sent, c.granted(g.token))
		}
		return holder.Wait
	}), err
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

// queue takes the lock of one key. The callers of this process take turns, first come, first served. A caller with
// the turn takes over the hold that was passed on, or contends in Redis.
func (l *Locker) queue(w want) (*Lock, error) {
	key := w.names[0]
	turn, err := l.turns.TryLock(key)
	if w.waits && err == keytable.ErrLocked {
		turn, err = l.turns.Lock(w.ctx, key)
	}
	h := l.passedOn(key, turn)
	switch {
	case err == nil && h != nil:
		return l.follow(w, turn, h)
	case err == nil:
		return l.contend(w, turn)
	case h != nil:
		k, _ := h.beginTenure(w, 0)
		l.decline(k)
	}
	switch {
	case w.ctx.Err() != nil:
		err = context.Cause(w.ctx)
	case errors.Is(err, keytable.ErrLocked):
		err = fmt.Errorf("%w: %q, in this process", locking.ErrLocked, key)
	case errors.Is(err, keytable.ErrClosed):
		err = ErrClosed
	}
	return nil, err
}

// passedOn takes the hold of a key that was passed on, nil if none was. A caller without a turn
// gets it only if no other caller has the turn.
func (l *Locker) passedOn(key string, turn int64) *heldClaim {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.passed[key]
	if h == nil || turn == 0 && l.turns.Inspect(key).Token != 0 {
		return nil
	}
	delete(l.passed, key)
	return h
}

// follow takes a hold over. A caller that wants other options, or that was stopped so that others may have the lock by now,
// releases the hold and contends. A done context always loses.
func (l *Locker) follow(w want, turn int64, h *heldClaim) (*Lock, error) {
	k, begun := h.beginTenure(w, turn)
	switch {
	case begun && w.ctx.Err() == nil:
		l.acquired(w, k, handedOver)
		return k, nil
	case begun:
		l.decline(k)
		return nil, context.Cause(w.ctx)
	}
	sent := time.Now()
	others, _ := k.unlock(w.ctx)
	err := context.Cause(w.ctx)
	if others && err == nil {
		err = l.wait(w.ctx, new(lockBell), l.courtesy(sent))
	}
	if err != nil {
		l.next(w.names[0], turn)
		return nil, err
	}
	return l.contend(w, turn)
}

// beginTenure begins the work of the next caller, if the hold is what it wants and others cannot have the lock. Otherwise the
// caller keeps its turn.
func (h *heldClaim) beginTenure(w want, turn int64) (k *Lock, begun bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.l.now()
	k = h.admitLocked(w, now)
	alike := w.opts.TTL == h.lock.Term() && w.opts.Label == h.claim.opts.Label
	if begun = alike && h.lock.Begin(now) == holder.Begin; begun {
		h.turn = turn
	}
	return k, begun
}

func (l *Locker) decline(k *Lock) {
	l.spawn(func() { _ = k.Unlock(context.Background()) })
}

// next ends a turn, so that the next caller has it; a turn of 0 is none.
func (l *Locker) next(key string, turn int64) {
	if turn != 0 {
		l.turns.Unlock(key, turn)
	}
}

// yield ends a turn, after others had a chance when they are known to wait for the lock that was released by a call sent at
// sent.
func (l *Locker) yield(key string, turn int64, others bool, sent time.Time) {
	if turn == 0 || !others {
		l.next(key, turn)
		return
	}
	l.spawn(func() {
		wake.Sleep(l.courtesy(sent), l.closing)
		l.next(key, turn)
	})
}

// courtesy is for how long this process leaves a lock to others: else a process with many callers starves them. They need
// about as long to take the lock as its release has taken.
func (l *Locker) courtesy(sent time.Time) time.Duration {
	pause := max(2*time.Since(sent), time.Millisecond)
	return min(pause+rand.N(pause), l.cfg.TTL/4)
}
