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
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/keyway-go/keyway/fallback/lock"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// Enter waits until it has the lock of a name, and returns how to give it back. Its token is
// 0 if it has none; the work is done under its context.
type Enter func(ctx context.Context, name string) (held context.Context, token int64, leave func(), err error)

// Keyway is a lock of Keyway's, whatever keeps it. An unlock that fails is repeated by that;
// what loses a lock shows in what is recorded.
func Keyway[L locking.Lease](locker interface {
	Lock(ctx context.Context, key string, opts ...locking.Option) (L, error)
}) Enter {
	return func(ctx context.Context, name string) (context.Context, int64, func(), error) {
		lock, err := locker.Lock(ctx, name)
		if err != nil {
			return nil, 0, nil, err
		}
		return lock.Context(), lock.Token(), func() { _ = lock.Unlock(context.WithoutCancel(ctx)) }, nil
	}
}

// New returns what takes locks with a library: etcd, whose servers have URLs; and redsync, redislock or lock, which is Keyway's
// own, with a Redis at host:port. With several of these redsync is Redlock, and lock a quorum. end ends its clients.
func New(library string, addrs []string, ttl time.Duration) (_ Enter, end func(), err error) {
	if library == "etcd" {
		return etcd(addrs, ttl)
	}
	var clients []redis.UniversalClient
	for _, addr := range addrs {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}))
	}
	disconnect := func() {
		for _, client := range clients {
			_ = client.Close()
		}
	}
	switch library {
	case "redsync":
		return withRedsync(clients, ttl), disconnect, nil
	case "redislock":
		return withRedislock(clients[0], ttl), disconnect, nil
	}
	var locker *lock.Locker
	if len(clients) > 1 {
		locker, err = lock.NewQuorum(clients, lock.Config{TTL: ttl})
	} else {
		locker, err = lock.New(clients[0], lock.Config{TTL: ttl})
	}
	if err != nil {
		disconnect()
		return nil, nil, err
	}
	return Keyway(locker), func() { _ = locker.Close(); disconnect() }, nil // what it fails with, the records show
}

// withRedsync has redsync's own delays between tries.
func withRedsync(clients []redis.UniversalClient, ttl time.Duration) Enter {
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

// withRedislock tries every [Poll] on average, as redislock has no delay of its own.
func withRedislock(client redis.UniversalClient, ttl time.Duration) Enter {
	locker := redislock.New(client)
	options := &redislock.Options{RetryStrategy: jitter(Poll)}
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

// Poll is the mean time between two tries of locks that poll and leave it to the user.
const Poll = 2 * time.Millisecond

// sparesKept bounds the sessions that nobody uses.
const sparesKept = 1024

// etcd is the lock of etcd's package concurrency. It belongs to a session, so
// that each caller needs one of its own; they are kept. stop ends them.
func etcd(endpoints []string, ttl time.Duration) (_ Enter, stop func(), err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		return nil, nil, err
	}
	spare := make(chan *concurrency.Session, sparesKept)
	session := func() (*concurrency.Session, error) {
		select {
		case s := <-spare:
			return s, nil
		default:
			return concurrency.NewSession(client, concurrency.WithTTL(max(1, int(ttl.Seconds()))))
		}
	}
	giveBack := func(s *concurrency.Session) {
		select {
		case spare <- s:
		default:
			_ = s.Close() // else its lease runs out
		}
	}
	lock := func(ctx context.Context, name string) (context.Context, int64, func(), error) {
		s, err := session()
		if err != nil {
			return nil, 0, nil, err
		}
		m := concurrency.NewMutex(s, name)
		if err := m.Lock(ctx); err != nil {
			_ = s.Close() // it may have lost its lease
			return nil, 0, nil, err
		}
		return ctx, m.Header().Revision, func() {
			if m.Unlock(context.WithoutCancel(ctx)) != nil {
				_ = s.Close() // which frees the lock
				return
			}
			giveBack(s)
		}, nil
	}
	return lock, func() { _ = client.Close() }, nil
}
