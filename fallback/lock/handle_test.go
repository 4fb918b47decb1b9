package lock

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/netproxy"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// sent is a handle as another process gets it.
func sent(t testing.TB, k *Lock) Handle {
	t.Helper()
	var handle Handle
	if err := insist(t, func() (err error) {
		handle, err = k.Detach(t.Context())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(handle)
	if err != nil {
		t.Fatal(err)
	}
	var received Handle
	if err := json.Unmarshal(text, &received); err != nil {
		t.Fatal(err)
	}
	return received
}

func attach(t testing.TB, l *Locker, h Handle) *Lock {
	t.Helper()
	k, err := l.Attach(within(t, time.Minute), h)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestLockGoesOnInAnotherProcess(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		for name, take := range map[string]func(l *Locker) (*Lock, error){
			"exclusive": func(l *Locker) (*Lock, error) { return l.Lock(t.Context(), "key", locking.TTL(time.Minute)) },
			"shared":    func(l *Locker) (*Lock, error) { return l.RLock(t.Context(), "key", locking.TTL(time.Minute)) },
			"several":   func(l *Locker) (*Lock, error) { return l.LockAll(t.Context(), []string{"key", "other"}) },
		} {
			t.Run(name, func(t *testing.T) {
				here, there, third := patientLocker(t, addr, Config{TTL: time.Minute, Label: "job 7"}), patientLocker(t, addr, Config{TTL: time.Minute}), patientLocker(t, addr, Config{TTL: time.Minute})
				beforeHere, beforeThere := metrictest.Gather(t, here), metrictest.Gather(t, there)
				k, err := take(here)
				if err != nil {
					t.Fatal(err)
				}
				handle := sent(t, k)
				wantErr(t, context.Cause(k.Context()), ErrDetached)
				wantErr(t, renew(t, k), locking.ErrNotOwner)
				wantErr(t, k.Unlock(t.Context()), locking.ErrNotOwner)
				_, err = k.Detach(t.Context())
				wantErr(t, err, locking.ErrNotOwner)
				if left := time.Until(k.Until()); left > 0 {
					t.Errorf("%v are left", left)
				}
				_, err = third.TryLock(t.Context(), "key")
				wantErr(t, err, locking.ErrLocked)

				moved := attach(t, there, handle)
				if moved.Token() != k.Token() {
					t.Errorf("token %d, was %d", moved.Token(), k.Token())
				}
				if s := state(t, third, "key"); s.Label != "job 7" || name == "shared" && s.Readers != 1 {
					t.Errorf("the state is %+v", s)
				}
				_, err = third.TryLock(t.Context(), "key")
				wantErr(t, err, locking.ErrLocked)
				if err := renew(t, moved); err != nil || moved.Context().Err() != nil {
					t.Errorf("Renew: %v, the context: %v", err, moved.Context().Err())
				}
				mustUnlock(t, moved)
				next := mustTake(t, third, "key")
				if next.Token() <= moved.Token() {
					t.Errorf("token %d after %d", next.Token(), moved.Token())
				}
				mustUnlock(t, next)
				expectMetrics(t, here, beforeHere, metrictest.Values{`keyway_lock_moved_total{direction="detached"}`: 1, "keyway_lock_held": 0})
				expectMetrics(t, there, beforeThere, metrictest.Values{`keyway_lock_moved_total{direction="attached"}`: 1, "keyway_lock_held": 0})
			})
		}
	})
}

// Of all who have the handle one goes on, and the others do not disturb it.
func TestHandleIsGoodForOne(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		here := patientLocker(t, addr, Config{TTL: time.Minute})
		handle := sent(t, mustTake(t, here, "key"))
		var running sync.WaitGroup
		var winner atomic.Pointer[Lock]
		for range 5 {
			l := patientLocker(t, addr, Config{TTL: time.Minute})
			running.Go(func() {
				k, err := l.Attach(t.Context(), handle)
				if err != nil {
					if !errors.Is(err, locking.ErrNotOwner) {
						t.Error(err)
					}
					return
				}
				if winner.Swap(k) != nil {
					t.Error("two have it")
				}
			})
		}
		running.Wait()
		if err := renew(t, winner.Load()); err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, winner.Load())
		_, err := here.Attach(t.Context(), handle)
		wantErr(t, err, locking.ErrNotOwner)
		if state(t, here, "key").Held {
			t.Error("still held")
		}
	})
}

