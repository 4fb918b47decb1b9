package lock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// Handle is a held lock on its way to another process, for example as JSON. Any process that has it
// can take the lock over, so keep it secret while the lock is held.
type Handle struct {
	Prefix string        `json:"prefix"`
	Keys   []string      `json:"keys"`  // sorted, each once
	Owner  string        `json:"owner"` // what is in Redis
	Token  int64         `json:"token"` // the fencing token, which stays
	TTL    time.Duration `json:"ttl"`   // in ns in JSON; of the renewals to come

	Servers int `json:"servers,omitempty"` // of a quorum; 0 for a lock that is not of NewQuorum
}

// Detach hands the lock to the process that calls Attach with the handle. The lock's Context here
// ends with the cause ErrDetached, and this process no longer renews the lock. It renews it a last
// time before, so that it lasts a full TTL. Detach returns locking.ErrNotOwner if the lock is gone
// or another's; after any other error the lock is held as before. It must not run at the same time
// as the lock's Unlock, and a lock that is held reentrantly cannot be detached.
func (k *Lock) Detach(ctx context.Context) (handle Handle, err error) {
	h := k.hold
	return handle, k.use.Alone(ctx, func() error {
		if err := k.extend(ctx, 0); err != nil {
			return err
		}
		nested := false
		d := h.Decide(func(now lease.Instant) holder.Decision {
			if nested = k.use.IsSharedLocked(); nested || !k.unlocked.CompareAndSwap(false, true) {
				return holder.TellNotOwner
			}
			d := h.Lock.Leave(now)
			if d == holder.Wait {
				_, _ = k.use.EndLocked(ErrDetached)
				h.DropLocked()
				h.l.counts.ended(k.use.Tenure)
				h.l.next(h.Keys[0], h.turn)
				h.turn = 0
			}
			return d
		})
		switch {
		case nested:
			return fmt.Errorf("%w: a lock that is held reentrantly cannot be detached", ErrNested)
		case d != holder.Wait:
			return fmt.Errorf("%w: %q", locking.ErrNotOwner, h.Keys)
		}
		c := h.claim // which does not change any more
		h.l.emitOf(k.use.Parent, detached, k.use.Tenure, c.ask, nil)
		handle = Handle{Prefix: c.cfg.Prefix, Keys: h.Keys, Owner: c.owner, Token: k.use.Token, TTL: c.opts.TTL, Servers: c.cfg.servers}
		return nil
	})
}

// Attach continues a lock that another process has detached, with its token and TTL. The Locker
// must have the same Redis and settings. It returns locking.ErrNotOwner if the lock is gone, or was
// attached before: of several tries, one succeeds. After any other error it may be tried again.
// That returns locking.ErrNotOwner if the failed try had an effect; the lock is then free at the
// end of its TTL at the latest.
//
// The lock's Context descends from ctx.
func (l *Locker) Attach(ctx context.Context, handle Handle) (*Lock, error) {
	if err := l.checkHandle(handle); err != nil {
		return nil, fmt.Errorf("%w: %w", locking.ErrOption, err)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.leaveCall()
	w := want{ctx: ctx, parent: ctx, ask: ask{names: slices.Clone(handle.Keys), read: handle.Owner[0] == 'r', opts: locking.Options{
		TTL: handle.TTL.Truncate(time.Millisecond), Label: cmp.Or(l.cfg.Label, labelOf(handle.Owner)),
	}}}
	c := l.claim(w.ask)
	c.reserve = 0 // the others are the former holder's
	var granted holder.Lock
	var said holder.Answer
	err := l.repeat(ctx, func() (err error) {
		granted = holder.New(&l.locks.Policy, l.locks.Now(), c.granted(handle.Token))
		said, err = l.server.verdict(ctx, func(ctx context.Context, n *lockNode) (int64, error) { return n.adopt(ctx, c, handle.Owner) })
		if err == nil && granted.Left(l.locks.Now()) == 0 {
			err = errLockTimeout
		}
		return err
	})
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = fmt.Errorf("lock: attaching %q: %w", handle.Keys, err)
	case said != holder.Held:
		return nil, fmt.Errorf("%w: %q is no longer held by the handle to attach", locking.ErrNotOwner, handle.Keys)
	default:
		k := l.hold(w, c, 0, granted)
		l.emitOf(ctx, attached, k.use.Tenure, w.ask, nil)
		return k, nil
	}
	l.abandon(c, true)
	return nil, err
}

// lockMostKeys bounds what a handle may ask one script to do.
const lockMostKeys = 1000

func (l *Locker) checkHandle(h Handle) error {
	switch {
	case len(h.Keys) == 0 || len(h.Keys) > lockMostKeys || !slices.Equal(h.Keys, distinct(h.Keys)):
		return fmt.Errorf("a handle of %d keys, want 1 to %d, sorted, each once", len(h.Keys), lockMostKeys)
	case len(h.Owner) < ownerLen || len(h.Owner) > ownerLen+1+lockLongestLabel || h.Owner[0] != 'w' && h.Owner[0] != 'r':
		return fmt.Errorf("a handle of %q with an owner that this package did not make", h.Keys)
	case h.Token <= 0:
		return fmt.Errorf("a handle of %q with the token %d, want more than 0", h.Keys, h.Token)
	case h.TTL < locking.ShortestTTL:
		return fmt.Errorf("a handle of %q with a TTL of %v, want at least %v", h.Keys, h.TTL, locking.ShortestTTL)
	case h.Prefix != l.cfg.Prefix:
		return fmt.Errorf("a handle of %q with prefix %q at a Locker with prefix %q", h.Keys, h.Prefix, l.cfg.Prefix)
	case h.Servers > 0 && h.Servers != l.cfg.servers:
		return fmt.Errorf("a handle of %q, of a quorum of %d servers, at a Locker of others: make that with NewQuorum and the same servers", h.Keys, h.Servers)
	}
	return nil
}

// adopt gives the claim what another owner holds.
func (n *lockNode) adopt(ctx context.Context, c *claim, from string) (int64, error) {
	keys, ttl := append([]string{c.gone(c.owner), c.gone(from)}, c.locks...), c.opts.TTL
	state, err := n.run(ctx, nil, &scripts.adopt, keys, from, c.owner, ttl.Milliseconds(), tombstone(ttl).Milliseconds()).Int64()
	c.unsettled.Store(true) // a call may still be on its way
	return state, err
}
