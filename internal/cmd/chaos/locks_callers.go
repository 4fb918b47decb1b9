package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/internal/cluster/proc"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
	"github.com/keyway-go/keyway/localmutex/locking"
	"github.com/keyway-go/keyway/ring"
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
	tell  func(said) error
	calls atomic.Int64

	forgetful bool // they leave some locks to the end of their leases
}

// lockWish is what a caller asks for.
type lockWish struct {
	keys   []string
	read   bool // a lock for reading, of one key
	lease  time.Duration
	leaves time.Duration // when the caller gives up; 0 for never
}

// taker takes a lock.
type taker func(context.Context, lockWish) (keeping, error)

// keeping is a lock that a caller has.
type keeping interface {
	TokenOf(key string) int64
	Until() time.Time
	Lost() bool                   // it may be another's
	Keep(context.Context)         // has it go on, if it does not by itself
	Unlock(context.Context) error // wraps locking.ErrNotOwner if it was lost
}

// errNotTaken is that of a caller who has got no lock and is content.
var errNotTaken = errors.New("others have the key")

// run makes calls until ctx ends, or the judge is gone. Most locks are held for a moment, and some over several
// moves. A third of them are for reading, and some callers take several at once.
func (c *lockCallers) run(ctx context.Context, rng *rand.Rand, lock taker) {
	for trial.Sleep(ctx, trial.UpTo(rng, lockThink)) && c.call(ctx, rng, lock) == nil {
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
	wish.read = rng.IntN(3) == 0
	keys := []int{key}
	if !hot && !wish.read && rng.IntN(5) == 0 {
		for range 1 + rng.IntN(2) {
			if other := hotLocks + rng.IntN(lockKeys-hotLocks); !slices.Contains(keys, other) {
				keys = append(keys, other)
			}
		}
	}
	all := make([]said, len(keys))
	for i, key := range keys {
		wish.keys = append(wish.keys, fmt.Sprint("lock-", key))
		all[i] = said{Life: c.life, Call: c.calls.Add(1), Key: key, Read: wish.read, Many: len(keys) > 1, Lease: wish.lease}
	}
	tell := func(step step, also func(s *said)) error {
		for i := range all {
			all[i].Step = step
			if also != nil {
				also(&all[i])
			}
			if err := c.tell(all[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := tell(asks, nil); err != nil {
		return err
	}
	l, err := lock(ctx, wish)
	if err != nil {
		return tell(fails, func(s *said) {
			if ctx.Err() == nil && !errors.Is(err, errNotTaken) {
				s.Err = err.Error()
			}
		})
	}
	until := func(s *said) { s.Until = l.Until() }
	if err := tell(has, func(s *said) { s.Token, s.Until = l.TokenOf(fmt.Sprint("lock-", s.Key)), l.Until() }); err != nil {
		return err
	}
	for step := c.ttl / 10; length > step && !l.Lost(); length -= step {
		trial.Sleep(ctx, step)
		l.Keep(ctx)
		if l.Lost() {
			break
		}
		if err := tell(holds, until); err != nil {
			return err
		}
	}
	trial.Sleep(ctx, min(length, c.ttl/10))
	lost := l.Lost()
	ends := func(s *said) { s.Until, s.Lost = l.Until(), lost }
	if c.forgetful && !hot && rng.IntN(100) == 0 {
		return tell(forgets, ends)
	}
	if err := tell(letsGo, ends); err != nil {
		return err
	}
	unlocking, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*c.ttl)
	defer cancel()
	err = l.Unlock(unlocking)
	return tell(unlocked, func(s *said) {
		if err != nil {
			s.Err, s.Lost = err.Error(), errors.Is(err, locking.ErrNotOwner)
		}
	})
}

// byClient has a client take locks.
func byClient(client *keyway.Client) taker {
	return func(ctx context.Context, w lockWish) (keeping, error) {
		l, err := clientLock{}, error(nil)
		options := []locking.Option{locking.TTL(w.lease)}
		if w.leaves > 0 {
			options = append(options, locking.Wait(w.leaves))
		}
		switch {
		case len(w.keys) > 1:
			l.Lock, err = client.LockAll(ctx, w.keys, options...)
		case w.read:
			l.Lock, err = client.RLock(ctx, w.keys[0], options...)
		default:
			l.Lock, err = client.Lock(ctx, w.keys[0], options...)
		}
		if errors.Is(err, locking.ErrLocked) || w.leaves > 0 && errors.Is(err, keyway.ErrUnavailable) { // a slow owner has not answered within the wait
			err = errNotTaken
		}
		return l, err
	}
}

// clientLock is what a client has locked.
type clientLock struct{ *client.Lock }

func (l clientLock) Lost() bool {
	return l.Context().Err() != nil && errors.Is(context.Cause(l.Context()), keyway.ErrOwnershipLost)
}

func (clientLock) Keep(context.Context) {} // it does by itself

// lockClientEnv has a [lockClient] in JSON, which a process of this program then is.
const lockClientEnv = "KEYWAY_CHAOS_LOCK_CLIENT"

// lockClient is a process whose callers lock keys until it is killed.
type lockClient struct {
	Life, Judge string
	Join        []string
	TTL         time.Duration
	Callers     int
	Seed        uint64
}

// spec starts the process.
func (me *lockClient) spec() (proc.Spec, error) {
	self, err := os.Executable()
	if err != nil {
		return proc.Spec{}, err
	}
	text, err := json.Marshal(me)
	return proc.Spec{Program: self, Env: []string{lockClientEnv + "=" + string(text)}}, err
}

// runLockClient is what the process does.
func runLockClient(ctx context.Context, text string) error {
	var me lockClient
	if err := json.Unmarshal([]byte(text), &me); err != nil {
		return err
	}
	client, err := keyway.NewClient(ctx, keyway.ClientConfig{Join: me.Join, Settings: ring.Settings{TTL: me.TTL}})
	if err != nil {
		return err
	}
	defer client.Close()
	judge := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: me.Callers}}
	c := &lockCallers{life: me.Life, ttl: me.TTL, tell: func(s said) error { return tell(judge, me.Judge, s) }}
	var callers sync.WaitGroup
	for i := range me.Callers {
		callers.Go(func() { c.run(ctx, rand.New(rand.NewPCG(me.Seed, uint64(i))), byClient(client)) })
	}
	callers.Wait()
	return errors.New("the judge has gone")
}

// tell tells the judge something, and returns when it has heard that.
func tell(client *http.Client, judge string, s said) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	res, err := client.Post(judge, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	return res.Body.Close()
}
