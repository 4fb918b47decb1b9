package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/holding"
	"github.com/keyway-go/keyway/internal/keytable"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// heldClaim is a granted claim, until it is released. Callers of one process may use it one after the
// other.
type heldClaim struct {
	holding.Hold
	l *Locker

	// Guarded by the mutex of the Locker's locks.
	claim *claim
	turn  int64 // of its caller, among the callers of this process; 0 if they contend for the lock, or it is passed on
}

// hold starts a hold and its first tenure.
func (l *Locker) hold(w want, c *claim, turn int64, granted holder.Lock) *Lock {
	h := &heldClaim{l: l, claim: c}
	h.Init(&l.locks, h, c.names, c.read, granted)
	k, _ := h.begin(w, turn)
	return k
}

// begin makes the tenure of a caller. Its work begins if it wants the lock as it is and others cannot have the lock.
// Otherwise the caller keeps its turn.
func (h *heldClaim) begin(w want, turn int64) (k *Lock, begun bool) {
	l := h.l
	l.locks.Lock()
	defer l.locks.Unlock()
	l.counts.held.Add(1)
	alike := w.opts.TTL == h.Lock.Term() && w.opts.Label == h.claim.opts.Label
	use, begun := h.BeginLocked(w.parent, alike)
	if begun {
		h.turn = turn
	}
	return &Lock{hold: h, use: use}, begun
}

func (l *Locker) acquired(w want, k *Lock, how event) {
	wait := k.use.Since.Sub(w.began)
	l.counts.waits.Observe(wait)
	l.emit(w.parent, how, w.ask, nil, slog.Int64("token", k.use.Token), slog.Duration("wait", wait))
}

// Renew implements [holding.Backend].
func (h *heldClaim) Renew(holder.Decision) {
	h.l.spawn(func() {
		defer h.EndCall()
		_ = h.renew(context.Background())
	})
}

// Lost implements [holding.Backend]. The next caller of this process contends.
func (h *heldClaim) Lost(d holder.Decision) error {
	what, cause := lost, ErrLost
	switch {
	case h.l.locks.Closed:
		cause = ErrClosed
	case d == holder.CancelOverdue:
		what, cause = expired, ErrExpired
	}
	l, t, of := h.l, h.Tenure, h.claim.ask
	if t != nil { // otherwise it was passed on, and nobody has begun
		l.counts.ended(t)
		l.spawn(func() { l.emitOf(t.Parent, what, t, of, cause) })
	}
	l.next(h.Keys[0], h.turn)
	h.turn = 0
	return fmt.Errorf("%w: %q", cause, h.Keys)
}

// extend renews the hold for another TTL, or for its present one if ttl is 0. The tenure may end meanwhile.
func (k *Lock) extend(ctx context.Context, ttl time.Duration) error {
	h := k.hold
	err := k.use.While(func(lease.Instant) {
		h.Lock.Extend(ttl)
		h.LookLocked()
	})
	if err != nil {
		return err
	}
	return cmp.Or(h.renew(ctx), k.use.Err())
}

// renew makes the call of a renewal that is due.
func (h *heldClaim) renew(ctx context.Context) error {
	l := h.l
	l.locks.Lock()
	if term := h.Lock.Term(); term != h.claim.opts.TTL {
		lasting := *h.claim
		lasting.opts.TTL = term
		h.claim = &lasting
	}
	c, t := h.claim, h.Tenure
	l.locks.Unlock()
	sent := l.locks.Now()
	said, err := l.server.verdict(ctx, renewing(c, 0))
	d := h.Decide(func(now lease.Instant) (d holder.Decision) {
		if err != nil {
			h.Lock.Failed(false)
			return holder.Wait
		}
		if d = h.Lock.Renewed(now, sent, said, holder.Promise{}); d == holder.Retake {
			c.unsettled.Store(true) // a release that comes meanwhile makes a later retake fail
		}
		return d
	})
	if d == holder.Retake {
		d, err = h.retake(ctx, c)
	}
	switch {
	case err != nil:
		l.emitOf(ctx, renewFailed, t, c.ask, err)
		return fmt.Errorf("lock: renewing %q: %w", h.Keys, err)
	case d == holder.Wait:
		l.emitOf(ctx, renewed, t, c.ask, nil)
	}
	return nil
}

// retake takes a lock again that is gone. Its caller keeps the token, so a resource that has seen a later one refuses it.
func (h *heldClaim) retake(ctx context.Context, c *claim) (holder.Decision, error) {
	sent := h.l.locks.Now()
	g, err := h.l.server.acquire(ctx, c, true)
	return h.Decide(func(now lease.Instant) holder.Decision {
		switch {
		case err != nil:
			h.Lock.Failed(false)
		case g.token == 0:
			return h.Lock.Renewed(now, sent, holder.Taken, holder.Promise{})
		default:
			h.Lock.Retaken(sent, c.granted(g.token))
		}
		return holder.Wait
	}), err
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
		k, _ := h.begin(w, 0)
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
	l.locks.Lock()
	defer l.locks.Unlock()
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
	k, begun := h.begin(w, turn)
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
		wake.Sleep(l.courtesy(sent), l.ctx.Done())
		l.next(key, turn)
	})
}

// courtesy is for how long this process leaves a lock to others: else a process with many callers starves them. They need
// about as long to take the lock as its release has taken.
func (l *Locker) courtesy(sent time.Time) time.Duration {
	pause := max(2*time.Since(sent), time.Millisecond)
	return min(pause+rand.N(pause), l.cfg.TTL/4)
}
