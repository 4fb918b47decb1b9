package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/keytable"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/localmutex/locking"
)

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
		return l.lead(w, turn)
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
	return l.lead(w, turn)
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

// lead contends for the lock in Redis.
func (l *Locker) lead(w want, turn int64) (*Lock, error) {
	k, err := l.contend(w, turn)
	if err != nil {
		l.next(w.names[0], turn)
	}
	return k, err
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
