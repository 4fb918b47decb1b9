package lock

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/test/lockingtest"
	"github.com/keyway-go/keyway/internal/test/netproxy"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// eachServer runs a test over a real Redis and over the embedded one.
func eachServer(t *testing.T, test func(t *testing.T, addr string)) {
	t.Run("redis", func(t *testing.T) { test(t, redistest.Start(t).Addr()) })
	t.Run("embedded", func(t *testing.T) {
		server, err := store.StartEmbedded("127.0.0.1:0", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
		test(t, strings.TrimPrefix(server.URL(), "redis://"))
	})
}

// patientLocker is a Locker whose calls are answered in time on a machine that is busy.
func patientLocker(t testing.TB, addr string, o Config) *Locker {
	t.Helper()
	o.Timeout = 20 * time.Second
	return testLocker(t, addr, o)
}

// insist repeats what may be, until it was answered, however slow the machine is.
func insist(t testing.TB, call func() error) error {
	t.Helper()
	var err error
	eventually(t, time.Minute, "an answer", func() bool {
		err = call()
		return err == nil || errors.Is(err, locking.ErrNotOwner)
	})
	return err
}

func renew(t testing.TB, k *Lock) error {
	t.Helper()
	return insist(t, func() error { return k.Extend(t.Context(), 0) })
}

func state(t testing.TB, l *Locker, key string) State {
	t.Helper()
	var s State
	if err := insist(t, func() (err error) {
		s, err = l.State(t.Context(), key)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTTLOfOneCall(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		l, other := patientLocker(t, addr, Config{NoRenewal: true}), patientLocker(t, addr, Config{})
		for ttl, took := range map[time.Duration]*Lock{
			10 * time.Second:       mustTake(t, l, "default"),
			time.Hour:              mustTake(t, l, "long", locking.TTL(time.Hour)),
			500 * time.Millisecond: mustTake(t, l, "short", locking.TTL(500*time.Millisecond)),
		} {
			if left := time.Until(took.Until()); left > ttl-ttl/20 {
				t.Errorf("a holder's TTL is %v, want %v less the margin", left, ttl)
			}
			if left := state(t, other, took.Keys()[0]).Left; left > ttl || ttl == time.Hour && left < 50*time.Minute {
				t.Errorf("%v are left in Redis, want about %v", left, ttl)
			}
			if ttl < time.Second {
				<-took.Context().Done()
				wantErr(t, context.Cause(took.Context()), ErrExpired)
				mustUnlock(t, mustTake(t, other, "short"))
			}
		}
	})
}

// The longest TTL that can be said is one, of a call and of an extension.
func TestLongestTTL(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		l := patientLocker(t, addr, Config{})
		for _, ttl := range []time.Duration{0, math.MaxInt64} {
			k := mustTake(t, l, "long", locking.TTL(ttl))
			if err := k.Extend(t.Context(), math.MaxInt64); err != nil || time.Until(k.Until()) < 24*365*time.Hour {
				t.Errorf("taken for %v: %v, and %v left", ttl, err, time.Until(k.Until()))
			}
			mustUnlock(t, k)
		}
	})
}

func mustTake(t testing.TB, l *Locker, key string, opts ...locking.Option) *Lock {
	t.Helper()
	k, err := l.Lock(within(t, time.Minute), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestRenewalsKeepTheTTLOfTheCall(t *testing.T) {
	server := redistest.Start(t)
	renewed := make(chan struct{}, 100)
	l := patientLocker(t, server.Addr(), Config{TTL: time.Hour, Logger: tells("lock renewed", renewed)})
	k := mustTake(t, l, "key", locking.TTL(4*time.Second))
	for range 2 { // after 1.3 s each
		<-renewed
	}
	if err := k.Context().Err(); err != nil {
		t.Fatal(err)
	}
	if left := state(t, l, "key").Left; left == 0 || left > 4*time.Second {
		t.Errorf("%v are left, want up to 4s", left)
	}
	mustUnlock(t, k)
}

func TestWaitOfOneCallBoundsTheWaitAlone(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		waits := make(chan struct{}, 1)
		a := patientLocker(t, addr, Config{})
		b := patientLocker(t, addr, Config{Logger: slog.New(onLog{"lock waited for": func(slog.Record) { wake.Up(waits) }})})
		k := mustTake(t, a, "key")
		for _, l := range []*Locker{a, b} {
			eventually(t, time.Minute, "the server answers within the wait", func() bool {
				_, err := l.Lock(t.Context(), "key", locking.Wait(30*time.Millisecond))
				return errors.Is(err, locking.ErrLocked)
			})
		}
		select {
		case <-waits:
		default: // its time was over before it waited
		}
		got := make(chan *Lock, 1)
		go func() {
			k, err := b.Lock(t.Context(), "key", locking.Wait(time.Minute))
			if err != nil {
				t.Error(err)
			}
			got <- k
		}()
		<-waits
		mustUnlock(t, k)
		k = <-got
		if _, bounded := k.Context().Deadline(); bounded {
			t.Error("the bound of the wait is one of the lock's context")
		}
		mustUnlock(t, k)
	})
}

