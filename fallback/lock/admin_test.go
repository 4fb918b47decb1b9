package lock

import (
	"context"
	"errors"
	"testing"
	"time"

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
		o := Config{TTL: time.Minute, FIFO: true}
		holder, waiter := patientLocker(t, addr, o), patientLocker(t, addr, o)
		k := mustTake(t, holder, "key")
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { // one: whoever does not call again within 2 s is forgotten, and the machine may be busy
			_, err := waiter.Lock(ctx, "key")
			left <- err
		}()
		eventually(t, time.Minute, "it waits", func() bool { return state(t, waiter, "key").Waiting == 1 })
		eventually(t, time.Minute, "another process sees it", func() bool { return state(t, holder, "key").Waiting == 1 })
		cancel()
		wantErr(t, <-left, context.Canceled)
		mustUnlock(t, k)
	})
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
	for _, s := range servers {
		s.CLI("del", "keyway:lock:{key}")
	}
	mustUnlock(t, mustTake(t, other, "key"))
	wantErr(t, renew(t, k), locking.ErrNotOwner)
	wantErr(t, context.Cause(k.Context()), ErrLost)
	servers[0].Kill()
	servers[1].Kill()
	_, err := other.State(t.Context(), "key")
	wantErr(t, err, ErrNoQuorum)
}

// An Unlock whose answer is lost does not take the lock for its own release.
func TestUnlockOfWhatIsKnownToBeLostIsNotOwner(t *testing.T) {
	server, proxy := lockProxy(t)
	l := patientLocker(t, proxy.Addr(), Config{TTL: time.Minute})
	k := mustTake(t, l, "key")
	server.CLI("del", "keyway:lock:{key}")
	wantErr(t, renew(t, k), locking.ErrNotOwner)
	proxy.CutNext(netproxy.ToClient)
	if err := k.Unlock(within(t, time.Minute)); !errors.Is(err, locking.ErrNotOwner) || !errors.Is(err, ErrLost) {
		t.Errorf("error is %v", err)
	}
}

// What other programs keep at a lock's key can be seen, and is not taken.
func TestStateOfOthersLocks(t *testing.T) {
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
				eventually(t, time.Minute, "the server answers within the wait", func() bool {
					_, err := take(t.Context(), kind, locking.Wait(50*time.Millisecond))
					if err == nil {
						t.Fatalf("%s of a %s", how, kind)
					}
					return errors.Is(err, locking.ErrLocked)
				})
			}
			if err := client.Del(t.Context(), kind).Err(); err != nil {
				t.Error(err)
			}
			mustUnlock(t, mustTake(t, l, kind))
		}
	})
}
