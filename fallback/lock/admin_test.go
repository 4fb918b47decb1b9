package lock

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/netproxy"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/localmutex/locking"
)

func TestState(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		for name, o := range map[string]Config{"plain": {TTL: time.Minute}, "fifo": {TTL: time.Minute, FIFO: true, Prefix: "f:"}} {
			t.Run(name, func(t *testing.T) {
				asks := patientLocker(t, addr, o)
				o.Label = "host-1 worker"
				l := patientLocker(t, addr, o)
				if s := state(t, asks, "key"); s != (State{}) {
					t.Errorf("never locked: %+v", s)
				}
				k := mustTake(t, l, "key")
				s := state(t, asks, "key")
				if !s.Held || s.Label != "host-1 worker" || s.Readers != 0 || s.Waiting != 0 || s.Token < k.Token() || s.Left <= 0 || s.Left > time.Minute {
					t.Errorf("held with token %d: %+v", k.Token(), s)
				}
				mustUnlock(t, k)
				if s := state(t, asks, "key"); s.Held || s.Label != "" || s.Left != 0 || s.Token < k.Token() {
					t.Errorf("free: %+v", s)
				}
				k = mustTake(t, l, "key", locking.Label("nightly: job")) // with a colon of its own
				if s := state(t, asks, "key"); s.Label != "nightly: job" {
					t.Errorf("labelled by the call: %+v", s)
				}
				mustUnlock(t, k)
				r1, r2 := mustLock(t, l.RLock, "key"), mustLock(t, l.RLock, "key")
				if s := state(t, asks, "key"); !s.Held || s.Readers != 2 || s.Label != "host-1 worker" {
					t.Errorf("held by two readers: %+v", s)
				}
				mustUnlock(t, r1)
				mustUnlock(t, r2)
			})
		}
	})
}

func TestStateSaysWhoWaits(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		for name, o := range map[string]Config{"plain": {TTL: time.Minute}, "fifo": {TTL: time.Minute, FIFO: true, Prefix: "f:"}} {
			t.Run(name, func(t *testing.T) {
				holder, waiter := patientLocker(t, addr, o), patientLocker(t, addr, o)
				k := mustTake(t, holder, "key")
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				callers, elsewhere := 3, 0
				if o.FIFO { // whoever does not call again within 2 s is forgotten: fewer calls for a busy machine
					callers, elsewhere = 1, 1
				}
				for range callers {
					running.Go(func() {
						_, err := waiter.Lock(ctx, "key")
						wantCanceled(t, err)
					})
				}
				eventually(t, time.Minute, "they wait", func() bool { return state(t, waiter, "key").Waiting == callers })
				eventually(t, time.Minute, "another process sees who waits", func() bool { return state(t, holder, "key").Waiting == elsewhere })
				cancel()
				running.Wait()
				mustUnlock(t, k)
			})
		}
	})
}

func wantCanceled(t *testing.T, err error) {
	if err != context.Canceled {
		t.Errorf("error is %v", err)
	}
}

func TestStateOfAQuorum(t *testing.T) {
	var servers []*redistest.Server
	var addrs []string
	for range 3 {
		s := redistest.Start(t)
		servers, addrs = append(servers, s), append(addrs, s.Addr())
	}
	l, other := quorumOf(t, Config{TTL: time.Minute, Timeout: 20 * time.Second, Label: "one of three"}, addrs...), quorumOf(t, Config{TTL: time.Minute, Timeout: 20 * time.Second}, addrs...)
	k := mustTake(t, l, "key")
	if s := state(t, other, "key"); !s.Held || s.Label != "one of three" || s.Left <= 0 || s.Token < k.Token() {
		t.Errorf("held: %+v", s)
	}
	if _, err := other.ForceUnlock(t.Context(), "key", "ops", "test"); err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, mustTake(t, other, "key"))
	if err := renew(t, k); err == nil || !strings.Contains(err.Error(), `by "ops": "test"`) {
		t.Errorf("the former holder renews: %v", err)
	}
	wantErr(t, context.Cause(k.Context()), ErrForced)
	servers[0].Kill()
	servers[1].Kill()
	_, err := other.State(t.Context(), "key")
	wantErr(t, err, ErrNoQuorum)
	_, err = other.ForceUnlock(t.Context(), "key", "ops", "test")
	wantErr(t, err, ErrNoQuorum)
}