// Without an answer nobody knows that the lock is locked.
func TestWaitWithoutAnAnswer(t *testing.T) {
	_, proxy := lockProxy(t)
	l := testLocker(t, proxy.Addr(), Config{Timeout: time.Minute})
	warm(t, l)
	for what, fail := range map[string]func(){
		"silence":       func() { proxy.Set(netproxy.ToServer, netproxy.Fault{Drop: true}) },
		"no connection": func() { proxy.Refuse(true); proxy.Cut() },
	} {
		fail()
		for mode, lock := range map[string]func(context.Context, string, ...locking.Option) (*Lock, error){"Lock": l.Lock, "RLock": l.RLock} {
			_, err := lock(t.Context(), "key", locking.Wait(50*time.Millisecond))
			if err == nil || errors.Is(err, locking.ErrLocked) || !strings.Contains(err.Error(), `locking ["key"]`) {
				t.Errorf("%s, %s: %v", what, mode, err)
			}
		}
		done, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := l.Lock(done, "key", locking.Wait(time.Minute))
		cancel()
		wantErr(t, err, context.DeadlineExceeded)
		proxy.Refuse(false)
		proxy.Heal()
		proxy.Cut()
	}
}

// A caller of this process who wants another TTL takes the lock anew.
func TestLocksAreHandedOverAmongAlikeCallersAlone(t *testing.T) {
	server := redistest.Start(t)
	l := patientLocker(t, server.Addr(), Config{HandOverFor: time.Hour})
	for name, c := range map[string]struct {
		opts  []locking.Option
		state State
	}{
		"TTL":   {[]locking.Option{locking.TTL(time.Hour)}, State{Held: true, Left: time.Hour}},
		"label": {[]locking.Option{locking.Label("second")}, State{Held: true, Left: 10 * time.Second, Label: "second"}},
	} {
		k := mustTake(t, l, name)
		got := make(chan *Lock)
		go func() {
			k, err := l.Lock(t.Context(), name, c.opts...)
			if err != nil {
				t.Error(err)
			}
			got <- k
		}()
		eventually(t, time.Minute, "it waits", func() bool { return l.turns.Queued(name) == 1 })
		mustUnlock(t, k)
		k = <-got
		if s := state(t, l, name); s.Label != c.state.Label || s.Left < c.state.Left/2 {
			t.Errorf("%s: %+v, want about %+v", name, s, c.state)
		}
		mustUnlock(t, k)
	}
}

