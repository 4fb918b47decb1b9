package main

import (
	"context"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/keyway-go/keyway/fallback/lock"
)

// ttl of every lock.
const ttl = 10 * time.Second

// poll is the pause of contestants that poll: the best of 1, 2, 5, 10 and
// 20 ms for 64 callers of one key.
const poll = 5 * time.Millisecond

// contestant is a lock. Lock waits for the key and returns what unlocks it.
type contestant struct {
	lock  func(ctx context.Context, key string) (unlock func() error, err error)
	close func()
}

// contestants are opened one by one, each with connections of its own. The
// first is ours.
var contestants = []struct {
	name string
	open func(addr string) (contestant, error)
}{
	{"keyway", openKeyway},
	{"redislock", openRedislock},
	{"redsync", openRedsync},
	{"rueidislock", openRueidislock},
}

func openClient(addr string) redis.UniversalClient {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: 64, ContextTimeoutEnabled: true})
}

func openKeyway(addr string) (contestant, error) {
	client := openClient(addr)
	l, err := lock.New(client, lock.Config{TTL: ttl})
	if err != nil {
		return contestant{}, err
	}
	return contestant{
		lock: func(ctx context.Context, key string) (func() error, error) {
			k, err := l.Lock(ctx, key)
			if err != nil {
				return nil, err
			}
			return func() error { return k.Unlock(ctx) }, nil
		},
		close: func() { _, _ = l.Close(), client.Close() },
	}, nil
}

func openRedislock(addr string) (contestant, error) {
	client := openClient(addr)
	l := redislock.New(client)
	return contestant{
		lock: func(ctx context.Context, key string) (func() error, error) {
			k, err := l.Obtain(ctx, "redislock:"+key, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(poll)})
			if err != nil {
				return nil, err
			}
			return func() error { return k.Release(ctx) }, nil
		},
		close: func() { _ = client.Close() },
	}, nil
}

func openRedsync(addr string) (contestant, error) {
	client := openClient(addr)
	l := redsync.New(goredis.NewPool(client))
	return contestant{
		lock: func(ctx context.Context, key string) (func() error, error) {
			m := l.NewMutex("redsync:"+key, redsync.WithExpiry(ttl), redsync.WithTries(1<<30), redsync.WithRetryDelay(poll))
			if err := m.LockContext(ctx); err != nil {
				return nil, err
			}
			return func() error {
				ok, err := m.UnlockContext(ctx)
				if err == nil && !ok {
					err = fmt.Errorf("redsync: not unlocked")
				}
				return err
			}, nil
		},
		close: func() { _ = client.Close() },
	}, nil
}

// openRueidislock uses one key on one server, as the others do; its default
// is a majority of three.
func openRueidislock(addr string) (contestant, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:  1,
		KeyValidity:  ttl,
	})
	if err != nil {
		return contestant{}, err
	}
	return contestant{
		lock: func(ctx context.Context, key string) (func() error, error) {
			_, cancel, err := l.WithContext(ctx, key)
			if err != nil {
				return nil, err
			}
			return func() error { cancel(); return nil }, nil
		},
		close: l.Close,
	}, nil
}