func TestDetachLetsTheNextCallerOfItsProcessContend(t *testing.T) {
	server := redistest.Start(t)
	l := patientLocker(t, server.Addr(), Config{TTL: time.Minute, HandOverFor: time.Hour})
	k := mustTake(t, l, "key")
	got := make(chan *Lock)
	go func() { got <- mustTake(t, l, "key") }()
	eventually(t, time.Minute, "it waits", func() bool { return l.turns.Queued("key") == 1 })
	moved := attach(t, patientLocker(t, server.Addr(), Config{TTL: time.Minute}), sent(t, k))
	eventually(t, time.Minute, "it contends", func() bool { return l.turns.Queued("key") == 0 && waitingLine(l, "key") })
	mustUnlock(t, moved)
	next := <-got
	if next.Token() <= moved.Token() {
		t.Errorf("token %d after %d", next.Token(), moved.Token())
	}
	mustUnlock(t, next)
}

func TestAttachWhoseReplyIsLostIsRepeated(t *testing.T) {
	server, proxy := lockProxy(t)
	here, there := patientLocker(t, server.Addr(), Config{TTL: time.Minute}), patientLocker(t, proxy.Addr(), Config{TTL: time.Minute})
	warm(t, there)
	mustUnlock(t, attach(t, there, sent(t, mustTake(t, here, "warm")))) // the server knows the script
	handle := sent(t, mustTake(t, here, "key"))
	proxy.CutNext(netproxy.ToClient)
	k := attach(t, there, handle)
	if k.Token() != handle.Token {
		t.Errorf("token %d, was %d", k.Token(), handle.Token)
	}
	mustUnlock(t, k)
	if held(server, "key") {
		t.Error("still held")
	}
}

func TestAttachOfWhatIsGone(t *testing.T) {
	server := redistest.Start(t)
	here, there := patientLocker(t, server.Addr(), Config{TTL: time.Minute}), patientLocker(t, server.Addr(), Config{TTL: time.Minute})
	for what, end := range map[string]func(key string){
		"expired":   func(key string) { server.CLI("del", "keyway:lock:{"+key+"}") },
		"another's": func(key string) { server.CLI("set", "keyway:lock:{"+key+"}", "wanother") },
	} {
		handle := sent(t, mustTake(t, here, what))
		end(what)
		_, err := there.Attach(t.Context(), handle)
		wantErr(t, err, locking.ErrNotOwner)
	}
	if got := server.CLI("get", "keyway:lock:{another's}"); got != "wanother" {
		t.Errorf("the other's lock is %q", got)
	}
}

func TestAttachWithADoneContextOrLockerLeavesTheHandle(t *testing.T) {
	server := redistest.Start(t)
	here, closed := patientLocker(t, server.Addr(), Config{TTL: time.Minute}), patientLocker(t, server.Addr(), Config{TTL: time.Minute})
	handle := sent(t, mustTake(t, here, "key"))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := here.Attach(done, handle)
	wantErr(t, err, context.Canceled)
	_ = closed.Close()
	_, err = closed.Attach(t.Context(), handle)
	wantErr(t, err, ErrClosed)
	mustUnlock(t, attach(t, here, handle))
}