// The options of LockAll are those of all its keys.
func TestOptionsOfSeveralKeys(t *testing.T) {
	server := redistest.Start(t)
	a, b := patientLocker(t, server.Addr(), Config{}), patientLocker(t, server.Addr(), Config{})
	all, err := a.LockAll(t.Context(), []string{"one", "two"}, locking.TTL(time.Hour), locking.Label("both"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range all.Keys() {
		if s := state(t, b, key); !s.Held || s.Label != "both" || s.Left < 50*time.Minute {
			t.Errorf("%s: %+v", key, s)
		}
	}
	_, err = b.LockAll(t.Context(), []string{"two", "three"}, locking.Wait(50*time.Millisecond))
	wantErr(t, err, locking.ErrLocked)
	_, err = b.TryLockAll(t.Context(), []string{"three"}, locking.TTL(-1))
	wantErr(t, err, locking.ErrOption)
	mustUnlock(t, all)
}

func TestExtend(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		l := patientLocker(t, addr, Config{})
		for name, take := range map[string]func() (*Lock, error){
			"exclusive": func() (*Lock, error) { return l.Lock(t.Context(), "exclusive") },
			"shared":    func() (*Lock, error) { return l.RLock(t.Context(), "shared") },
		} {
			k, err := take()
			if err != nil {
				t.Fatal(err)
			}
			for _, ttl := range []time.Duration{time.Hour, 0, time.Minute} { // none of which takes time away
				if err := insist(t, func() error { return k.Extend(t.Context(), ttl) }); err != nil {
					t.Fatal(err)
				}
				if left := time.Until(k.Until()); left < 50*time.Minute || left > time.Hour-time.Hour/20 {
					t.Errorf("%s: Until is in %v after Extend of %v", name, left, ttl)
				}
				if left := state(t, l, name).Left; left < 50*time.Minute || left > time.Hour {
					t.Errorf("%s: %v are left in Redis after Extend of %v", name, left, ttl)
				}
			}
			wantErr(t, k.Extend(t.Context(), time.Millisecond), locking.ErrOption)
			wantErr(t, k.Extend(t.Context(), -time.Hour), locking.ErrOption)
			mustUnlock(t, k)
			wantErr(t, k.Extend(t.Context(), time.Hour), locking.ErrNotOwner)
			if !k.Until().Before(time.Now()) {
				t.Error("Until is to come after Unlock")
			}
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	l := testLocker(t, "127.0.0.1:1", Config{})
	for _, c := range []struct {
		opt  locking.Option
		want string
	}{
		{locking.TTL(-1), "TTL is -1ns"},
		{locking.TTL(time.Millisecond), "TTL is 1ms"},
		{locking.Wait(-1), "TryLock does not wait"},
		{locking.Label("\xff"), "label"},
		{locking.Label(strings.Repeat("x", 129)), "label"},
	} {
		_, err := l.TryLock(t.Context(), "key", c.opt)
		if wantErr(t, err, locking.ErrOption); !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %v, want %s", err, c.want)
		}
	}
	_, err := New(lockClient(t, "127.0.0.1:1"), Config{Label: strings.Repeat("x", 129)})
	wantErr(t, err, errConfig)
}

func TestNoPrefix(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		client := lockClient(t, addr)
		for name, o := range map[string]Config{"plain": {NoPrefix: true}, "fifo": {NoPrefix: true, FIFO: true, Prefix: "f:"}} {
			t.Run(name, func(t *testing.T) {
				a, b := patientLocker(t, addr, o), patientLocker(t, addr, o)
				for _, key := range []string{"order", "order:{42}", "{}x", "a}b", "-", "\x00\xff"} {
					k := mustTake(t, a, key)
					if owner, err := client.Get(t.Context(), key).Result(); err != nil || owner == "" {
						t.Errorf("%q is not the Redis key: %v", key, err)
					}
					_, err := b.TryRLock(t.Context(), key)
					wantErr(t, err, locking.ErrLocked)
					if !state(t, b, key).Held {
						t.Errorf("%q is free", key)
					}
					if err := insist(t, func() error { return k.Downgrade(t.Context()) }); err != nil {
						t.Error(err)
					}
					mustUnlock(t, k)
					if n, err := client.Exists(t.Context(), key).Result(); n != 0 || err != nil {
						t.Errorf("%q is there: %v", key, err)
					}
				}
			})
		}
	})
}

// Names of any bytes share none of the keys beside the locks, and have them in one slot if they can.
func TestKeysBesideLocksWithoutPrefix(t *testing.T) {
	names := Config{Prefix: "keyway:lock:", NoPrefix: true}
	seen := map[string]string{}
	for _, name := range []string{"", "}", "}a", "{", "{a}", "a", "{a}a", "{a}{a}", "a}b", "{}", "{}a", "x{a}", "x{{a}}", "{-}", "-"} {
		for _, kind := range []string{"fence:", "waiting:", "queue:", "bell:", "gone:"} {
			key := names.key(kind, name)
			if of, dup := seen[key]; dup {
				t.Errorf("%q is of %q and of %q", key, of, name)
			}
			seen[key] = name
			if tag := hashTag(name); tag != "" && !strings.Contains(tag, "}") && hashTag(key) != tag {
				t.Errorf("%q is not in the slot of %q", key, name)
			}
		}
	}
}

// It is a locking.Locker as others are.
func TestLocker(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		lockingtest.Run(t, locking.Of(patientLocker(t, addr, Config{})), locking.Of(patientLocker(t, addr, Config{})))
	})
}
