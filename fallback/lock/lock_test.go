package lock

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// lockClient is a client of its own, as another process would have.
func lockClient(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	c, err := fallback.NewClient("redis://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// testLocker is a Locker with a client of its own: to Redis it is another
// process.
func testLocker(t testing.TB, addr string, o Config) *Locker {
	t.Helper()
	l, err := New(lockClient(t, addr), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// onLog is a Logger that calls a function by the message of each record.
type onLog map[string]func(slog.Record)

func (on onLog) Enabled(context.Context, slog.Level) bool { return true }
func (on onLog) WithAttrs([]slog.Attr) slog.Handler       { return on }
func (on onLog) WithGroup(string) slog.Handler            { return on }

func (on onLog) Handle(_ context.Context, r slog.Record) error {
	if f := on[r.Message]; f != nil {
		f(r)
	}
	return nil
}

// tells is a Logger that sends to a channel at each message.
func tells(message string, ch chan<- struct{}) *slog.Logger {
	return slog.New(onLog{message: func(slog.Record) { ch <- struct{}{} }})
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// quickly tries ten times to see try take less than limit: a busy machine makes some
// tries slow, but not all of them.
func quickly(t testing.TB, limit time.Duration, try func() time.Duration) {
	t.Helper()
	var took time.Duration
	for range 10 {
		if took = try(); took < limit {
			return
		}
	}
	t.Errorf("each of ten tries took %v or more, the last one %v", limit, took)
}

func mustLock(t testing.TB, take func(context.Context, string, ...locking.Option) (*Lock, error), key string) *Lock {
	t.Helper()
	k, err := take(within(t, time.Minute), key)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func mustUnlock(t testing.TB, k *Lock) {
	t.Helper()
	if err := k.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

func TestLockExcludesAndIsGivenBack(t *testing.T) {
	server := redistest.Start(t)
	a, b := testLocker(t, server.Addr(), Config{}), testLocker(t, server.Addr(), Config{})

	k := mustLock(t, a.Lock, "order:1")
	_, err := b.TryLock(t.Context(), "order:1")
	wantErr(t, err, locking.ErrLocked)
	_, err = a.TryLock(t.Context(), "order:1")
	wantErr(t, err, locking.ErrLocked)
	if s := state(t, b, "order:1"); !s.Held || s.Left < 9*time.Second || s.Left > 10*time.Second {
		t.Fatalf("%+v", s)
	}
	if left := time.Until(k.Until()); left < 9*time.Second || left > 9500*time.Millisecond {
		t.Fatalf("the holder's TTL is %v, want 10s less the margin", left)
	}
	mustUnlock(t, k)
	wantErr(t, k.Unlock(t.Context()), locking.ErrNotOwner)
	wantErr(t, context.Cause(k.Context()), ErrUnlocked)
	if s := state(t, b, "order:1"); s.Held || s.Left != 0 {
		t.Fatalf("%+v", s)
	}
	later := mustLock(t, b.TryLock, "order:1")
	if later.Token() <= k.Token() {
		t.Fatalf("token %d after %d", later.Token(), k.Token())
	}
	mustUnlock(t, later)
}

func TestLockWaitsForARelease(t *testing.T) {
	server := redistest.Start(t)
	for name, o := range map[string]Config{
		"notified": {}, "polling": {Poll: true}, "fifo": {FIFO: true}, "fifo polling": {FIFO: true, Poll: true},
	} {
		t.Run(name, func(t *testing.T) {
			o.Prefix = name
			waits := make(chan struct{}, 1)
			a := testLocker(t, server.Addr(), o)
			o.Logger = tells("lock waited for", waits)
			b := testLocker(t, server.Addr(), o)
			quickly(t, lockLongestWait/2, func() time.Duration {
				k := mustLock(t, a.Lock, "key")
				got := make(chan *Lock)
				go func() { got <- mustLock(t, b.Lock, "key") }()
				<-waits
				mustUnlock(t, k)
				freed := time.Now()
				mustUnlock(t, <-got)
				return time.Since(freed)
			})
		})
	}
}
