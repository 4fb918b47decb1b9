package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/test/netproxy"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// Two clients pass a lock to and fro while their subscriptions are killed.
func TestNoLostWakeupInAThousandHandOvers(t *testing.T) {
	server := redistest.Start(t)
	const rounds = 1000
	var lockers [2]*Locker
	var waits [2]chan struct{}
	for i := range lockers {
		waits[i] = make(chan struct{}, 1)
		lockers[i] = testLocker(t, server.Addr(), Config{Logger: tells("lock waited for", waits[i])})
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	kills := 0
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(rand.N(200 * time.Millisecond)):
				server.CLI("client", "kill", "type", "pubsub")
				kills++
			}
		}
	}()
	var k *Lock
	longest, slow := time.Duration(0), 0
	for i := range rounds {
		key, next := fmt.Sprint("key", i/4), (i+1)%2
		if i%4 == 0 { // a new channel as well
			k = mustLock(t, lockers[i%2].Lock, key)
		}
		got := make(chan *Lock, 1)
		go func() { got <- mustLock(t, lockers[next].Lock, key) }()
		<-waits[next]
		if i%3 == 0 { // else the release races with the subscribing
			<-time.After(rand.N(10 * time.Millisecond))
		}
		mustUnlock(t, k)
		freed := time.Now()
		k = <-got
		took := time.Since(freed)
		if i%4 == 3 {
			mustUnlock(t, k)
		}
		longest = max(longest, took)
		if took > lockLongestWait/2 { // it was not a message that woke it
			slow++
		}
	}
	close(stop)
	<-stopped
	t.Logf("longest wait after a release: %v; %d were slow; subscriptions killed %d times", longest, slow, kills)
	if slow > rounds/2 {
		t.Errorf("%d of %d waiters were not woken", slow, rounds)
	}
}

func TestWaiterCancelledAsItIsGrantedPassesTheLockOn(t *testing.T) {
	server := redistest.Start(t)
	for name, o := range map[string]Config{"in one process": {}, "fifo": {FIFO: true, Prefix: "f:"}} {
		t.Run(name, func(t *testing.T) {
			a := testLocker(t, server.Addr(), o)
			b, c := a, a
			if o.FIFO {
				b, c = testLocker(t, server.Addr(), o), testLocker(t, server.Addr(), o)
			}
			const rounds = 200
			slow := 0
			for i := range rounds {
				k := mustLock(t, a.Lock, "key")
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() {
					if k, err := b.Lock(ctx, "key"); err == nil {
						mustUnlock(t, k)
					}
				})
				if i%2 == 0 {
					eventually(t, time.Minute, "one waits", func() bool { return waiting(b, server, o) >= 1 })
				}
				running.Go(func() { mustUnlock(t, mustLock(t, c.Lock, "key")) })
				running.Go(cancel)
				mustUnlock(t, k)
				freed := time.Now()
				running.Wait()
				if time.Since(freed) > lockLongestWait/2 {
					slow++
				}
			}
			if slow > rounds/2 {
				t.Errorf("%d of %d waiters had to try again", slow, rounds)
			}
		})
	}
}

// waiting counts the callers that wait for "key".
func waiting(l *Locker, s *redistest.Server, o Config) int {
	if o.FIFO {
		n := 0
		_, _ = fmt.Sscan(s.CLI("zcard", o.Prefix+"queue:{key}"), &n)
		return n
	}
	return l.turns.Queued("key")
}

func TestCancelledWaiterLeavesTheLineWhateverTheMoment(t *testing.T) {
	server := redistest.Start(t)
	l := testLocker(t, server.Addr(), Config{TTL: 5 * time.Minute})
	var running sync.WaitGroup
	for range 16 {
		running.Go(func() {
			for range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Millisecond))
				if k, err := l.Lock(ctx, "key"); err == nil {
					if ctx.Err() != nil && context.Cause(k.Context()) == nil {
						t.Error("granted to a done context")
					}
					if err := k.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
				cancel()
			}
		})
	}
	running.Wait()
	eventually(t, time.Minute, "the lock is free", func() bool { return !held(server, "key") })
	eventually(t, time.Minute, "the line is gone", func() bool {
		l.locks.Lock()
		defer l.locks.Unlock()
		return l.locks.LenLocked() == 0 && l.turns.Len() == 0 && len(l.passed) == 0
	})
}

// A caller that leaves in the moment in which the lock is passed on to it releases it, if nobody else waits.
func TestLockPassedOnToACallerThatLeavesIsReleased(t *testing.T) {
	server := redistest.Start(t)
	l := testLocker(t, server.Addr(), Config{TTL: 5 * time.Minute})
	for range 50 {
		k := mustLock(t, l.Lock, "key")
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan *Lock, 1)
		go func() {
			k, _ := l.Lock(ctx, "key")
			got <- k
		}()
		eventually(t, time.Minute, "it waits", func() bool { return l.turns.Queued("key") == 1 })
		mustUnlock(t, k)
		cancel()
		if k := <-got; k != nil {
			mustUnlock(t, k)
		}
		eventually(t, time.Minute, "the lock is free", func() bool { return !held(server, "key") })
	}
}

