//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/keyway-go/keyway/loadtest/internal/lockers"
	"github.com/keyway-go/keyway/localmutex"
)

// enter excludes others from a key, and returns how to end that.
type enter = lockers.Enter

// newGuard makes the app's guard, nil for one that excludes before the handler, or not at all.
func (a *app) newGuard(ctx context.Context) (g guard, stop func(), err error) {
	stop = func() {}
	var e enter
	switch a.Design {
	case "none", keywaySidecar:
		return nil, stop, nil
	case "hash":
		e = func(ctx context.Context, _ string) (context.Context, int64, func(), error) {
			return ctx, 0, func() {}, nil
		}
	case "plain":
		e = a.plain()
	case "lock", "redsync", "redislock":
		e, stop, err = a.library(a.Design, a.Redis)
	case "quorum":
		e, stop, err = a.library("lock", a.Redis)
	case "redlock":
		e, stop, err = a.library("redsync", a.Redis)
	case "etcd":
		e, stop, err = a.library("etcd", []string{a.Stores[storeEtcd]})
	case "rueidislock":
		e, stop, err = a.rueidislock()
	case "pg-row":
		return a.locked("SELECT version FROM " + stockTable(a.Cluster) + " WHERE key = $1 FOR UPDATE"), stop, nil
	case "pg-advisory":
		return a.locked("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"), stop, nil
	case pgVersion:
		return a.versioned, stop, nil
	case "mariadb":
		e, stop, err = a.named()
	case "zookeeper":
		e, stop, err = a.zookeeper()
	case lockService:
		e, stop, err = a.service(ctx)
	case "streams":
		return a.streams(ctx)
	default:
		err = fmt.Errorf("app: there is no design %q", a.Design)
	}
	if err != nil {
		return nil, nil, err
	}
	if a.Local || a.Design == "hash" {
		e = locally(e)
	}
	return func(ctx context.Context, j job) (int64, error) {
		held, token, leave, err := e(ctx, j.key)
		if err != nil {
			return 0, err
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

// library takes the lock of a key by its name, with a library.
func (a *app) library(name string, addrs []string) (enter, func(), error) {
	e, stop, err := lockers.New(name, addrs, a.TTL)
	return func(ctx context.Context, key string) (context.Context, int64, func(), error) {
		return e(ctx, a.lockName(key))
	}, stop, err
}

// lockPatience bounds the wait for a lock that has to be told.
const lockPatience = time.Minute

var errPatience = fmt.Errorf("app: no lock within %v", lockPatience)

// release is made once for the process: its hash names the script in Redis.
var release = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

// plain is the lock that teams write: SET NX PX, polling with jitter, and a
// script that deletes the key if it is still one's own.
func (a *app) plain() enter {
	client := redis.NewClient(&redis.Options{Addr: a.Redis[0]})
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
			if !sleep(ctx, lockers.Poll/2+mathrand.N(lockers.Poll)) {
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