func TestForceUnlock(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		for name, o := range map[string]Config{"plain": {TTL: time.Minute}, "fifo": {TTL: time.Minute, FIFO: true, Prefix: "f:"}} {
			t.Run(name, func(t *testing.T) {
				o.Label = "the holder"
				holder := patientLocker(t, addr, o)
				var log bytes.Buffer
				o.Label, o.Logger = "", slog.New(slog.NewTextHandler(&log, nil))
				var events []Event
				o.Hooks.Forced = func(e Event) { events = append(events, e) }
				asks := patientLocker(t, addr, o)
				before := metrictest.Gather(t, asks)

				k := mustTake(t, holder, "key")
				was, err := asks.ForceUnlock(t.Context(), "key", "alice", "host 7 burns")
				if err != nil || !was.Held || was.Label != "the holder" {
					t.Fatalf("ForceUnlock: %+v, %v", was, err)
				}
				next := mustTake(t, asks, "key")
				if next.Token() <= k.Token() {
					t.Errorf("token %d after %d", next.Token(), k.Token())
				}
				wantErr(t, renew(t, k), locking.ErrNotOwner)
				cause := context.Cause(k.Context())
				if wantErr(t, cause, ErrForced); !strings.Contains(cause.Error(), `"alice"`) || !strings.Contains(cause.Error(), `"host 7 burns"`) {
					t.Errorf("the cause is %v", cause)
				}
				wantErr(t, k.Unlock(t.Context()), locking.ErrNotOwner)
				mustUnlock(t, next)

				r1, r2 := mustLock(t, holder.RLock, "key"), mustLock(t, holder.RLock, "key")
				if was, err = asks.ForceUnlock(t.Context(), "key", "alice", "again"); err != nil || was.Readers != 2 {
					t.Fatalf("ForceUnlock of readers: %+v, %v", was, err)
				}
				for _, r := range []*Lock{r1, r2} {
					wantErr(t, renew(t, r), locking.ErrNotOwner)
					wantErr(t, context.Cause(r.Context()), ErrForced)
				}
				if was, err = asks.ForceUnlock(t.Context(), "key", "alice", "nobody has it"); err != nil || was.Held {
					t.Fatalf("ForceUnlock of what is free: %+v, %v", was, err)
				}
				if len(events) != 2 || events[0].By != "alice" || events[0].Why != "host 7 burns" || events[0].Label != "the holder" || !events[1].Read {
					t.Errorf("events %+v", events)
				}
				if line := `level=WARN msg="lock forced" keys=key read=false label="the holder" by=alice why="host 7 burns"`; !strings.Contains(log.String(), line) {
					t.Errorf("not logged: %s\n%s", line, log.String())
				}
				expectMetrics(t, asks, before, metrictest.Values{"keyway_lock_forced_total": 2})
			})
		}
	})
}