// A waiter does not ask all the time for a lock of another program that has no end.
func TestWaiterOfALockWithoutAnEnd(t *testing.T) {
	server := redistest.Start(t)
	server.CLI("set", "key", "another")
	for name, o := range map[string]Config{"plain": {NoPrefix: true}, "fifo": {NoPrefix: true, FIFO: true}} {
		l := testLocker(t, server.Addr(), o)
		for _, read := range []bool{false, true} {
			c := l.claim(ask{names: []string{"key"}, read: read, waits: true, opts: locking.Options{TTL: time.Minute}})
			for _, first := range []bool{true, false} {
				g, err := l.server.acquire(within(t, time.Minute), c, first)
				if pause := l.pause(g.left); err != nil || g.token != 0 || pause < lockLongestWait/2 {
					t.Errorf("%s, read %v, first %v: %+v, %v; it asks again after %v", name, read, first, g, err, pause)
				}
			}
		}
	}
}

func TestFIFOAcrossProcesses(t *testing.T) {
	server := redistest.Start(t)
	var lockers []*Locker
	waits := make(chan struct{}, 100)
	for range 4 {
		lockers = append(lockers, testLocker(t, server.Addr(), Config{
			FIFO: true, Logger: tells("lock waited for", waits),
		}))
	}
	k := mustLock(t, lockers[0].Lock, "key")
	const callers = 40
	var running sync.WaitGroup
	var mu sync.Mutex
	var order []int
	for i := range callers {
		running.Go(func() {
			k := mustLock(t, lockers[i%len(lockers)].Lock, "key")
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			mustUnlock(t, k)
		})
		<-waits
	}
	if _, err := lockers[1].TryLock(t.Context(), "key"); err == nil {
		t.Error("TryLock overtook those who wait")
	}
	began := time.Now()
	mustUnlock(t, k)
	running.Wait()
	for i, caller := range order {
		if i != caller {
			t.Fatalf("granted in order %v", order)
		}
	}
	if took := time.Since(began); took > callers*lockLongestWait/2 {
		t.Errorf("%d waiters took %v", callers, took)
	}
}

func TestDeadWaiterDoesNotBlockTheQueue(t *testing.T) {
	server, proxy := lockProxy(t)
	waits := make(chan struct{}, 10)
	o := Config{FIFO: true, Logger: tells("lock waited for", waits)}
	holder, dying, next := testLocker(t, server.Addr(), o), testLocker(t, proxy.Addr(), o), testLocker(t, server.Addr(), o)
	k := mustLock(t, holder.Lock, "key")
	ctx, cancel := context.WithCancel(t.Context())
	defer proxy.Heal()
	defer cancel()
	go func() { _, _ = dying.Lock(ctx, "key") }()
	<-waits
	proxy.Refuse(true)
	proxy.Cut()
	type result struct {
		k   *Lock
		err error
	}
	got, bound := make(chan result, 1), within(t, time.Minute)
	go func() {
		k, err := next.Lock(bound, "key")
		got <- result{k, err}
	}()
	<-waits
	mustUnlock(t, k)
	freed := time.Now()
	if _, err := holder.TryLock(t.Context(), "key"); !errors.Is(err, locking.ErrLocked) {
		t.Fatalf("TryLock overtook those who wait: error %v, want %v", err, locking.ErrLocked) // the dead one's turn lasts a while
	}
	r := <-got
	if r.err != nil {
		t.Fatalf("a dead waiter still blocks the queue after %v: %v", time.Since(freed), r.err)
	}
	mustUnlock(t, r.k)
}

func TestWritersAreNotStarved(t *testing.T) {
	server := redistest.Start(t)
	for name, o := range map[string]Config{"plain": {}, "fifo": {FIFO: true, Prefix: "f:"}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var running sync.WaitGroup
			var reads atomic.Int64
			for range 4 {
				l := testLocker(t, server.Addr(), o)
				for range 2 {
					running.Go(func() {
						for ctx.Err() == nil {
							k, err := l.RLock(ctx, "key")
							if err != nil {
								continue
							}
							reads.Add(1)
							<-time.After(rand.N(5 * time.Millisecond)) // so that readers overlap
							_ = k.Unlock(context.WithoutCancel(ctx))
						}
					})
				}
			}
			eventually(t, time.Minute, "readers run", func() bool { return reads.Load() > 100 })
			writer := testLocker(t, server.Addr(), o)
			const writes = 10
			slow := 0
			for range writes {
				began := time.Now()
				k := mustLock(t, writer.Lock, "key")
				if time.Since(began) > time.Second {
					slow++
				}
				seen := reads.Load()
				mustUnlock(t, k)
				eventually(t, time.Minute, "readers get it again", func() bool { return reads.Load() > seen+10 })
			}
			if slow > writes/2 {
				t.Errorf("the writer waited for more than a second %d times of %d", slow, writes)
			}
			cancel()
			running.Wait()
		})
	}
}

