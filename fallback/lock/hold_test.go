package lock

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/test/netproxy"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/localmutex/locking"
)

func TestHeldLockRenewsItself(t *testing.T) {
	server := redistest.Start(t)
	renewed := make(chan struct{}, 10)
	l := testLocker(t, server.Addr(), Config{TTL: time.Minute, RenewEvery: 20 * time.Millisecond, Logger: tells("lock renewed", renewed)})
	k := mustLock(t, l.Lock, "key")
	before := k.Until()
	for range 5 {
		<-renewed
	}
	if !k.Until().After(before) {
		t.Errorf("five renewals extended it from %v to %v", before, k.Until())
	}
	if err := k.Context().Err(); err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, k)
}

func TestWithoutRenewalTheLockEndsAndRenewExtendsIt(t *testing.T) {
	server := redistest.Start(t)
	l := testLocker(t, server.Addr(), Config{TTL: time.Minute, NoRenewal: true})
	k := mustLock(t, l.Lock, "key")
	before := k.Until()
	if err := k.Extend(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if !k.Until().After(before) {
		t.Errorf("it ends at %v after %v", k.Until(), before)
	}
	mustUnlock(t, k)
	k = mustLock(t, testLocker(t, server.Addr(), Config{TTL: 200 * time.Millisecond, NoRenewal: true}).Lock, "key")
	<-k.Context().Done()
	wantErr(t, context.Cause(k.Context()), ErrExpired)
	if left := time.Until(k.Until()); left > 0 {
		t.Errorf("%v are left", left)
	}
	wantErr(t, k.Extend(t.Context(), 0), locking.ErrNotOwner)
}

// A process that was stopped finds out from the context of its innermost lock that another one has expired.
func TestContextComparesTheClocksOfTheLocksAroundIt(t *testing.T) {
	server := redistest.Start(t)
	for _, tc := range []struct {
		name         string
		outer, inner time.Duration // TTLs
		again        bool          // the outer key is locked once more, within the lock of the inner one
	}{
		{"the outer lock expires", time.Minute, time.Hour, false},
		{"the lock in between expires", time.Hour, time.Minute, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var ahead atomic.Int64
			l := testLocker(t, server.Addr(), Config{NoRenewal: true, Clock: func() time.Time {
				return time.Now().Add(time.Duration(ahead.Load()))
			}})
			lock := func(ctx context.Context, key string, ttl time.Duration) context.Context {
				k, err := l.Lock(ctx, key, locking.TTL(ttl))
				if err != nil {
					t.Fatal(err)
				}
				return k.Context()
			}
			ctx := lock(t.Context(), t.Name()+"outer", tc.outer)
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			if ctx = lock(derived, t.Name()+"inner", tc.inner); tc.again {
				ctx = lock(ctx, t.Name()+"outer", 0)
			}
			if ctx.Err() != nil {
				t.Fatal(ctx.Err())
			}
			if ahead.Store(int64(2 * time.Minute)); ctx.Err() == nil {
				t.Error("the context outlasts a lock that it descends from")
			}
			wantErr(t, context.Cause(ctx), ErrExpired)
		})
	}
}

