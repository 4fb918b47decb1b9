package interoptest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/fallback/lock"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// other is another library's lock of one key.
type other struct {
	try    func(key string) error // errHeld if the lock is held
	unlock func() error
}

var errHeld = errors.New("held")

// libraries are those whose locks and ours exclude each other both ways.
var libraries = map[string]func(t *testing.T, client redis.UniversalClient) *other{
	"redsync":   openRedsync,
	"redislock": openRedislock,
}

func openRedsync(t *testing.T, client redis.UniversalClient) *other {
	rs := redsync.New(goredis.NewPool(client))
	var m *redsync.Mutex
	return &other{
		try: func(key string) error {
			m = rs.NewMutex(key, redsync.WithExpiry(time.Minute))
			err := m.TryLockContext(t.Context())
			if _, taken := errors.AsType[*redsync.ErrTaken](err); taken {
				return errHeld
			}
			return err
		},
		unlock: func() error {
			ok, err := m.UnlockContext(t.Context())
			if err == nil && !ok {
				err = errors.New("redsync: not unlocked")
			}
			return err
		},
	}
}

func openRedislock(t *testing.T, client redis.UniversalClient) *other {
	locks := redislock.New(client)
	var held *redislock.Lock
	return &other{
		try: func(key string) (err error) {
			held, err = locks.Obtain(t.Context(), key, time.Minute, nil)
			if errors.Is(err, redislock.ErrNotObtained) {
				return errHeld
			}
			return err
		},
		unlock: func() error { return held.Release(t.Context()) },
	}
}

