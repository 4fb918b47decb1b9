package lock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/internal/test/netproxy"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/localmutex/locking"
)

func TestReadersShareAndWritersExclude(t *testing.T) {
	server := redistest.Start(t)
	for name, o := range map[string]Config{"plain": {}, "fifo": {FIFO: true, Prefix: "f:"}} {
		t.Run(name, func(t *testing.T) {
			a, b := testLocker(t, server.Addr(), o), testLocker(t, server.Addr(), o)
			r1, r2 := mustLock(t, a.RLock, "key"), mustLock(t, b.TryRLock, "key")
			_, err := a.TryLock(t.Context(), "key")
			wantErr(t, err, locking.ErrLocked)
			_, err = a.TryLockAll(t.Context(), []string{"other", "key"})
			wantErr(t, err, locking.ErrLocked)
			mustUnlock(t, r1)
			_, err = a.TryLock(t.Context(), "key")
			wantErr(t, err, locking.ErrLocked)
			if err := r2.Extend(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, r2)
			w := mustLock(t, a.TryLock, "key")
			_, err = b.TryRLock(t.Context(), "key")
			wantErr(t, err, locking.ErrLocked)
			if w.Token() <= r2.Token() {
				t.Errorf("token %d after %d", w.Token(), r2.Token())
			}
			mustUnlock(t, w)
			mustUnlock(t, mustLock(t, b.TryRLock, "key"))
		})
	}
}

func TestWriterThatGivesUpLetsReadersIn(t *testing.T) {
	server := redistest.Start(t)
	l := testLocker(t, server.Addr(), Config{})
	r := mustLock(t, l.RLock, "key")
	quickly(t, lockLongestWait/2, func() time.Duration {
		_, err := l.Lock(within(t, 50*time.Millisecond), "key")
		wantErr(t, err, context.DeadlineExceeded)
		began := time.Now()
		mustUnlock(t, mustLock(t, l.RLock, "key"))
		return time.Since(began)
	})
	mustUnlock(t, r)
}

func TestReaderThatDiesBlocksNoLongerThanItsTTL(t *testing.T) {
	server, proxy := lockProxy(t)
	o := Config{TTL: 500 * time.Millisecond}
	dying, l := testLocker(t, proxy.Addr(), o), testLocker(t, server.Addr(), o)
	mustLock(t, dying.RLock, "key")
	mustLock(t, l.RLock, "key") // renews and keeps the key alive
	proxy.Refuse(true)
	proxy.Cut()
	eventually(t, time.Minute, "the dead reader is gone", func() bool {
		mustUnlock(t, mustLock(t, l.RLock, "key")) // readers sweep
		return server.CLI("zcard", "keyway:lock:{key}") == "1"
	})
}

func TestDowngrade(t *testing.T) {
	server := redistest.Start(t)
	for name, o := range map[string]Config{"plain": {}, "fifo": {FIFO: true, Prefix: "f:"}} {
		t.Run(name, func(t *testing.T) {
			a, b := testLocker(t, server.Addr(), o), testLocker(t, server.Addr(), o)
			w := mustLock(t, a.Lock, "key")
			got := make(chan *Lock, 1)
			go func() { got <- mustLock(t, b.RLock, "key") }()
			if err := w.Downgrade(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := w.Downgrade(t.Context()); err != nil {
				t.Fatal("again:", err)
			}
			r := <-got
			_, err := b.TryLock(t.Context(), "key")
			wantErr(t, err, locking.ErrLocked)
			if err := w.Extend(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, w)
			mustUnlock(t, r)
			w = mustLock(t, a.TryLock, "key")
			mustUnlock(t, w)
			wantErr(t, w.Downgrade(t.Context()), locking.ErrNotOwner)
		})
	}
}

func TestDowngradeWhoseReplyIsLostIsRepeated(t *testing.T) {
	_, proxy := lockProxy(t)
	l := testLocker(t, proxy.Addr(), Config{})
	w := mustLock(t, l.Lock, "key")
	warmDowngrade(t, l)
	proxy.CutNext(netproxy.ToClient)
	if err := w.Downgrade(t.Context()); err == nil || errors.Is(err, locking.ErrNotOwner) {
		t.Fatalf("error is %v", err)
	}
	if err := w.Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, mustLock(t, l.TryRLock, "key"))
	mustUnlock(t, w)
}