func TestDetachOfWhatCannotBeDetached(t *testing.T) {
	server := redistest.Start(t)
	l := patientLocker(t, server.Addr(), Config{TTL: time.Minute})
	k := mustTake(t, l, "key")
	inner, err := l.Lock(k.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Detach(t.Context())
	wantErr(t, err, ErrNested)
	mustUnlock(t, inner)
	server.CLI("del", "keyway:lock:{key}")
	wantErr(t, insist(t, func() error { _, err := k.Detach(t.Context()); return err }), locking.ErrNotOwner)
	wantErr(t, context.Cause(k.Context()), ErrLost)
}

func TestLockOfAQuorumGoesOnInAnotherProcess(t *testing.T) {
	_, proxies, addrs := fiveServers(t)
	here, there := quorumOf(t, Config{TTL: time.Minute, Timeout: 20 * time.Second}, addrs...), quorumOf(t, Config{TTL: time.Minute, Timeout: 20 * time.Second}, addrs...)
	k := mustTake(t, here, "key")
	handle := sent(t, k)
	for _, p := range proxies[:2] {
		p.Refuse(true)
		p.Cut()
	}
	moved := attach(t, there, handle)
	if moved.Token() != k.Token() {
		t.Errorf("token %d, was %d", moved.Token(), k.Token())
	}
	_, err := here.Attach(t.Context(), handle)
	wantErr(t, err, locking.ErrNotOwner)
	if err := renew(t, moved); err != nil {
		t.Error(err)
	}
	mustUnlock(t, moved)
	mustUnlock(t, mustTake(t, here, "key"))
}

func TestLockOfAQuorumDoesNotGoOnInOneServer(t *testing.T) {
	var addrs []string
	for range 3 {
		addrs = append(addrs, redistest.Start(t).Addr())
	}
	here, one := quorumOf(t, Config{TTL: 3 * time.Second}, addrs...), testLocker(t, addrs[0], Config{})
	handle := sent(t, mustTake(t, here, "key"))
	moved, err := one.Attach(t.Context(), handle)
	if err == nil {
		k, err := here.Lock(t.Context(), "key")
		t.Errorf("locked in a quorum: %v, %v; and in one server: %v", k != nil, err, moved.Context().Err() == nil)
	}
	wantErr(t, err, locking.ErrOption)
	mustUnlock(t, attach(t, quorumOf(t, Config{}, addrs...), handle))
}

func TestHandlesAreChecked(t *testing.T) {
	l := testLocker(t, "127.0.0.1:1", Config{TTL: time.Minute})
	good := Handle{Prefix: "keyway:lock:", Keys: []string{"a", "b"}, Owner: "w" + strings.Repeat("X", 26), Token: 1, TTL: time.Second}
	for what, spoil := range map[string]func(h *Handle){
		"prefix":        func(h *Handle) { h.Prefix = "other:" },
		"0 keys":        func(h *Handle) { h.Keys = nil },
		"1001 keys":     func(h *Handle) { h.Keys = make([]string, 1001) },
		"sorted":        func(h *Handle) { h.Keys = []string{"b", "a"} },
		"each once":     func(h *Handle) { h.Keys = []string{"a", "a"} },
		"owner":         func(h *Handle) { h.Owner = "" },
		"with an owner": func(h *Handle) { h.Owner = "x" + h.Owner[1:] },
		"did not make":  func(h *Handle) { h.Owner += strings.Repeat("x", 200) },
		"the token 0":   func(h *Handle) { h.Token = 0 },
		"a TTL of 0s":   func(h *Handle) { h.TTL = 0 },
		"a TTL of -1s":  func(h *Handle) { h.TTL = -time.Second },
	} {
		h := good
		spoil(&h)
		_, err := l.Attach(t.Context(), h)
		if wantErr(t, err, locking.ErrOption); !strings.Contains(err.Error(), what) {
			t.Errorf("error is %v, want %q", err, what)
		}
	}
}

// A reentrant call that has unlocked does not hand over what the outer one holds.
func TestDetachAfterUnlock(t *testing.T) {
	l := testLocker(t, redistest.Start(t).Addr(), Config{})
	k := mustLock(t, l.Lock, "key")
	inner, err := l.Lock(k.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, inner)
	_, err = inner.Detach(t.Context())
	wantErr(t, err, locking.ErrNotOwner)
	mustUnlock(t, k)
}

// A context that hides who holds keys along it is that of no holder.
func TestTrapHiddenHolderIsNotReentered(t *testing.T) {
	l := testLocker(t, redistest.Start(t).Addr(), Config{})
	outer := mustLock(t, l.Lock, "key")
	_, err := l.TryLock(outsider{outer.Context()}, "key")
	wantErr(t, err, locking.ErrLocked)
	mustUnlock(t, outer)
}

// outsider hides who holds keys along a context, as a worker does for its batches.
type outsider struct{ context.Context }

func (o outsider) Value(key any) any {
	if _, hidden := key.(interface{ FindsHolder() }); hidden {
		return nil
	}
	return o.Context.Value(key)
}