func TestProcessesTakeTurnsDespiteLocalHandOver(t *testing.T) {
	server := redistest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var running sync.WaitGroup
	var grants [2]atomic.Int64
	var inside atomic.Int64
	for i := range grants {
		l := testLocker(t, server.Addr(), Config{})
		for range 16 {
			running.Go(func() {
				for ctx.Err() == nil {
					k, err := l.Lock(ctx, "key")
					if err != nil {
						continue
					}
					if inside.Add(1) != 1 {
						t.Error("two holders at once")
					}
					grants[i].Add(1)
					inside.Add(-1)
					_ = k.Unlock(context.WithoutCancel(ctx))
				}
			})
		}
	}
	running.Wait()
	a, b := grants[0].Load(), grants[1].Load()
	t.Logf("grants: %d and %d", a, b)
	if min(a, b)*5 < max(a, b) {
		t.Errorf("one process had %d grants, the other %d", a, b)
	}
}

func TestOneContenderPerKeyAndProcess(t *testing.T) {
	server := redistest.Start(t)
	holder, l := testLocker(t, server.Addr(), Config{}), testLocker(t, server.Addr(), Config{})
	k := mustLock(t, holder.Lock, "key")
	const callers = 32
	var running sync.WaitGroup
	var last atomic.Int64
	before := calls(t, server)
	for range callers {
		running.Go(func() {
			k := mustLock(t, l.Lock, "key")
			if previous := last.Swap(k.Token()); previous >= k.Token() {
				t.Errorf("token %d after %d", k.Token(), previous)
			}
			mustUnlock(t, k)
		})
	}
	eventually(t, time.Minute, "all wait", func() bool { return waiting(l, server, Config{}) == callers-1 })
	mustUnlock(t, k)
	running.Wait()
	if n := calls(t, server) - before; n > 12 {
		t.Errorf("%d callers cost %d calls", callers, n)
	}
}

func TestHandOverIsCappedByCountAndTime(t *testing.T) {
	server := redistest.Start(t)
	for name, o := range map[string]Config{
		"count": {HandOverFor: time.Hour},
		"time":  {HandOverFor: 200 * time.Millisecond},
		"never": {HandOverFor: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var run, longest atomic.Int64
			o.Logger = slog.New(onLog{
				"lock handed over": func(slog.Record) { longest.Store(max(longest.Load(), run.Add(1))) },
				"lock acquired":    func(slog.Record) { run.Store(0) },
			})
			l := testLocker(t, server.Addr(), o)
			var running sync.WaitGroup
			for range 40 {
				running.Go(func() {
					k := mustLock(t, l.Lock, "key")
					<-time.After(20 * time.Millisecond)
					mustUnlock(t, k)
				})
			}
			running.Wait()
			got := longest.Load()
			if name == "count" && got != handOvers || name == "time" && (got < 1 || got > 10) || name == "never" && got != 0 {
				t.Errorf("%d hand-overs in a row", got)
			}
		})
	}
}

func TestWaitsOutAServerThatRestarts(t *testing.T) {
	server, proxy := lockProxy(t)
	l := testLocker(t, proxy.Addr(), Config{})
	warm(t, l)
	proxy.Refuse(true)
	proxy.Cut()
	got := make(chan *Lock, 1)
	go func() { got <- mustLock(t, l.Lock, "key") }()
	eventually(t, time.Minute, "a try is under way", func() bool { return waitingLine(l, "key") })
	proxy.Set(netproxy.ToServer, netproxy.Fault{})
	proxy.Refuse(false)
	mustUnlock(t, <-got)
	if held(server, "key") {
		t.Error("still held")
	}
}

func waitingLine(l *Locker, key string) bool {
	return l.turns.Inspect(key).Token != 0
}

// stopped is the context of a caller whose process is stopped when it looks at it.
type stopped struct {
	context.Context
	on   atomic.Bool
	goOn chan struct{}
}

// Err implements [context.Context].
func (s *stopped) Err() error {
	if s.on.Load() {
		<-s.goOn
	}
	return s.Context.Err()
}

// A lock that was passed on is renewed though its next caller has not begun yet.
func TestTrapLockThatWasPassedOnIsRenewed(t *testing.T) {
	renewed := make(chan struct{}, 1000)
	l := testLocker(t, redistest.Start(t).Addr(), Config{TTL: time.Minute, RenewEvery: 2 * time.Second, HandOverFor: time.Hour, Logger: tells("lock renewed", renewed)})
	k := mustLock(t, l.Lock, "key")
	next := &stopped{Context: t.Context(), goOn: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		k, err := l.Lock(next, "key")
		if err == nil {
			err = k.Unlock(t.Context())
		}
		done <- err
	}()
	eventually(t, time.Minute, "another caller waits", func() bool { return l.turns.Queued("key") == 1 })
	next.on.Store(true)
	mustUnlock(t, k)
	before := len(renewed)
	eventually(t, time.Minute, "the lock is renewed", func() bool { return len(renewed) > before })
	close(next.goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
