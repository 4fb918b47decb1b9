package lock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/test/netproxy"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// lockProxy is a Redis with a proxy in front of it.
func lockProxy(t testing.TB) (*redistest.Server, *netproxy.Proxy) {
	t.Helper()
	server := redistest.Start(t)
	proxy, err := netproxy.New(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	return server, proxy
}

// warm makes the Locker connect and the server know the scripts.
func warm(t testing.TB, l *Locker) {
	t.Helper()
	mustUnlock(t, mustLock(t, l.Lock, "warm"))
}

func eventually(t testing.TB, d time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(d)
	for !holds() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

func held(s *redistest.Server, key string) bool {
	return s.CLI("exists", "keyway:lock:{"+key+"}") == "1"
}

// calls counts the scripts that the server has run.
func calls(t testing.TB, s *redistest.Server) int {
	t.Helper()
	_, stats, _ := strings.Cut(s.CLI("info", "commandstats"), "cmdstat_evalsha:calls=")
	n, err := strconv.Atoi(stats[:strings.IndexByte(stats, ',')])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestLostReplyToAcquireIsRetriedAtOnceWithTheSameToken(t *testing.T) {
	server, proxy := lockProxy(t)
	for name, lose := range map[string]func(){
		"connection cut": func() { proxy.CutNext(netproxy.ToClient) },
		"reply swallowed": func() {
			proxy.Set(netproxy.ToClient, netproxy.Fault{Drop: true})
			go func() {
				eventually(t, time.Minute, "the lock is taken", func() bool { return held(server, "reply swallowed") })
				proxy.Set(netproxy.ToClient, netproxy.Fault{})
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := testLocker(t, proxy.Addr(), Config{TTL: 5 * time.Minute, Timeout: 200 * time.Millisecond})
			warm(t, l)
			lose()
			began := time.Now()
			k, err := l.TryLock(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("the retry took %v", took)
			}
			fence, err := strconv.ParseInt(server.CLI("get", "keyway:lock:fence:{"+name+"}"), 10, 64)
			if err != nil || k.Token() != fence-32 {
				t.Errorf("token is %d, the server minted %d (%v)", k.Token(), fence-32, err)
			}
			mustUnlock(t, k)
		})
	}
}

func TestContextEndsInMidAcquireAndTheKeyIsFreeAtOnce(t *testing.T) {
	for name, o := range map[string]Config{"plain": {}, "fifo": {FIFO: true}} {
		t.Run(name, func(t *testing.T) {
			server, proxy := lockProxy(t)
			o.TTL, o.Timeout = 5*time.Minute, time.Minute
			l := testLocker(t, proxy.Addr(), o)
			for taken := false; !taken; { // again if the connection did not outlive the warming
				warm(t, l)
				proxy.Set(netproxy.ToClient, netproxy.Fault{Drop: true})
				ctx, cancel := context.WithCancel(t.Context())
				failed := make(chan error)
				go func() {
					_, err := l.Lock(ctx, name)
					failed <- err
				}()
				for give := time.Now().Add(500 * time.Millisecond); !taken && time.Now().Before(give); {
					taken = held(server, name)
				}
				cancel()
				ended := time.Now()
				wantErr(t, <-failed, context.Canceled)
				if took := time.Since(ended); took > time.Minute/2 {
					t.Errorf("Lock returned %v after its context ended", took)
				}
				proxy.Heal() // what was swallowed stays lost
			}
			eventually(t, time.Minute, "the key is free", func() bool { return !held(server, name) })
		})
	}
}

// A group of goroutines ends its context with the error of the first that failed, which may be an answer of Redis.
func TestContextThatEndsWithAnAnswerOfRedisLeavesNothingLocked(t *testing.T) {
	server, proxy := lockProxy(t)
	l := testLocker(t, proxy.Addr(), Config{TTL: 5 * time.Minute, Timeout: time.Minute})
	warm(t, l)
	proxy.Set(netproxy.ToClient, netproxy.Fault{Stall: true})
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error)
	go func() {
		_, err := l.Lock(ctx, "key")
		failed <- err
	}()
	eventually(t, time.Minute, "the key is locked", func() bool { return held(server, "key") })
	cancel(fmt.Errorf("reading the stock: %w", redis.Nil))
	wantErr(t, <-failed, redis.Nil)
	proxy.Heal()
	eventually(t, time.Minute, "the key is free", func() bool { return !held(server, "key") })
}

func TestDoneContextLosesAgainstAGrant(t *testing.T) {
	server, proxy := lockProxy(t)
	l := testLocker(t, proxy.Addr(), Config{TTL: 5 * time.Minute})
	warm(t, l)
	proxy.Set(netproxy.ToClient, netproxy.Fault{Delay: 50 * time.Millisecond})
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		_, err := l.Lock(ctx, "key")
		wantErr(t, err, context.Canceled)
		eventually(t, time.Minute, "the key is free", func() bool { return !held(server, "key") })
	}
}

// The release that follows a cancelled acquire may overtake it.
func TestAcquireThatArrivesAfterItsReleaseTakesNothing(t *testing.T) {
	server, proxy := lockProxy(t)
	l := testLocker(t, proxy.Addr(), Config{TTL: 5 * time.Minute})
	warm(t, l)
	for i := range 20 {
		key := fmt.Sprint("key", i)
		proxy.Set(netproxy.ToServer, netproxy.Fault{Stall: true})
		before, came := calls(t, server), proxy.Came(netproxy.ToServer)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := l.Lock(ctx, key)
			failed <- err
		}()
		eventually(t, time.Minute, "the acquire is under way", func() bool { return proxy.Came(netproxy.ToServer) > came })
		cancel()
		wantErr(t, <-failed, context.Canceled)
		proxy.Heal()
		eventually(t, time.Minute, "both calls arrive", func() bool { return calls(t, server) >= before+2 })
		eventually(t, time.Minute, "the key is free", func() bool { return !held(server, key) })
	}
}

