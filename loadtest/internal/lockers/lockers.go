//go:build linux

// Package lockers takes locks with Keyway and the libraries that it is compared with, with the options
// that their users have, and as many tries as it takes.
package lockers

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/localmutex/locking"
)

// Enter waits until it has the lock of a name, and returns how to give it back. Its token is
// 0 if it has none; the work is done under its context.
type Enter func(ctx context.Context, name string) (held context.Context, token int64, leave func(), err error)

// Keyway is a lock of Keyway's, whatever keeps it. An unlock that fails is repeated by that;
// what loses a lock shows in what is recorded.
func Keyway[L locking.Lease](locker locking.Maker[L]) Enter {
	return func(ctx context.Context, name string) (context.Context, int64, func(), error) {
		lock, err := locker.Lock(ctx, name)
		if err != nil {
			return nil, 0, nil, err
		}
		return lock.Context(), lock.Token(), func() { _ = lock.Unlock(context.WithoutCancel(ctx)) }, nil
	}
}

// Redsync has its own delays between tries; over several servers it is Redlock.
func Redsync(clients []*redis.Client, ttl time.Duration) Enter {
	var pools []redsyncredis.Pool
	for _, client := range clients {
		pools = append(pools, goredis.NewPool(client))
	}
	rs := redsync.New(pools...)
	return func(ctx context.Context, name string) (context.Context, int64, func(), error) {
		m := rs.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(100_000))
		if err := m.LockContext(ctx); err != nil {
			return nil, 0, nil, err
		}
		return ctx, 0, func() { _, _ = m.UnlockContext(context.WithoutCancel(ctx)) }, nil
	}
}

// Redislock has no delay of its own: it tries every poll on average.
func Redislock(client *redis.Client, ttl, poll time.Duration) Enter {
	locker := redislock.New(client)
	options := &redislock.Options{RetryStrategy: jitter(poll)}
	return func(ctx context.Context, name string) (context.Context, int64, func(), error) {
		wait, cancel := context.WithTimeout(ctx, time.Hour) // without a deadline it would wait no longer than the TTL
		lock, err := locker.Obtain(wait, name, ttl, options)
		cancel()
		if err != nil {
			return nil, 0, nil, err
		}
		return ctx, 0, func() { _ = lock.Release(context.WithoutCancel(ctx)) }, nil
	}
}

// jitter is a redislock.RetryStrategy with a mean.
type jitter time.Duration

func (j jitter) NextBackoff() time.Duration { return time.Duration(j/2) + rand.N(time.Duration(j)) }