// warmDowngrade makes the server know the script.
func warmDowngrade(t *testing.T, l *Locker) {
	t.Helper()
	warm := mustLock(t, l.Lock, "warm")
	if err := warm.Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, warm)
}

// A downgrade whose answer is lost leaves the lock held, renewed and unlocked, in either mode.
func TestUnlockAfterADowngradeOfUnknownOutcomeFreesTheLock(t *testing.T) {
	server, proxy := lockProxy(t)
	l := testLocker(t, proxy.Addr(), Config{})
	warmDowngrade(t, l)
	for _, lose := range []netproxy.Direction{netproxy.ToServer, netproxy.ToClient} {
		w := mustLock(t, l.Lock, "key")
		proxy.CutNext(lose)
		if err := w.Downgrade(t.Context()); err == nil {
			t.Fatal("no error")
		}
		if err := renew(t, w); err != nil {
			t.Errorf("the lock is not renewed: %v", err)
		}
		mustUnlock(t, w)
		if held(server, "key") {
			t.Fatal("still held")
		}
	}
}

// A lock that may be a reader's by now is not passed on to a writer of this process.
func TestTrapLockOfUnknownModeIsNotPassedOn(t *testing.T) {
	server, proxy := lockProxy(t)
	l := testLocker(t, proxy.Addr(), Config{TTL: 5 * time.Minute, HandOverFor: 5 * time.Minute, Timeout: time.Second})
	warmDowngrade(t, l)
	first := mustLock(t, l.Lock, "key")
	got := make(chan *Lock, 1)
	go func() { got <- mustLock(t, l.Lock, "key") }()
	eventually(t, time.Minute, "a caller waits", func() bool { return l.turns.Queued("key") == 1 })
	proxy.Set(netproxy.ToClient, netproxy.Fault{Drop: true})
	if err := first.Downgrade(t.Context()); err == nil || errors.Is(err, locking.ErrNotOwner) {
		t.Fatalf("error is %v", err)
	}
	proxy.Heal()
	proxy.Cut()
	mustUnlock(t, first)
	next := <-got
	_, err := testLocker(t, server.Addr(), Config{}).TryRLock(t.Context(), "key")
	wantErr(t, err, locking.ErrLocked)
	mustUnlock(t, next)
}

func TestSeveralKeysAllOrNothing(t *testing.T) {
	server := redistest.Start(t)
	for name, o := range map[string]Config{"plain": {}, "fifo": {FIFO: true, Prefix: "f:"}} {
		t.Run(name, func(t *testing.T) {
			a, b := testLocker(t, server.Addr(), o), testLocker(t, server.Addr(), o)
			all, err := a.LockAll(t.Context(), []string{"c", "a", "b", "a"})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(all.Keys(), []string{"a", "b", "c"}) {
				t.Errorf("keys are %q", all.Keys())
			}
			_, err = b.TryLock(t.Context(), "b")
			wantErr(t, err, locking.ErrLocked)
			_, err = b.TryLockAll(t.Context(), []string{"b", "d"})
			wantErr(t, err, locking.ErrLocked)
			mustUnlock(t, mustLock(t, b.TryLock, "d")) // nothing of the refused set stays
			mustUnlock(t, all)
			for _, key := range []string{"a", "b", "c"} {
				k := mustLock(t, b.TryLock, key)
				if k.Token() <= all.Token() {
					t.Errorf("token of %q is %d after %d", key, k.Token(), all.Token())
				}
				mustUnlock(t, k)
			}
		})
	}
}

func TestOverlappingSetsDoNotDeadlock(t *testing.T) {
	server := redistest.Start(t)
	for name, o := range map[string]Config{"plain": {}, "fifo": {FIFO: true, Prefix: "f:"}} {
		t.Run(name, func(t *testing.T) {
			sets := [][]string{{"a", "b"}, {"b", "c"}, {"c", "a"}, {"a"}}
			var running sync.WaitGroup
			var inside [3]atomic.Int64
			for _, set := range sets {
				l := testLocker(t, server.Addr(), o)
				running.Go(func() {
					for range 30 {
						k, err := l.LockAll(within(t, 20*time.Second), set)
						if err != nil {
							t.Error(err)
							return
						}
						for _, key := range set {
							if inside[key[0]-'a'].Add(1) != 1 {
								t.Error("two holders of", key)
							}
						}
						for _, key := range set {
							inside[key[0]-'a'].Add(-1)
						}
						mustUnlock(t, k)
					}
				})
			}
			running.Wait()
		})
	}
}