func TestHoldersContextEndsBeforeAnotherGetsTheLock(t *testing.T) {
	server, proxy := lockProxy(t)
	const keys = 10
	o := Config{TTL: time.Second}
	other := testLocker(t, server.Addr(), o)
	warm(t, other)
	renewals := make(chan struct{}, 100*keys)
	o.Logger = tells("lock renewed", renewals)
	holder := testLocker(t, proxy.Addr(), o)
	var locks []*Lock
	for i := range keys {
		locks = append(locks, mustLock(t, holder.Lock, fmt.Sprint(i)))
	}
	for range keys {
		<-renewals
	}
	proxy.Set(netproxy.ToClient, netproxy.Fault{Stall: true})
	proxy.Set(netproxy.ToServer, netproxy.Fault{Drop: true})
	var running sync.WaitGroup
	for i, k := range locks {
		running.Go(func() {
			next, err := other.Lock(t.Context(), fmt.Sprint(i))
			if k.Context().Err() == nil {
				t.Error("another has got the lock, and the context goes on")
			}
			if err != nil {
				t.Error(err)
				return
			}
			if next.Token() <= k.Token() {
				t.Errorf("token %d after %d", next.Token(), k.Token())
			}
		})
	}
	running.Wait()
	for _, k := range locks {
		<-k.Context().Done()
		wantErr(t, context.Cause(k.Context()), ErrExpired)
	}
	proxy.Heal()
	for _, k := range locks {
		wantErr(t, k.Unlock(t.Context()), locking.ErrNotOwner)
	}
}

func TestLateUnlockFreesNobodyElsesLock(t *testing.T) {
	server, proxy := lockProxy(t)
	a := testLocker(t, proxy.Addr(), Config{TTL: 500 * time.Millisecond})
	b := testLocker(t, server.Addr(), Config{TTL: time.Minute})
	warm(t, a)
	k := mustLock(t, a.Lock, "key")
	proxy.Set(netproxy.ToServer, netproxy.Fault{Stall: true})
	wantErr(t, k.Unlock(within(t, 50*time.Millisecond)), locking.ErrUnlockUnknown)
	next := mustLock(t, b.Lock, "key")
	before := calls(t, server)
	proxy.Heal()
	eventually(t, time.Minute, "the unlock arrives", func() bool { return calls(t, server) > before })
	if err := next.Extend(t.Context(), 0); err != nil {
		t.Fatalf("the second holder lost the lock: %v", err)
	}
	mustUnlock(t, next)
}

func TestUnlockTellsReleasedNotOwnerAndUnknownApart(t *testing.T) {
	server, proxy := lockProxy(t)
	l := testLocker(t, proxy.Addr(), Config{TTL: time.Second})

	t.Run("released", func(t *testing.T) { mustUnlock(t, mustLock(t, l.Lock, "a")) })
	t.Run("released though the first reply is lost", func(t *testing.T) {
		k := mustLock(t, l.Lock, "b")
		proxy.CutNext(netproxy.ToClient)
		mustUnlock(t, k)
	})
	t.Run("not owner", func(t *testing.T) {
		k := mustLock(t, l.Lock, "c")
		all, err := l.LockAll(t.Context(), []string{"c1", "c2"})
		if err != nil {
			t.Fatal(err)
		}
		server.CLI("mset", "keyway:lock:{c}", "wanother", "keyway:lock:{c2}", "wanother")
		wantErr(t, k.Unlock(t.Context()), locking.ErrNotOwner)
		wantErr(t, all.Unlock(t.Context()), locking.ErrNotOwner)
		if got := server.CLI("mget", "keyway:lock:{c}", "keyway:lock:{c1}", "keyway:lock:{c2}"); got != "wanother\n\nwanother" {
			t.Errorf("the locks are %q", got)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		k := mustLock(t, l.Lock, "d")
		proxy.Set(netproxy.ToClient, netproxy.Fault{Drop: true})
		defer proxy.Heal()
		began := time.Now()
		wantErr(t, k.Unlock(t.Context()), locking.ErrUnlockUnknown)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("unknown after %v with a TTL of 1s", took)
		}
	})
	t.Run("released in the background after the context ended", func(t *testing.T) {
		k := mustLock(t, testLocker(t, server.Addr(), Config{TTL: 5 * time.Minute}).Lock, "e")
		done, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, k.Unlock(done), locking.ErrUnlockUnknown)
		eventually(t, time.Minute, "it is released", func() bool { return !held(server, "e") })
	})
}