// An Unlock whose answer is lost does not take the lock for its own release.
func TestUnlockOfWhatWasTakenByForceIsNotOwner(t *testing.T) {
	server, proxy := lockProxy(t)
	l := patientLocker(t, proxy.Addr(), Config{TTL: time.Minute})
	asks := patientLocker(t, server.Addr(), Config{TTL: time.Minute})
	force := func(key string) {
		if _, err := asks.ForceUnlock(t.Context(), key, "ops", "test"); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		take  func(key string)
		knows bool
		why   error
	}{
		"forced":   {force, false, ErrForced},
		"it knows": {force, true, ErrForced},
		"lost":     {func(key string) { server.CLI("del", "keyway:lock:{"+key+"}") }, true, ErrLost},
	} {
		k := mustTake(t, l, name)
		c.take(name)
		if c.knows {
			wantErr(t, renew(t, k), locking.ErrNotOwner)
		}
		proxy.CutNext(netproxy.ToClient)
		if err := k.Unlock(within(t, time.Minute)); !errors.Is(err, locking.ErrNotOwner) || !errors.Is(err, c.why) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

func TestForceUnlockIsCheckedAndClosed(t *testing.T) {
	l := patientLocker(t, redistest.Start(t).Addr(), Config{})
	for _, c := range [][2]string{{"", "why"}, {"by", ""}, {strings.Repeat("x", 257), "why"}, {"by", strings.Repeat("x", 257)}} {
		_, err := l.ForceUnlock(t.Context(), "key", c[0], c[1])
		wantErr(t, err, locking.ErrOption)
	}
	_ = l.Close()
	_, err := l.ForceUnlock(t.Context(), "key", "by", "why")
	wantErr(t, err, ErrClosed)
}

// A holder of the same process does not wait for its renewal.
func TestForceUnlockEndsTheLocksOfItsOwnLockerAtOnce(t *testing.T) {
	l := patientLocker(t, redistest.Start(t).Addr(), Config{NoRenewal: true})
	k, err := l.LockAll(t.Context(), []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.ForceUnlock(t.Context(), "b", "ops", "test"); err != nil {
		t.Fatal(err)
	}
	<-k.Context().Done()
	wantErr(t, context.Cause(k.Context()), ErrForced)
}

// A holder that takes its lock again when it is gone does not when it was taken away.
func TestLockTakenByForceIsNotTakenAgain(t *testing.T) {
	server := redistest.Start(t)
	holder := patientLocker(t, server.Addr(), Config{ContinueOnFailure: true})
	asks := patientLocker(t, server.Addr(), Config{})
	k := mustTake(t, holder, "key")
	if _, err := asks.ForceUnlock(t.Context(), "key", "ops", "test"); err != nil {
		t.Fatal(err)
	}
	wantErr(t, renew(t, k), locking.ErrNotOwner)
	wantErr(t, context.Cause(k.Context()), ErrForced)
	if held(server, "key") {
		t.Error("taken again")
	}
}

func TestForceUnlockWakesWhoWaits(t *testing.T) {
	server := redistest.Start(t)
	for name, o := range map[string]Config{"plain": {TTL: time.Minute}, "fifo": {TTL: time.Minute, FIFO: true, Prefix: "f:"}} {
		holder := patientLocker(t, server.Addr(), o)
		waits := make(chan struct{}, 1)
		o.Hooks.Waited = func(Event) { waits <- struct{}{} }
		waiter := patientLocker(t, server.Addr(), o)
		k := mustTake(t, holder, name, locking.TTL(time.Hour))
		got := make(chan *Lock)
		go func() { got <- mustTake(t, waiter, name) }()
		<-waits
		if _, err := holder.ForceUnlock(t.Context(), name, "ops", "test"); err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, <-got)
		<-k.Context().Done()
	}
}

// What other programs keep at a lock's key can be seen and freed.
func TestStateAndForceUnlockOfOthersLocks(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		client, l := lockClient(t, addr), patientLocker(t, addr, Config{NoPrefix: true})
		for kind, put := range map[string]func(key string) error{
			"string": func(key string) error { return client.Set(t.Context(), key, "somebody", time.Hour).Err() },
			"hash":   func(key string) error { return client.HSet(t.Context(), key, "uuid:1", 1).Err() },
			"list":   func(key string) error { return client.RPush(t.Context(), key, "x").Err() },
		} {
			if err := put(kind); err != nil {
				t.Fatal(err)
			}
			if s := state(t, l, kind); !s.Held || s.Label != "" {
				t.Errorf("%s: %+v", kind, s)
			}
			for how, take := range map[string]func(context.Context, string, ...locking.Option) (*Lock, error){"Lock": l.Lock, "RLock": l.RLock} {
				if _, err := take(t.Context(), kind, locking.Wait(50*time.Millisecond)); err == nil {
					t.Fatalf("%s of a %s", how, kind)
				} else {
					wantErr(t, err, locking.ErrLocked)
				}
			}
			if _, err := l.ForceUnlock(t.Context(), kind, "ops", "test"); err != nil {
				t.Error(err)
			}
			mustUnlock(t, mustTake(t, l, kind))
		}
	})
}

func TestLockersThatDisagreeAboutFIFO(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		client := lockClient(t, addr)
		for _, fifo := range []bool{false, true} {
			o := Config{FIFO: fifo, Prefix: map[bool]string{false: "a:", true: "b:"}[fifo]}
			mustUnlock(t, mustTake(t, patientLocker(t, addr, o), "key"))
			mustUnlock(t, mustTake(t, patientLocker(t, addr, o), "key"))
			o.FIFO = !fifo
			other := patientLocker(t, addr, o)
			eventually(t, time.Minute, "they are compared", func() bool {
				k, err := other.TryLock(t.Context(), "another key")
				if err == nil { // the comparison had no answer in time
					mustUnlock(t, k)
				}
				return errors.Is(err, ErrOrder) && strings.Contains(err.Error(), o.Prefix)
			})
			_, err := other.Lock(t.Context(), "another key")
			wantErr(t, err, ErrOrder)
			if err := client.Del(t.Context(), o.Prefix+"order").Err(); err != nil { // as time does
				t.Fatal(err)
			}
			eventually(t, time.Minute, "the others are forgotten", func() bool {
				k, err := other.TryLock(t.Context(), "key")
				if err == nil {
					mustUnlock(t, k)
				}
				return err == nil
			})
		}
	})
}
