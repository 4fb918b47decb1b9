// Package lockingtest holds whoever implements [locking.Locker] to what that says.
package lockingtest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// patience bounds what ends by itself.
const patience = 30 * time.Second

// Run tries two Lockers of the same locks, which may be one. Of their locks nobody else has any.
func Run(t *testing.T, a, b locking.Locker) {
	for name, test := range map[string]func(t *testing.T, a, b locking.Locker){
		"a lease":                     testLease,
		"options":                     testOptions,
		"one of many":                 testExclusion,
		"a wait":                      testWait,
		"a bounded wait":              testBoundedWait,
		"a context that is done":      testDone,
		"a wait that is given up":     testGivenUp,
		"a context that ends later":   testCallerGone,
		"a longer and a shorter TTL":  testExtend,
		"an unlock nobody waits for":  testUnlockGivenUp,
		"a lock does not need others": testKeys,
	} {
		t.Run(name, func(t *testing.T) { test(t, a, b) })
	}
}

// bounded is the test's context with an end before the test's own.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("the test's patience is over"))
	t.Cleanup(cancel)
	return ctx
}

func lock(t *testing.T, l locking.Locker, ctx context.Context, key string, opts ...locking.Option) locking.Lease {
	t.Helper()
	lease, err := l.Lock(ctx, key, opts...)
	if err != nil || lease == nil {
		t.Fatalf("Lock of %q: %v, %v", key, lease, err)
	}
	return lease
}

