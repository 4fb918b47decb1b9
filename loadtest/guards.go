//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/fallback/lock"
	"github.com/keyway-go/keyway/loadtest/internal/lockers"
	"github.com/keyway-go/keyway/localmutex"
)

// Guards, by name.
const (
	guardNone        = "none"
	guardMember      = "member"  // a Keyway worker, which excludes before the handler
	guardBatch       = "batch"   // the same, with a handler of batches
	guardUnkeyed     = "unkeyed" // the same behind a router that finds no keys, so that nothing excludes
	guardSidecar     = "sidecar"
	guardLocal       = "local" // a mutex in the process
	guardPlain       = "plain"
	guardLock        = "lock"
	guardLockPolling = "lock-polling"
	guardQuorum      = "quorum"
	guardRedsync     = "redsync"
	guardRedislock   = "redislock"
	guardRueidislock = "rueidislock"
	guardRow         = "pg-row"
	guardAdvisory    = "pg-advisory"
	guardVersion     = "pg-version"
	guardNamed       = "mariadb"
	guardEtcd        = "etcd"
	guardZooKeeper   = "zookeeper"
	guardService     = "service" // locks of a Keyway worker, taken by its client
	guardStreams     = "streams"
)

// enter excludes others from a key, and returns how to end that.
type enter = lockers.Enter

// newGuard makes the app's guard, nil for one that excludes before the handler.
func (a *app) newGuard(ctx context.Context) (g guard, stop func(), err error) {
	stop = func() {}
	var e enter
	switch a.Guard {
	case guardNone, guardSidecar:
		return nil, stop, nil
	case guardLocal:
		e = func(ctx context.Context, _ string) (context.Context, int64, func(), error) {
			return ctx, 0, func() {}, nil
		}
	case guardPlain:
		e = a.plain()
	case guardLock, guardLockPolling, guardQuorum:
		e, stop, err = a.keywayLock()
	case guardRedsync:
		var clients []*redis.Client
		for i := range a.Redis {
			clients = append(clients, a.client(i))
		}
		e = a.underName(lockers.Redsync(clients, a.TTL))
	case guardRedislock:
		e = a.underName(lockers.Redislock(a.client(0), a.TTL, a.Poll))
	case guardRueidislock:
		e, stop, err = a.rueidislock()
	case guardRow:
		return a.locked("SELECT version FROM " + stockTable(a.Cluster) + " WHERE key = $1 FOR UPDATE"), stop, nil
	case guardAdvisory:
		return a.locked("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"), stop, nil
	case guardVersion:
		return a.versioned, stop, nil
	case guardNamed:
		e, stop, err = a.named()
	case guardEtcd:
		if e, stop, err = lockers.Etcd(strings.Split(a.Stores[storeEtcd], ","), a.TTL); err == nil {
			e = a.underName(e)
		}
	case guardZooKeeper:
		e, stop, err = a.zookeeper()
	case guardService:
		e, stop, err = a.service(ctx)
	case guardStreams:
		return a.streams(ctx)
	default:
		err = fmt.Errorf("app: there is no guard %q", a.Guard)
	}
	if err != nil {
		return nil, nil, err
	}
	if a.Local || a.Guard == guardLocal {
		e = locally(e)
	}
	return func(ctx context.Context, j job) (outcome, error) {
		held, token, leave, err := e(ctx, j.key)
		if err != nil {
			return outcome{}, err
		}
		defer leave()
		return a.execute(held, j, token)
	}, stop, nil
}

// locally lets one of the process's callers contend for a key at a time.
func locally(e enter) enter {
	mutex := &localmutex.Mutex{PerKey: math.MaxInt, Total: math.MaxInt}
	return func(ctx context.Context, key string) (context.Context, int64, func(), error) {
		if err := mutex.Lock(ctx, key); err != nil {
			return nil, 0, nil, err
		}
		held, token, leave, err := e(ctx, key)
		if err != nil {
			mutex.Unlock(key)
			return nil, 0, nil, err
		}
		return held, token, func() { leave(); mutex.Unlock(key) }, nil
	}
}

// lockName is what a key's lock is called in a store.
func (a *app) lockName(key string) string { return a.Cluster + ":lock:" + key }

// underName takes the lock of a key by that name.
func (a *app) underName(e enter) enter {
	return func(ctx context.Context, key string) (context.Context, int64, func(), error) {
		return e(ctx, a.lockName(key))
	}
}

// lockPatience bounds the wait for a lock that has to be told.
const lockPatience = time.Minute

var errPatience = fmt.Errorf("app: no lock within %v", lockPatience)

func (a *app) client(i int) *redis.Client { return redis.NewClient(&redis.Options{Addr: a.Redis[i]}) }

// keywayLock is the lock of package lock.
func (a *app) keywayLock() (enter, func(), error) {
	options := lock.Config{TTL: a.TTL, Prefix: a.lockName("")}
	if a.Guard == guardLockPolling {
		options.NoHandOver, options.Poll, options.PollEvery = true, true, 2*a.Poll
	}
	var clients []redis.UniversalClient
	for _, addr := range a.Redis {
		client, err := fallback.NewClient("redis://" + addr)
		if err != nil {
			return nil, nil, err
		}
		clients = append(clients, client)
	}
	var locker *lock.Locker
	var err error
	if a.Guard == guardQuorum {
		locker, err = lock.NewQuorum(clients, options)
	} else {
		locker, err = lock.New(clients[0], options)
	}
	if err != nil {
		return nil, nil, err
	}
	stop := func() {
		_ = locker.Close() // what it fails with, the records show
		for _, client := range clients {
			_ = client.Close()
		}
	}
	return lockers.Keyway(locker), stop, nil
}

// release is made once for the process: its hash names the script in Redis.
var release = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

// plain is the lock that teams write: SET NX PX, polling with jitter, and a
// script that deletes the key if it is still one's own.
func (a *app) plain() enter {
	client := a.client(0)
	return func(ctx context.Context, key string) (context.Context, int64, func(), error) {
		name, owner := a.lockName(key), rand.Text()
		for {
			ok, err := client.SetNX(ctx, name, owner, a.TTL).Result()
			if err != nil {
				return nil, 0, nil, err
			}
			if ok {
				leave := func() { _ = release.Run(context.WithoutCancel(ctx), client, []string{name}, owner).Err() }
				return ctx, 0, leave, nil
			}
			select {
			case <-time.After(a.Poll/2 + mathrand.N(a.Poll)):
			case <-ctx.Done():
				return nil, 0, nil, context.Cause(ctx)
			}
		}
	}
}

// rueidislock waits for invalidations of its client-side cache.
func (a *app) rueidislock() (enter, func(), error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: a.Redis[:1]}, KeyPrefix: a.lockName(""), KeyMajority: 1, NoLoopTracking: true, KeyValidity: a.TTL,
	})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, key string) (context.Context, int64, func(), error) {
		held, cancel, err := locker.WithContext(ctx, key)
		return held, 0, cancel, err
	}, locker.Close, nil
}
