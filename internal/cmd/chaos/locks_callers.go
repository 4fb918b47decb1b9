package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/localmutex/locking"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

const (
	lockKeys = 400
	hotLocks = 4 // of these keys
	longTTLs = 4 // session TTLs of a long lease: one takeover after another is shorter
)

// lockCallers are those of one process.
type lockCallers struct {
	life  string
	ttl   time.Duration // of sessions
	think time.Duration // before each lock, at most
	tell  func(said) error
	calls atomic.Int64

	forgetful bool // they leave some locks to the end of their leases
}

// lockWish is what a caller asks for.
type lockWish struct {
	key    string
	lease  time.Duration
	leaves time.Duration // when the caller gives up; 0 for never
}

// taker takes a lock.
type taker func(context.Context, lockWish) (keeping, error)

// keeping is a lock that a caller has.
type keeping interface {
	Token() int64
	Until() time.Time
	Lost() bool                   // it may be another's
	Keep(context.Context)         // has it go on, if it does not by itself
	Unlock(context.Context) error // wraps locking.ErrNotOwner if it was lost
}

// errNotTaken is that of a caller who has got no lock and is content.
var errNotTaken = errors.New("others have the key")

// run makes calls until ctx ends, or the judge is gone. Most locks are held for a moment, and some over several
// moves.
func (c *lockCallers) run(ctx context.Context, rng *rand.Rand, lock taker) {
	for trial.Sleep(ctx, trial.UpTo(rng, c.think)) && c.call(ctx, rng, lock) == nil {
	}
}

func (c *lockCallers) call(ctx context.Context, rng *rand.Rand, lock taker) error {
	key, hot := rng.IntN(lockKeys), rng.IntN(2) == 0
	wish := lockWish{lease: time.Duration(1+rng.IntN(2)) * c.ttl / 2}
	length := trial.UpTo(rng, 40*time.Millisecond)
	switch {
	case hot:
		key = rng.IntN(hotLocks)
	case rng.IntN(20) == 0:
		wish.lease = longTTLs * c.ttl
	case rng.IntN(50) == 0:
		length = trial.UpTo(rng, 2*c.ttl)
	}
	if rng.IntN(100) == 0 {
		wish.leaves = 1 + trial.UpTo(rng, 50*time.Millisecond)
	}
	wish.key = fmt.Sprint("lock-", key)
	s := said{Life: c.life, Call: c.calls.Add(1), Key: key, Lease: wish.lease}
	tell := func(step step) error {
		s.Step = step
		return c.tell(s)
	}
	if err := tell(asks); err != nil {
		return err
	}
	l, err := lock(ctx, wish)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, errNotTaken) {
			s.Err = err.Error()
		}
		return tell(fails)
	}
	s.Token, s.Until = l.Token(), l.Until()
	if err := tell(has); err != nil {
		return err
	}
	for step := c.ttl / 10; length > step && !l.Lost(); length -= step {
		trial.Sleep(ctx, step)
		l.Keep(ctx)
		if s.Until = l.Until(); l.Lost() {
			break
		}
		if err := tell(holds); err != nil {
			return err
		}
	}
	trial.Sleep(ctx, min(length, c.ttl/10))
	s.Lost = l.Lost()
	if c.forgetful && !hot && rng.IntN(100) == 0 {
		return tell(forgets)
	}
	if err := tell(letsGo); err != nil {
		return err
	}
	unlocking, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*c.ttl)
	defer cancel()
	if err = l.Unlock(unlocking); err != nil {
		s.Err, s.Lost = err.Error(), errors.Is(err, locking.ErrNotOwner)
	}
	return tell(unlocked)
}

// byClient has a client take locks.
func byClient(client *keyway.Client) taker {
	return func(ctx context.Context, w lockWish) (keeping, error) {
		l, err := client.Lock(ctx, w.key, locking.TTL(w.lease), locking.Wait(w.leaves))
		if errors.Is(err, locking.ErrLocked) {
			err = errNotTaken
		}
		return clientLock{l}, err
	}
}

type clientLock struct{ *router.Lock }

func (l clientLock) Lost() bool {
	return l.Context().Err() != nil && errors.Is(context.Cause(l.Context()), keyway.ErrOwnershipLost)
}

func (clientLock) Keep(context.Context) {} // it does by itself