func TestReentrancyThroughTheContext(t *testing.T) {
	server := redistest.Start(t)
	l := testLocker(t, server.Addr(), Config{})
	outer := mustLock(t, l.Lock, "key")
	before := calls(t, server)
	inner, err := l.Lock(outer.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	deeper, err := l.TryRLock(inner.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	if inner.Token() != outer.Token() || calls(t, server) != before {
		t.Error("the inner lock is not the outer one")
	}
	_, err = l.LockAll(outer.Context(), []string{"key", "other"})
	wantErr(t, err, ErrNested)
	wantErr(t, outer.Downgrade(t.Context()), ErrNested)
	mustUnlock(t, outer)
	mustUnlock(t, deeper)
	if err := inner.Context().Err(); err != nil {
		t.Errorf("the inner context ended early: %v", err)
	}
	if !held(server, "key") {
		t.Fatal("given back too early")
	}
	mustUnlock(t, inner)
	if held(server, "key") {
		t.Fatal("not given back")
	}
	if _, err = l.Lock(outer.Context(), "key"); !errors.Is(err, ErrUnlocked) {
		t.Errorf("error is %v", err)
	}
	anew, err := l.LockAll(context.WithoutCancel(outer.Context()), []string{"key", "other"})
	if err != nil {
		t.Fatalf("in a context that outlives its lock: %v", err)
	}
	mustUnlock(t, anew)
	r := mustLock(t, l.RLock, "key")
	_, err = l.Lock(r.Context(), "key")
	wantErr(t, err, ErrNested)
	mustUnlock(t, r)
}

// A lock within a lock ends with that and with its own Unlock, though its caller's context ends with neither.
func TestTrapReentrantLockEndsWithTheOuter(t *testing.T) {
	server := redistest.Start(t)
	l := testLocker(t, server.Addr(), Config{})
	outer := mustLock(t, l.Lock, "key")
	again := func(_ context.Context, key string, _ ...locking.Option) (*Lock, error) {
		return l.Lock(context.WithoutCancel(outer.Context()), key)
	}
	first, second := mustLock(t, again, "key"), mustLock(t, again, "key")
	mustUnlock(t, first)
	if cause := context.Cause(first.Context()); !errors.Is(cause, ErrUnlocked) || second.Context().Err() != nil || outer.Context().Err() != nil {
		t.Errorf("after an inner Unlock: %v, %v, %v", cause, second.Context().Err(), outer.Context().Err())
	}
	server.CLI("del", "keyway:lock:{key}")
	wantErr(t, renew(t, outer), locking.ErrNotOwner)
	<-second.Context().Done()
	wantErr(t, context.Cause(second.Context()), ErrLost)
	wantErr(t, second.Unlock(t.Context()), locking.ErrNotOwner)
}

// A caller that unlocks within an outer lock is told, too, that the lock was lost meanwhile.
func TestUnlockOfAnInnerLockThatWasLost(t *testing.T) {
	server := redistest.Start(t)
	l := testLocker(t, server.Addr(), Config{})
	outer := mustLock(t, l.Lock, "key")
	inner := mustLock(t, func(_ context.Context, key string, _ ...locking.Option) (*Lock, error) {
		return l.Lock(outer.Context(), key)
	}, "key")
	server.CLI("del", "keyway:lock:{key}")
	wantErr(t, renew(t, outer), locking.ErrNotOwner)
	if err := inner.Unlock(t.Context()); !errors.Is(err, locking.ErrNotOwner) || !errors.Is(err, ErrLost) {
		t.Errorf("error is %v", err)
	}
	wantErr(t, outer.Unlock(t.Context()), locking.ErrNotOwner)
}

func TestKeysOfAnyBytes(t *testing.T) {
	server := redistest.Start(t)
	l := testLocker(t, server.Addr(), Config{})
	seen := map[string]bool{}
	for _, key := range []string{"", "}", "}a", "{", "{a}", "a}b", "-}}a", "\x00\xff", "a:b", "fence:{a}", strings.Repeat("k", 1000)} {
		k := mustLock(t, l.TryLock, key)
		for _, kind := range []string{"", "fence:", "waiting:", "queue:", "bell:", "gone:"} {
			if name := (&Config{Prefix: "keyway:lock:"}).key(kind, key); seen[name] {
				t.Errorf("%q is used twice", name)
			} else {
				seen[name] = true
			}
		}
		mustUnlock(t, k)
	}
}

func quorumOf(t *testing.T, o Config, addrs ...string) *Locker {
	t.Helper()
	var clients []redis.UniversalClient
	for _, addr := range addrs {
		clients = append(clients, lockClient(t, addr))
	}
	l, err := NewQuorum(clients, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func fiveServers(t *testing.T) (servers []*redistest.Server, proxies []*netproxy.Proxy, addrs []string) {
	t.Helper()
	for range 5 {
		s, p := lockProxy(t)
		servers, proxies, addrs = append(servers, s), append(proxies, p), append(addrs, p.Addr())
	}
	return servers, proxies, addrs
}

func TestQuorumWithTwoOfFiveDeadOrSlow(t *testing.T) {
	servers, proxies, addrs := fiveServers(t)
	o := Config{TTL: 5 * time.Minute, Timeout: time.Minute}
	a, b := quorumOf(t, o, addrs...), quorumOf(t, o, addrs...)
	var last int64
	check := func(t *testing.T) {
		t.Helper()
		began := time.Now()
		k := mustLock(t, a.Lock, "key")
		if took := time.Since(began); took > time.Minute/2 {
			t.Errorf("Lock took %v", took)
		}
		if k.Token() <= last {
			t.Errorf("token %d after %d", k.Token(), last)
		}
		last = k.Token()
		_, err := b.TryLock(t.Context(), "key")
		wantErr(t, err, locking.ErrLocked)
		if s := state(t, b, "key"); !s.Held {
			t.Errorf("%+v", s)
		}
		if err := k.Extend(t.Context(), 0); err != nil {
			t.Error(err)
		}
		mustUnlock(t, k)
		k = mustLock(t, b.Lock, "key")
		if k.Token() <= last {
			t.Errorf("token %d after %d", k.Token(), last)
		}
		last = k.Token()
		if err := k.Downgrade(t.Context()); err != nil {
			t.Error(err)
		}
		mustUnlock(t, mustLock(t, a.RLock, "key"))
		mustUnlock(t, k)
	}
	t.Run("all well", check)
	t.Run("two slow", func(t *testing.T) {
		for _, p := range proxies[:2] {
			p.Set(netproxy.ToClient, netproxy.Fault{Delay: 2 * time.Minute})
		}
		check(t)
		for i, p := range proxies[:2] {
			p.Heal()
			p.Cut() // what is under way would still come late
			eventually(t, time.Minute, "what came late is released", func() bool { return !held(servers[i], "key") })
		}
	})
	t.Run("two dead", func(t *testing.T) {
		servers[2].Kill()
		servers[3].Kill()
		check(t)
	})
	t.Run("the fence survives a change of majority", func(t *testing.T) {
		servers[2].Again()
		servers[3].Again()
		servers[0].Kill()
		servers[1].Kill()
		check(t)
	})
	t.Run("three dead", func(t *testing.T) {
		servers[4].Kill()
		_, err := a.TryLock(t.Context(), "key")
		wantErr(t, err, ErrNoQuorum)
		if held(servers[2], "key") || held(servers[3], "key") {
			eventually(t, time.Minute, "released everywhere", func() bool { return !held(servers[2], "key") && !held(servers[3], "key") })
		}
	})
}

// A token that one server alone had minted must be known to the next majority.
func TestQuorumTokensRiseFromMajorityToMajority(t *testing.T) {
	servers, proxies, addrs := fiveServers(t)
	servers[4].CLI("set", "keyway:lock:fence:{key}", "7000000000000000") // its clock was ahead
	l := quorumOf(t, Config{TTL: 2 * time.Second}, addrs...)
	majority := func(cut ...int) *Lock {
		t.Helper()
		for i, p := range proxies {
			p.Refuse(slices.Contains(cut, i))
			if slices.Contains(cut, i) {
				p.Cut()
			}
		}
		k := mustLock(t, l.Lock, "key")
		mustUnlock(t, k)
		return k
	}
	first := majority(0, 1)
	if first.Token() <= 7000000000000000 {
		t.Fatalf("token is %d", first.Token())
	}
	if second := majority(3, 4); second.Token() <= first.Token() {
		t.Errorf("token %d after %d", second.Token(), first.Token())
	}
}

func TestQuorumIsRefusedWhenItsValidityIsUsedUp(t *testing.T) {
	servers, proxies, addrs := fiveServers(t)
	l := quorumOf(t, Config{TTL: 500 * time.Millisecond, Timeout: 2 * time.Second, NoRenewal: true}, addrs...)
	warm(t, l)
	for _, p := range proxies {
		p.Set(netproxy.ToClient, netproxy.Fault{Delay: 300 * time.Millisecond}) // two rounds: 600ms
	}
	_, err := l.TryLock(t.Context(), "key")
	wantErr(t, err, ErrNoQuorum) // which on a slow machine already the first round is
	for i, s := range servers {
		eventually(t, time.Minute, "server "+strconv.Itoa(i)+" is released", func() bool { return !held(s, "key") })
	}
}

// Servers that say nothing are told of as such.
func TestQuorumOfSilentServers(t *testing.T) {
	_, proxies, addrs := fiveServers(t)
	l := quorumOf(t, Config{TTL: 300 * time.Millisecond, Timeout: time.Minute, NoRenewal: true}, addrs...)
	warm(t, l)
	for _, p := range proxies {
		p.Set(netproxy.ToClient, netproxy.Fault{Stall: true})
	}
	_, err := l.TryLock(t.Context(), "key")
	wantErr(t, err, ErrNoQuorum)
	if text := err.Error(); !strings.HasSuffix(text, "0 of 5 servers answered in time") {
		t.Errorf("error is %s", text)
	}
	for _, p := range proxies {
		p.Heal()
	}
}

func TestQuorumContenders(t *testing.T) {
	_, _, addrs := fiveServers(t)
	var running sync.WaitGroup
	var inside, granted atomic.Int64
	for range 4 {
		l := quorumOf(t, Config{PollEvery: 20 * time.Millisecond}, addrs...)
		for range 2 {
			running.Go(func() {
				for range 10 {
					k := mustLock(t, l.Lock, "key")
					if inside.Add(1) != 1 {
						t.Error("two holders")
					}
					granted.Add(1)
					inside.Add(-1)
					mustUnlock(t, k)
				}
			})
		}
	}
	running.Wait()
	if granted.Load() != 80 {
		t.Errorf("%d grants", granted.Load())
	}
}

func clusterLocker(t *testing.T, cluster *redistest.Cluster) *Locker {
	t.Helper()
	c, err := fallback.NewClient(cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	l, err := New(c, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// awaitSubscribed waits until one client listens to the lock of a key.
func awaitSubscribed(t *testing.T, cluster *redistest.Cluster, key string) {
	t.Helper()
	lock := (&Config{Prefix: "keyway:lock:"}).key("", key)
	eventually(t, time.Minute, "the waiter has subscribed", func() bool {
		return strings.HasSuffix(cluster.Master(lock).CLI("pubsub", "shardnumsub", lock), "1")
	})
}

// Five keys have at least two slots of one of three servers.
func TestClusterSubscribesAgain(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	a, b := clusterLocker(t, cluster), clusterLocker(t, cluster)
	keys := []string{"a", "b", "c", "d", "e"}
	var held []*Lock
	got := make(chan *Lock)
	for _, key := range keys {
		held = append(held, mustLock(t, a.Lock, key))
		go func() { got <- mustLock(t, b.Lock, key) }()
	}
	for _, key := range keys {
		awaitSubscribed(t, cluster, key)
	}
	for _, key := range keys {
		cluster.Master((&Config{Prefix: "keyway:lock:"}).key("", key)).CLI("client", "kill", "type", "pubsub")
	}
	for _, key := range keys {
		awaitSubscribed(t, cluster, key)
	}
	for _, k := range held {
		mustUnlock(t, k)
		mustUnlock(t, <-got)
	}
}

func TestClusterWithShardedNotification(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	a, b := clusterLocker(t, cluster), clusterLocker(t, cluster)
	fastest := time.Hour
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		k := mustLock(t, a.Lock, key)
		got := make(chan *Lock, 1)
		go func() { got <- mustLock(t, b.Lock, key) }()
		awaitSubscribed(t, cluster, key)
		mustUnlock(t, k)
		freed := time.Now()
		mustUnlock(t, <-got)
		fastest = min(fastest, time.Since(freed))
	}
	if fastest > lockLongestWait/2 {
		t.Errorf("all were woken after %v or more", fastest)
	}
	all, err := a.LockAll(t.Context(), []string{"{x", "y"})
	if err == nil {
		t.Error("keys of two slots were locked in one step", all.Keys())
	}
}