func unlock(t *testing.T, lease locking.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := lease.Unlock(ctx); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

// refused fails the test unless err is want, and there is no lease.
func refused(t *testing.T, what string, lease locking.Lease, err, want error) {
	t.Helper()
	if lease != nil || !errors.Is(err, want) {
		t.Errorf("%s: %v, %v; want %v", what, lease, err, want)
	}
}

// awaitFree waits until a lock that nobody has any more can be had.
func awaitFree(t *testing.T, l locking.Locker, key string) {
	t.Helper()
	var lease locking.Lease
	kit.Eventually(t, "the lock of "+key+" is free", func() (ok bool) {
		var err error
		lease, err = l.TryLock(t.Context(), key)
		return err == nil
	})
	unlock(t, lease)
}

type value struct{}

func testLease(t *testing.T, a, b locking.Locker) {
	ctx := context.WithValue(bounded(t), value{}, "of the caller")
	last := int64(0)
	for range 3 {
		lease := lock(t, a, ctx, "lease", locking.TTL(time.Minute), locking.Label("me"))
		if lease.Token() <= last || lease.Context().Err() != nil || lease.Context().Value(value{}) == nil || !lease.Until().After(time.Now()) {
			t.Fatalf("token %d after %d, until %v, context %v", lease.Token(), last, lease.Until(), lease.Context())
		}
		last = lease.Token()
		other, err := b.TryLock(ctx, "lease", locking.Wait(patience))
		refused(t, "a lock that is held", other, err, locking.ErrLocked)
		unlock(t, lease)
		if lease.Context().Err() == nil || lease.Until().After(time.Now()) {
			t.Errorf("unlocked, with context %v until %v", lease.Context().Err(), lease.Until())
		}
		if err := lease.Unlock(ctx); !errors.Is(err, locking.ErrNotOwner) {
			t.Errorf("a second Unlock: %v", err)
		}
		if err := lease.Extend(ctx, time.Minute); !errors.Is(err, locking.ErrNotOwner) {
			t.Errorf("Extend after Unlock: %v", err)
		}
		a, b = b, a
	}
}

func testOptions(t *testing.T, a, _ locking.Locker) {
	for what, opt := range map[string]locking.Option{
		"a negative TTL":   locking.TTL(-1),
		"a TTL of nothing": locking.TTL(1),
		"a negative wait":  locking.Wait(-1),
		"a wait of 0":      locking.Wait(0),
		"a long label":     locking.Label(strings.Repeat("x", 129)),
		"no text":          locking.Label("\xff"),
	} {
		lease, err := a.Lock(bounded(t), "options", opt)
		refused(t, what, lease, err, locking.ErrOption)
		lease, err = a.TryLock(bounded(t), "options", opt)
		refused(t, what, lease, err, locking.ErrOption)
	}
	lease := lock(t, a, bounded(t), "options")
	defer unlock(t, lease)
	if err := lease.Extend(bounded(t), -1); !errors.Is(err, locking.ErrOption) {
		t.Errorf("Extend by a negative TTL: %v", err)
	}
}

func testExclusion(t *testing.T, a, b locking.Locker) {
	const callers, rounds = 8, 10
	count, last := 0, int64(0) // guarded by the lock, or so it should be
	var all sync.WaitGroup
	for i := range callers {
		l := []locking.Locker{a, b}[i%2]
		all.Go(func() {
			for range rounds {
				lease, err := l.Lock(bounded(t), "exclusion")
				if err != nil {
					t.Error(err)
					return
				}
				if lease.Token() <= last {
					t.Errorf("token %d after %d", lease.Token(), last)
				}
				count, last = count+1, lease.Token()
				if err := lease.Unlock(bounded(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if count != callers*rounds {
		t.Errorf("%d of %d", count, callers*rounds)
	}
}

func testWait(t *testing.T, a, b locking.Locker) {
	first := lock(t, a, bounded(t), "wait")
	got := make(chan locking.Lease, 1)
	go func() {
		lease, err := b.Lock(bounded(t), "wait")
		if err != nil {
			t.Error(err)
		}
		got <- lease
	}()
	other, err := b.TryLock(bounded(t), "wait")
	refused(t, "a lock that is held", other, err, locking.ErrLocked)
	unlock(t, first)
	if second := <-got; second != nil {
		if second.Token() <= first.Token() {
			t.Errorf("token %d after %d", second.Token(), first.Token())
		}
		unlock(t, second)
	}
}

func testBoundedWait(t *testing.T, a, b locking.Locker) {
	const bound = 50 * time.Millisecond
	held := lock(t, a, bounded(t), "bounded", locking.Wait(patience))
	kit.Eventually(t, "the keeper answers within the wait", func() bool {
		began := time.Now()
		other, err := b.Lock(bounded(t), "bounded", locking.Wait(bound))
		if d := time.Since(began); other != nil || d < bound {
			t.Errorf("a wait of %v was over after %v: %v, %v", bound, d, other, err)
		}
		return errors.Is(err, locking.ErrLocked)
	})
	unlock(t, held)
	held = lock(t, b, t.Context(), "bounded", locking.Wait(patience))
	if end, has := held.Context().Deadline(); has && time.Until(end) <= patience {
		t.Errorf("the bound of the wait is one of the lease: %v", end)
	}
	unlock(t, held)
}

func testDone(t *testing.T, a, b locking.Locker) {
	reason := errors.New("reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	lease, err := a.Lock(ctx, "done")
	refused(t, "Lock", lease, err, reason)
	lease, err = a.TryLock(ctx, "done")
	refused(t, "TryLock", lease, err, reason)
	free := lock(t, b, bounded(t), "done")
	unlock(t, free)
}

func testGivenUp(t *testing.T, a, b locking.Locker) {
	reason := errors.New("reason")
	held := lock(t, a, bounded(t), "given up")
	ctx, cancel := context.WithCancelCause(bounded(t))
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		lease, err := b.Lock(ctx, "given up")
		refused(t, "a wait that is given up", lease, err, reason)
	}()
	cancel(reason)
	<-waited
	unlock(t, held)
	awaitFree(t, a, "given up")
}

func testCallerGone(t *testing.T, a, b locking.Locker) {
	reason := errors.New("reason")
	ctx, cancel := context.WithCancelCause(bounded(t))
	lease := lock(t, a, ctx, "gone")
	cancel(reason)
	if lease.Context().Err() == nil || context.Cause(lease.Context()) != reason {
		t.Errorf("the context of the lease: %v", context.Cause(lease.Context()))
	}
	other, err := b.TryLock(bounded(t), "gone")
	refused(t, "a lock whose caller has gone, and has not unlocked it", other, err, locking.ErrLocked)
	unlock(t, lease)
	awaitFree(t, b, "gone")
}

func testExtend(t *testing.T, a, _ locking.Locker) {
	const short, long = 50 * time.Second, 80 * time.Second
	lease := lock(t, a, bounded(t), "extend", locking.TTL(short))
	if err := lease.Extend(bounded(t), long); err != nil {
		t.Fatal(err)
	}
	before := lease.Until()
	if left := time.Until(before); left < short/2 {
		t.Errorf("%v left of %v", left, long)
	}
	if err := lease.Extend(bounded(t), time.Second); err != nil {
		t.Fatal(err)
	}
	if lost := before.Sub(lease.Until()); lost > short/2 {
		t.Errorf("a shorter TTL has taken %v from what was left", lost)
	}
	if err := lease.Extend(bounded(t), 0); err != nil || lease.Context().Err() != nil {
		t.Errorf("%v, context %v", err, lease.Context().Err())
	}
	unlock(t, lease)
}

func testUnlockGivenUp(t *testing.T, a, b locking.Locker) {
	lease := lock(t, a, bounded(t), "not waited for")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lease.Unlock(ctx); err != nil && !errors.Is(err, locking.ErrUnlockUnknown) {
		t.Error(err)
	}
	awaitFree(t, b, "not waited for")
}

func testKeys(t *testing.T, a, b locking.Locker) {
	one := lock(t, a, bounded(t), "one")
	another, err := b.TryLock(bounded(t), "another")
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, another)
	unlock(t, one)
}