// An outer lock that has expired is found out while the inner one's context is made, which must not be under the mutex of
// both.
func TestContextIsMadeWithoutTheMutexOfItsLock(t *testing.T) {
	server := redistest.Start(t)
	var ahead atomic.Int64
	l := testLocker(t, server.Addr(), Config{NoRenewal: true, Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	ctx, cancel := context.WithCancel(t.Context())
	outer, err := l.Lock(ctx, "outer", locking.TTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	k, err := l.Lock(outer.Context(), "inner", locking.TTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	ahead.Store(int64(2 * time.Minute))
	if k.Context().Err() == nil {
		t.Error("the context outlasts the one that it descends from")
	}
}

func TestWallClockThatRanOnEndsTheLock(t *testing.T) {
	server := redistest.Start(t)
	var mu sync.Mutex
	ahead := time.Duration(0)
	l := testLocker(t, server.Addr(), Config{Clock: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Add(ahead)
	}})
	k := mustLock(t, l.Lock, "key")
	ctx := k.Context()
	if ctx.Err() != nil {
		t.Fatal(ctx.Err())
	}
	mu.Lock()
	ahead = time.Minute // the machine was suspended: only this clock knows
	mu.Unlock()
	if ctx.Err() == nil {
		t.Fatal("the context lasts beyond the TTL of the wall clock")
	}
	wantErr(t, context.Cause(ctx), ErrExpired)
}

func TestLostLockEndsTheContextAtTheNextRenewal(t *testing.T) {
	server := redistest.Start(t)
	for _, how := range []string{"gone", "another's"} {
		l := testLocker(t, server.Addr(), Config{TTL: 5 * time.Minute, RenewEvery: 50 * time.Millisecond})
		k := mustLock(t, l.Lock, how)
		if how == "gone" {
			server.CLI("del", "keyway:lock:{gone}")
		} else {
			server.CLI("set", "keyway:lock:{another's}", "wx")
		}
		select {
		case <-k.Context().Done():
		case <-time.After(time.Minute):
			t.Fatal("not noticed")
		}
		wantErr(t, context.Cause(k.Context()), ErrLost)
		wantErr(t, k.Unlock(t.Context()), locking.ErrNotOwner)
	}
}

// An extension or downgrade whose answer comes when the lock's time is over has failed.
func TestAnswerAfterTheEndOfTheLock(t *testing.T) {
	_, proxy := lockProxy(t)
	l := testLocker(t, proxy.Addr(), Config{TTL: 300 * time.Millisecond, Timeout: time.Minute, NoRenewal: true})
	warmDowngrade(t, l)
	for what, call := range map[string]func(*Lock) error{
		"Extend":    func(k *Lock) error { return k.Extend(t.Context(), 0) },
		"Downgrade": func(k *Lock) error { return k.Downgrade(t.Context()) },
	} {
		k := mustLock(t, l.Lock, what)
		proxy.Set(netproxy.ToClient, netproxy.Fault{Delay: 600 * time.Millisecond})
		err := call(k)
		proxy.Heal()
		if !errors.Is(err, locking.ErrNotOwner) || !errors.Is(err, ErrExpired) {
			t.Errorf("%s of what has expired meanwhile: %v", what, err)
		}
		if cause := context.Cause(k.Context()); !errors.Is(cause, ErrExpired) {
			t.Errorf("the context of %s ends with %v", what, cause)
		}
		_ = k.Unlock(t.Context()) // it may be free already
	}
}

func TestContinueOnFailure(t *testing.T) {
	server, proxy := lockProxy(t)
	failed := make(chan struct{}, 1000)
	renewed := make(chan struct{}, 1000)
	l := testLocker(t, proxy.Addr(), Config{
		TTL: 300 * time.Millisecond, ContinueOnFailure: true, Timeout: 50 * time.Millisecond,
		Logger: slog.New(onLog{
			"lock not renewed": func(slog.Record) { failed <- struct{}{} },
			"lock renewed":     func(slog.Record) { renewed <- struct{}{} },
		}),
	})
	k := mustLock(t, l.Lock, "key")
	proxy.Set(netproxy.ToServer, netproxy.Fault{Drop: true})
	eventually(t, time.Minute, "the lock has expired", func() bool { return !held(server, "key") })
	<-failed
	if err := k.Context().Err(); err != nil {
		t.Fatalf("the context ended: %v", context.Cause(k.Context()))
	}
	proxy.Heal()
	for len(renewed) > 0 {
		<-renewed
	}
	<-renewed
	if !held(server, "key") {
		t.Fatal("not taken again")
	}
	server.CLI("set", "keyway:lock:{key}", "wanother")
	<-k.Context().Done()
	wantErr(t, context.Cause(k.Context()), ErrLost)
}

// before has call called before each run of a script.
type before struct {
	script *lockScript
	call   func()
}

func (before) DialHook(next redis.DialHook) redis.DialHook { return next }

func (before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Args()[1] == b.script.sha {
			b.call()
		}
		return next(ctx, cmd)
	}
}

// A reentrant call that comes while a lock is on its way to another process, or to another mode, has the lock as its
// holder will have it.
func TestTrapReentrantCallMeetsADowngradeOrDetach(t *testing.T) {
	client := lockClient(t, redistest.Start(t).Addr())
	l, err := New(client, Config{NoRenewal: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	k := mustLock(t, l.Lock, "down")
	client.AddHook(before{&scripts.downgrade, func() {
		_, writing := l.Lock(k.Context(), "down")
		reader, reading := l.RLock(k.Context(), "down")
		if !errors.Is(writing, ErrNested) || reading != nil || reader.Unlock(t.Context()) != nil {
			t.Errorf("locked while it is downgraded: %v, and for reading: %v", writing, reading)
		}
	}})
	if err := k.Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, k)
	k = mustLock(t, l.Lock, "away")
	var inner *Lock
	client.AddHook(before{&scripts.renew, func() { inner, _ = l.Lock(k.Context(), "away") }})
	_, err = k.Detach(t.Context())
	wantErr(t, err, ErrNested)
	mustUnlock(t, k)
	if inner.Context().Err() != nil {
		t.Error("the inner lock has ended")
	}
	mustUnlock(t, inner)
}

// A lock that is gone, and that another client takes before it can be taken again, is lost.
func TestContinueMeetsAnotherClient(t *testing.T) {
	server := redistest.Start(t)
	client := lockClient(t, server.Addr())
	l, err := New(client, Config{NoRenewal: true, ContinueOnFailure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	k := mustLock(t, l.Lock, "key")
	server.CLI("del", "keyway:lock:{key}")
	client.AddHook(before{&scripts.take, func() { server.CLI("set", "keyway:lock:{key}", "wanother") }})
	wantErr(t, k.Extend(t.Context(), 0), locking.ErrNotOwner)
	wantErr(t, context.Cause(k.Context()), ErrLost)
}

// A grant whose answer comes when the lock has expired is not believed: it is asked for again.
func TestGrantThatComesTooLate(t *testing.T) {
	client := lockClient(t, redistest.Start(t).Addr())
	var ahead atomic.Int64
	client.AddHook(before{&scripts.take, func() { ahead.Add(int64(time.Minute)) }})
	l, err := New(client, Config{TTL: time.Minute, Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	k := mustLock(t, l.Lock, "key")
	if err := k.Context().Err(); err != nil {
		t.Errorf("it has ended: %v", context.Cause(k.Context()))
	}
	mustUnlock(t, k)
}

func TestTokensRiseWhenRedisLosesItsData(t *testing.T) {
	server := redistest.Start(t)
	l := testLocker(t, server.Addr(), Config{})
	last := int64(0)
	take := func() {
		t.Helper()
		k := mustLock(t, l.Lock, "key")
		if k.Token() <= last {
			t.Errorf("token %d after %d", k.Token(), last)
		}
		last = k.Token()
		mustUnlock(t, k)
	}
	for range 200 {
		take()
	}
	server.CLI("flushall")
	take()
	server.RestartEmpty()
	take()
	server.CLI("set", "keyway:lock:fence:{key}", "8000000000000000") // as after the clock was set back
	last = 8000000000000000
	take()
	take()
}

func TestTokensRiseFromCallerToCaller(t *testing.T) {
	server := redistest.Start(t)
	a, b := testLocker(t, server.Addr(), Config{}), testLocker(t, server.Addr(), Config{})
	var mu sync.Mutex
	last := int64(0)
	var running sync.WaitGroup
	for i := range 16 {
		l := []*Locker{a, b}[i%2]
		running.Go(func() {
			for range 50 {
				k := mustLock(t, l.Lock, "key")
				mu.Lock()
				if k.Token() <= last {
					t.Errorf("token %d after %d", k.Token(), last)
				}
				last = k.Token()
				mu.Unlock()
				mustUnlock(t, k)
			}
		})
	}
	running.Wait()
}

func TestCloseEndsWaitsAndContexts(t *testing.T) {
	server := redistest.Start(t)
	for name, o := range map[string]Config{"plain": {}, "fifo": {FIFO: true, Prefix: "f:"}} {
		l := testLocker(t, server.Addr(), o)
		k := mustLock(t, l.Lock, "key")
		r := mustLock(t, l.RLock, "read")
		errs := make(chan error)
		go func() {
			_, err := l.Lock(t.Context(), "key")
			errs <- err
		}()
		if name == "plain" {
			eventually(t, time.Minute, "it waits", func() bool { return waiting(l, server, o) == 1 })
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, <-errs, ErrClosed)
		wantErr(t, context.Cause(k.Context()), ErrClosed)
		wantErr(t, context.Cause(r.Context()), ErrClosed)
		_, err := l.TryLock(t.Context(), "other")
		wantErr(t, err, ErrClosed)
		mustUnlock(t, k)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Close does not wait for the end of a lock that cannot be released.
func TestTrapCloseWithoutAnswers(t *testing.T) {
	_, proxy := lockProxy(t)
	l := testLocker(t, proxy.Addr(), Config{})
	k := mustTake(t, l, "key", locking.TTL(time.Hour))
	proxy.Set(netproxy.ToServer, netproxy.Fault{Drop: true})
	defer proxy.Heal()
	wantErr(t, k.Unlock(within(t, 100*time.Millisecond)), locking.ErrUnlockUnknown)
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Close waits for the end of a lock")
	}
}

func TestMaxWaitBoundsTheWaitAlone(t *testing.T) {
	server := redistest.Start(t)
	for name, o := range map[string]Config{"plain": {}, "fifo": {FIFO: true, Prefix: "f:"}} {
		t.Run(name, func(t *testing.T) {
			o.MaxWait = 30 * time.Millisecond
			a, b := testLocker(t, server.Addr(), o), testLocker(t, server.Addr(), o)
			var k *Lock
			eventually(t, time.Minute, "the key is locked within MaxWait", func() bool {
				var err error
				k, err = a.Lock(t.Context(), "key")
				return err == nil
			})
			for _, l := range []*Locker{a, b} {
				eventually(t, time.Minute, "Redis answers within MaxWait", func() bool {
					_, err := l.Lock(t.Context(), "key")
					return errors.Is(err, locking.ErrLocked)
				})
			}
			if k.Context().Err() != nil {
				t.Error("the bound ended the lock")
			}
			mustUnlock(t, k)
		})
	}
}

func TestClientThatIgnoresContextsIsBoundedAllTheSame(t *testing.T) {
	server, proxy := lockProxy(t)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 5 * time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	l, err := New(client, Config{TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	k := mustLock(t, l.Lock, "key")
	server.Pause()
	defer server.Resume()
	began := time.Now()
	_, err = l.TryLock(within(t, 50*time.Millisecond), "other")
	wantErr(t, err, context.DeadlineExceeded)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("TryLock returned after %v", took)
	}
	<-k.Context().Done()
	wantErr(t, context.Cause(k.Context()), ErrExpired)
	if took := time.Since(began); took > 2*time.Minute {
		t.Errorf("the context ended after %v", took)
	}
}

func TestEventsAreCountedAndLogged(t *testing.T) {
	server := redistest.Start(t)
	var mu sync.Mutex
	var happened []string
	longest := map[string]time.Duration{}
	var log bytes.Buffer
	text := slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})
	other := testLocker(t, server.Addr(), Config{})
	others := mustLock(t, other.Lock, "key")
	const wait = 50 * time.Millisecond
	renewed := make(chan struct{}, 1000)
	on := onLog{}
	for _, what := range []string{"waited for", "acquired", "refused", "renewed", "not renewed", "expired", "lost", "released"} {
		on["lock "+what] = func(r slog.Record) {
			mu.Lock()
			defer mu.Unlock()
			happened = append(happened, what)
			r.Attrs(func(a slog.Attr) bool {
				if a.Value.Kind() == slog.KindDuration {
					longest[a.Key] = max(longest[a.Key], a.Value.Duration())
				}
				return true
			})
			_ = text.Handle(t.Context(), r)
			switch what {
			case "waited for":
				time.AfterFunc(wait, func() { mustUnlock(t, others) })
			case "renewed":
				renewed <- struct{}{}
			}
		}
	}
	l := testLocker(t, server.Addr(), Config{TTL: 2 * time.Second, RenewEvery: 50 * time.Millisecond, Logger: slog.New(on)})
	k := mustLock(t, l.Lock, "key")
	began := time.Now()
	_, err := l.TryLock(t.Context(), "key")
	wantErr(t, err, locking.ErrLocked)
	<-renewed
	has := time.Since(began)
	mustUnlock(t, k)
	k = mustLock(t, l.Lock, "lost")
	server.CLI("del", "keyway:lock:{lost}")
	<-k.Context().Done()
	k = mustLock(t, l.Lock, "expired")
	server.Pause()
	<-k.Context().Done()
	server.Resume()
	_ = l.Close()

	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(happened, " ")
	for _, what := range []string{"waited for acquired refused renewed released", "lost", "not renewed", "expired"} {
		if !strings.Contains(all, what) {
			t.Errorf("%q did not happen: %s", what, all)
		}
	}
	if longest["wait"] < wait || longest["held"] < has {
		t.Errorf("waited %v, held %v", longest["wait"], longest["held"])
	}
	for _, line := range []string{`level=DEBUG msg="lock acquired" keys=key read=false token=`, `level=WARN msg="lock lost" keys=lost`, `level=WARN msg="lock expired" keys=expired`} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("not logged: %s\n%s", line, log.String())
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	client := lockClient(t, "127.0.0.1:1")
	for want, o := range map[string]Config{
		"TTL is -1ns": {TTL: -1}, "TTL is 1ms": {TTL: time.Millisecond}, "Margin is 1s": {TTL: time.Second, Margin: time.Second},
		"Margin is -1ns": {Margin: -1}, "RenewEvery is -1ns": {RenewEvery: -1}, "RenewEvery is 950ms": {TTL: time.Second, RenewEvery: 950 * time.Millisecond}, "Timeout is -1ns": {Timeout: -1},
		"PollEvery is -1ns": {PollEvery: -1}, "MaxWait is -1ns": {MaxWait: -1}, "HandOverFor is -1ns": {HandOverFor: -1},
	} {
		_, err := New(client, o)
		if wantErr(t, err, errConfig); !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	_, err := NewQuorum(nil, Config{})
	wantErr(t, err, errConfig)
	_, err = NewQuorum([]redis.UniversalClient{client}, Config{FIFO: true})
	wantErr(t, err, errConfig)
	ring := redis.NewRing(&redis.RingOptions{HeartbeatFrequency: time.Hour})
	t.Cleanup(func() { _ = ring.Close() })
	_, err = New(ring, Config{})
	wantErr(t, err, errConfig)
	_, err = NewQuorum([]redis.UniversalClient{client, ring}, Config{})
	wantErr(t, err, errConfig)
	l := testLocker(t, "127.0.0.1:1", Config{TTL: 100 * time.Millisecond})
	_, err = l.LockAll(t.Context(), nil)
	wantErr(t, err, errConfig)
	if _, err = l.Lock(t.Context(), "key"); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("error is %v", err)
	}
}