func open(t *testing.T, addr string) redis.UniversalClient {
	t.Helper()
	client, err := fallback.NewClient("redis://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func locker(t *testing.T, client redis.UniversalClient, c lock.Config) *lock.Locker {
	t.Helper()
	l, err := lock.New(client, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func unlock(t *testing.T, k *lock.Lock) {
	t.Helper()
	if err := k.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// namings are the ways in which both sides mean the same key of Redis.
var namings = map[string]struct {
	config lock.Config
	theirs string // for our "order:42"
}{
	"with our prefix": {lock.Config{}, "keyway:lock:{order:42}"},
	"without prefix":  {lock.Config{NoPrefix: true}, "order:42"},
	"FIFO":            {lock.Config{FIFO: true, Prefix: "fifo:"}, "fifo:{order:42}"},
}

const ours = "order:42"

func TestTheirLocksAndOursExcludeEachOther(t *testing.T) {
	server := redistest.Start(t)
	for library, openOther := range libraries {
		for name, n := range namings {
			t.Run(library+" "+name, func(t *testing.T) {
				client := open(t, server.Addr())
				l, o := locker(t, client, n.config), openOther(t, client)
				k, err := l.Lock(t.Context(), ours)
				if err != nil {
					t.Fatal(err)
				}
				if err := o.try(n.theirs); !errors.Is(err, errHeld) {
					t.Fatalf("theirs beside ours: %v", err)
				}
				unlock(t, k)
				if err := o.try(n.theirs); err != nil {
					t.Fatal(err)
				}
				if _, err := l.TryLock(t.Context(), ours); !errors.Is(err, locking.ErrLocked) {
					t.Fatalf("ours beside theirs: %v", err)
				}
				if _, err := l.TryRLock(t.Context(), ours); !errors.Is(err, locking.ErrLocked) {
					t.Fatalf("ours for reading beside theirs: %v", err)
				}
				if s, err := l.State(t.Context(), ours); err != nil || !s.Held || s.Left <= 0 || s.Left > time.Minute {
					t.Errorf("State is %+v, %v", s, err)
				}
				got := make(chan *lock.Lock)
				go func() { // which finds it held, or free: in both cases it gets it
					k, err := l.Lock(t.Context(), ours)
					if err != nil {
						t.Error(err)
					}
					got <- k
				}()
				if err := o.unlock(); err != nil {
					t.Error(err)
				}
				unlock(t, <-got)
			})
		}
	}
}

// A reader of ours keeps the others out, which redsync takes for a lock that is held and redislock for an error.
func TestOurReadersKeepThemOut(t *testing.T) {
	server := redistest.Start(t)
	for library, openOther := range libraries {
		t.Run(library, func(t *testing.T) {
			client := open(t, server.Addr())
			k, err := locker(t, client, lock.Config{}).RLock(t.Context(), ours)
			if err != nil {
				t.Fatal(err)
			}
			if err := openOther(t, client).try("keyway:lock:{order:42}"); err == nil {
				t.Fatal("both have it")
			}
			unlock(t, k)
		})
	}
}

// None of the two frees or extends what the other has.
func TestNobodyFreesTheOthersLock(t *testing.T) {
	server := redistest.Start(t)
	client := open(t, server.Addr())
	l := locker(t, client, lock.Config{NoPrefix: true})
	k, err := l.Lock(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	rs := redsync.New(goredis.NewPool(client)).NewMutex(ours, redsync.WithValue("theirs"))
	if ok, err := rs.UnlockContext(t.Context()); ok || err == nil {
		t.Errorf("redsync unlocks ours: %v, %v", ok, err)
	}
	if ok, err := rs.ExtendContext(t.Context()); ok || err == nil {
		t.Errorf("redsync extends ours: %v, %v", ok, err)
	}
	if s, err := l.State(t.Context(), ours); !s.Held || err != nil {
		t.Fatalf("State is %+v, %v", s, err)
	}
	server.CLI("set", ours, "theirs", "px", "60000")
	if err := k.Unlock(t.Context()); !errors.Is(err, locking.ErrNotOwner) {
		t.Errorf("Unlock of what is theirs by now: %v", err)
	}
	if got := server.CLI("get", ours); got != "theirs" {
		t.Errorf("their lock is %q", got)
	}
}

// Both kinds contend for a key, and nobody meets another.
func TestTheyTakeTurns(t *testing.T) {
	server := redistest.Start(t)
	client := open(t, server.Addr())
	l := locker(t, client, lock.Config{NoPrefix: true})
	locks := redislock.New(client)
	rs := redsync.New(goredis.NewPool(client))
	counter := 0
	var inside sync.Mutex // found locked by who holds the lock beside another
	work := func() {
		if !inside.TryLock() {
			t.Error("two hold the lock")
			return
		}
		counter++
		inside.Unlock()
	}
	const rounds = 10
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var running sync.WaitGroup
	for _, run := range []func() error{
		func() error {
			k, err := l.Lock(ctx, ours)
			if err != nil {
				return err
			}
			work()
			return k.Unlock(ctx)
		},
		func() error {
			m := rs.NewMutex(ours, redsync.WithExpiry(time.Minute), redsync.WithTries(1<<20), redsync.WithRetryDelay(5*time.Millisecond))
			if err := m.LockContext(ctx); err != nil {
				return err
			}
			work()
			_, err := m.UnlockContext(ctx)
			return err
		},
		func() error {
			k, err := locks.Obtain(ctx, ours, time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond)})
			if err != nil {
				return err
			}
			work()
			return k.Release(ctx)
		},
	} {
		running.Go(func() {
			for range rounds {
				if err := run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	if counter != 3*rounds {
		t.Errorf("%d turns, want %d", counter, 3*rounds)
	}
}

// A redsync mutex over several servers and a quorum over the same ones exclude each other.
func TestQuorums(t *testing.T) {
	var pools []redis.UniversalClient
	for range 3 {
		pools = append(pools, open(t, redistest.Start(t).Addr()))
	}
	rs := redsync.New(goredis.NewPool(pools[0]), goredis.NewPool(pools[1]), goredis.NewPool(pools[2]))
	q, err := lock.NewQuorum(pools, lock.Config{NoPrefix: true, TTL: time.Minute, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	m := rs.NewMutex(ours, redsync.WithExpiry(time.Minute), redsync.WithTimeoutFactor(0.5))
	k, err := q.Lock(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.TryLockContext(t.Context()); err == nil {
		t.Fatal("both have it")
	}
	unlock(t, k)
	if err := m.LockContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := q.TryLock(t.Context(), ours); !errors.Is(err, locking.ErrLocked) {
		t.Fatalf("ours beside theirs: %v", err)
	}
	if ok, err := m.UnlockContext(t.Context()); !ok || err != nil {
		t.Errorf("redsync unlocks: %v, %v", ok, err)
	}
}

// Redisson's plain lock is a hash of holders by how often they have entered it. These scripts send Redis the commands
// that its scripts send, in that order (org.redisson.RedissonLock, tryLockInnerAsync and unlockInnerAsync).
var (
	redissonLock = redis.NewScript(`
local free, mine = redis.call('exists', KEYS[1]) == 0, false
if not free then mine = redis.call('hexists', KEYS[1], ARGV[2]) == 1 end
if not free and not mine then return redis.call('pttl', KEYS[1]) end
redis.call('hincrby', KEYS[1], ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return false`)
	redissonUnlock = redis.NewScript(`
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return false end
if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[1])
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], '0')
return 1`)
)

const thread = "8743c9c0-0795-4907-87fd-6c719a6b4586:1"

// Of Redisson's lock and ours, whoever comes second never gets in. Ours waits for theirs; theirs fails with an error beside
// ours, as it expects a hash.
func TestRedissonsLock(t *testing.T) {
	server := redistest.Start(t)
	client := open(t, server.Addr())
	for name, c := range map[string]lock.Config{"plain": {NoPrefix: true, TTL: time.Minute}, "FIFO": {NoPrefix: true, FIFO: true, Prefix: "fifo:", TTL: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			l := locker(t, client, c)
			enter := func() error {
				return redissonLock.Run(t.Context(), client, []string{ours}, 60000, thread).Err()
			}
			for range 2 { // reentrantly
				if err := enter(); !errors.Is(err, redis.Nil) {
					t.Fatalf("Redisson locks: %v", err)
				}
			}
			if _, err := l.TryLock(t.Context(), ours); !errors.Is(err, locking.ErrLocked) {
				t.Fatalf("ours beside theirs: %v", err)
			}
			if _, err := l.TryRLock(t.Context(), ours); !errors.Is(err, locking.ErrLocked) {
				t.Fatalf("ours for reading beside theirs: %v", err)
			}
			if s, err := l.State(t.Context(), ours); err != nil || !s.Held {
				t.Errorf("State is %+v, %v", s, err)
			}
			got := make(chan *lock.Lock)
			go func() {
				k, err := l.Lock(t.Context(), ours)
				if err != nil {
					t.Error(err)
				}
				got <- k
			}()
			for want := range int64(2) {
				channel := "redisson_lock__channel:{" + ours + "}"
				if n, err := redissonUnlock.Run(t.Context(), client, []string{ours, channel}, 60000, thread).Int64(); n != want || err != nil {
					t.Fatalf("Redisson unlocks: %d, %v, want %d", n, err, want)
				}
			}
			k := <-got
			if err := enter(); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
				t.Fatalf("Redisson locks beside ours: %v", err)
			}
			unlock(t, k)
			if err := enter(); !errors.Is(err, redis.Nil) {
				t.Fatalf("Redisson locks after ours: %v", err)
			}
			server.CLI("del", ours)
		})
	}
}
