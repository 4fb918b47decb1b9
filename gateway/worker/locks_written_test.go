package worker_test

import (
	"context"
	"errors"
	"fmt"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/test/memstore"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// heldStore is a store that can hold up writes of locks, and counts them.
type heldStore struct {
	worker.Store
	mu     sync.Mutex
	gate   chan struct{} // closed to let writes go on; nil for no wait
	writes int
}

func (s *heldStore) hold() (letGo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gate = gate
	return func() { close(gate) }
}

func (s *heldStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *heldStore) WriteLocks(ctx context.Context, gen, incarnation string, writes []records.LockWrite) ([]records.WriteNumber, error) {
	s.mu.Lock()
	gate := s.gate
	s.writes++
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s.Store.WriteLocks(ctx, gen, incarnation, writes)
}

// heldPair is pairOf, with a store that can hold up writes, and keys of the first worker's
// in one partition.
func heldPair(t *testing.T) (s *heldStore, a, b *site.Worker, keys []string, toA, toB *caller) {
	s = new(heldStore)
	a, b, key, toA, toB := pairOf(t, func(cfg *worker.Config) {
		if s.Store == nil {
			s.Store = cfg.Store
		}
		cfg.Store = s
	})
	for i := 0; len(keys) < 4; i++ {
		if other := fmt.Sprint("of-one-", i); toA.ring.Partition(other) == toA.ring.Partition(key) {
			keys = append(keys, other)
		}
	}
	return s, a, b, keys, toA, toB
}

// kept is how many locks the store keeps for the partition of a key, which w owns.
func (s *heldStore) kept(t *testing.T, w *site.Worker, key string) int {
	t.Helper()
	gen, err := s.Generation(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := s.Observe(t.Context(), gen, w.Incarnation(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range snapshot.Partitions {
		if p.Partition == w.Ring.Partition(key) {
			return len(p.Written)
		}
	}
	return 0
}

// kill ends a worker without a word, and waits until another one serves a key of its.
func kill(t *testing.T, a, b *site.Worker, key string) {
	t.Helper()
	a.Close()
	a.Member.Vanish()
	awaitServed(t, b, key)
}

func awaitServed(t *testing.T, w *site.Worker, key string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !explain(t, w, key).Served; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the key is not served within a minute")
		}
	}
}

const longLease = 5 * time.Minute

// A lock with a long lease outlives its owner: it is the same at the successor, for its
// whole lease, and its holder goes on with it there.
func TestTrapLongLocksOutliveTheirOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b, keys, toA, toB := heldPair(t)
		firm, renewed, short, shared, joint := holds.NewID(), holds.NewID(), holds.NewID(), holds.NewID(), holds.NewID()
		grant := toA.acquireAs(keys[0], holds.Request{ID: firm, Firm: true, Lease: longLease, Label: "backup"})
		if grant.Lease != longLease || grant.Cancel != longLease || grant.Surrender != longLease {
			t.Errorf("granted %+v, want all of %v", grant, longLease)
		}
		toA.acquireAs(keys[1], holds.Request{ID: renewed, Lease: longLease})
		toA.acquire(keys[2], short)
		toA.acquireAs(keys[3], holds.Request{ID: shared, Shared: true, Lease: longLease})
		toA.acquireAs(keys[3], holds.Request{ID: joint, Shared: true, Lease: longLease})
		kill(t, a, b, keys[0])
		served := time.Now()
		if h := explain(t, b, keys[0]).Holder; h == nil || h.Token != grant.Token || h.Label != "backup" || h.Kind != "hold" {
			t.Errorf("holder: %+v", h)
		}
		want := []holder.Answer{holder.Held, holder.Gone, holder.Held, holder.Held}
		if r := toB.renew(renewed, short, shared, joint); !slices.Equal(r.States, want) {
			t.Errorf("renewed at the successor: %v, want %v", r.States, want)
		}
		if !free(t, b, keys[2]) {
			t.Error("a lock that was not written outlives its owner")
		}
		if g := toB.extend(keys[0], holds.Request{ID: firm, Firm: true, Lease: 2 * longLease}); g.Token != grant.Token || g.Surrender != 2*longLease {
			t.Errorf("extended to %+v, granted %+v", g, grant)
		}
		if s := toB.release(shared, joint); !slices.Equal(s, []holder.Answer{holder.Held, holder.Held}) || !free(t, b, keys[3]) {
			t.Errorf("shared locks are released: %v", s)
		}
		time.Sleep(time.Until(served.Add(longLease - time.Second)))
		if free(t, b, keys[1]) {
			t.Error("free within the lease that began when the successor came")
		}
		time.Sleep(2 * time.Second)
		if !free(t, b, keys[1]) {
			t.Error("held beyond that lease")
		}
		if n := s.kept(t, b, keys[0]); n != 1 || free(t, b, keys[0]) {
			t.Errorf("the store keeps %d locks, and the one that was extended is free: %v", n, free(t, b, keys[0]))
		}
		if s := toB.release(firm)[0]; s != holder.Held || !free(t, b, keys[0]) {
			t.Errorf("released: %v", s)
		}
		if n := s.kept(t, b, keys[0]); n != 0 {
			t.Errorf("the store keeps %d locks after the last is released", n)
		}
	})
}

// A long lease is granted when the store keeps the lock, and its key is free when the store
// does not any more; what the session vouches for costs no call to the store.
func TestTrapLongLocksAreWrittenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, _, keys, toA, _ := heldPair(t)
		for _, r := range []holds.Request{{}, {Lease: 10 * time.Second}, {Firm: true, Lease: 7 * time.Second}} {
			r.ID = holds.NewID()
			if g := toA.acquireAs(keys[0], r); s.count() != 0 || r.Firm && g.Surrender != r.Lease {
				t.Errorf("%+v took %d writes, granted %+v", r, s.count(), g)
			}
			toA.release(r.ID)
		}
		for _, r := range []holds.Request{{Lease: longLease}, {Firm: true}} {
			r.ID = holds.NewID()
			for _, call := range []func(){func() { toA.acquireAs(keys[0], r) }, func() { toA.release(r.ID) }} {
				letGo, done := s.hold(), make(chan struct{})
				go func() {
					defer close(done)
					call()
				}()
				time.Sleep(time.Second)
				select {
				case <-done:
					t.Error("answered before the store has written it")
				default:
				}
				if free(t, a, keys[0]) {
					t.Error("the key is free meanwhile")
				}
				letGo()
				<-done
			}
			if !free(t, a, keys[0]) || s.kept(t, a, keys[0]) != 0 {
				t.Errorf("free: %v, and the store keeps %d locks", free(t, a, keys[0]), s.kept(t, a, keys[0]))
			}
		}
	})
}

// A planned move takes along what is left of a long lease, and a removal that is under way
// goes on at the next owner.
func TestLongLocksMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b, keys, toA, _ := heldPair(t)
		moved, released := holds.NewID(), holds.NewID()
		grant := toA.acquireAs(keys[0], holds.Request{ID: moved, Firm: true, Lease: time.Minute})
		toA.acquireAs(keys[1], holds.Request{ID: released, Lease: longLease})
		time.Sleep(40 * time.Second)
		letGo, state := s.hold(), make(chan holder.Answer, 1)
		go func() { state <- toA.release(released)[0] }()
		time.Sleep(time.Millisecond)
		leave(t, a, b)
		letGo()
		if got := <-state; got != holder.Released {
			t.Errorf("a release that was under way is answered %v, want released", got)
		}
		time.Sleep(time.Second)
		if !free(t, b, keys[1]) {
			t.Error("what was being released is held at the next owner")
		}
		if h := explain(t, b, keys[0]).Holder; h == nil || h.Token != grant.Token {
			t.Errorf("token %d became %+v", grant.Token, h)
		}
		time.Sleep(15 * time.Second)
		if free(t, b, keys[0]) {
			t.Error("free within what was left of the lease")
		}
		time.Sleep(5 * time.Second)
		if !free(t, b, keys[0]) || s.kept(t, b, keys[0]) != 0 {
			t.Errorf("free: %v, and the store keeps %d locks", free(t, b, keys[0]), s.kept(t, b, keys[0]))
		}
	})
}

// Where the store has lost what it kept, long locks are written again: they outlive their
// owner after that too.
func TestTrapLongLocksAreWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b, keys, toA, toB := heldPair(t)
		id := holds.NewID()
		toA.acquireAs(keys[0], holds.Request{ID: id, Lease: longLease})
		s.Store.(*memstore.Store).Lose()
		time.Sleep(15 * time.Second)
		if n := s.kept(t, a, keys[0]); n != 1 {
			t.Errorf("the store keeps %d locks", n)
		}
		kill(t, a, b, keys[0])
		if s := toB.renew(id).States[0]; s != holder.Held {
			t.Errorf("renewed at the successor: %v", s)
		}
	})
}

// A long lock outlives the session of its owner, which is released without waiting for it.
func TestLongLocksOutliveALife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 1)
		store := &releasedStore{Store: c.Store}
		w := c.StartOwner(func(cfg *worker.Config) { cfg.Store = store })
		caller, first, id := newCaller(t, w), w.Incarnation(), holds.NewID()
		grant := caller.acquireAs("k", holds.Request{ID: id, Lease: longLease})
		if err := c.Store.Release(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		for w.Incarnation() == first {
			time.Sleep(100 * time.Millisecond)
		}
		awaitServed(t, w, "k")
		if g := caller.extend("k", holds.Request{ID: id, Lease: longLease}); g.Token != grant.Token {
			t.Errorf("token %d became %d", grant.Token, g.Token)
		}
		if time.Sleep(time.Second); !store.has(first) {
			t.Error("the former life is not released while a long lock is held")
		}
	})
}

// A worker that leaves though nobody takes its partitions does not wait for long locks: they
// are those of whoever comes.
func TestTrapLongLocksKeepNobodyFromLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 1)
		a := c.StartOwner()
		toA, id := newCaller(t, a), holds.NewID()
		grant := toA.acquireAs("k", holds.Request{ID: id, Lease: longLease})
		before := time.Now()
		if err := a.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(before); d > 5*time.Second {
			t.Errorf("it took %v to leave", d)
		}
		b := c.Start()
		awaitServed(t, b, "k")
		if h := explain(t, b, "k").Holder; h == nil || h.Token != grant.Token {
			t.Errorf("token %d became %+v", grant.Token, h)
		}
	})
}

// Nothing is promised for a long lock by a worker whose own session may be over: others may
// have the key.
func TestTrapLongLocksNeedASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _, keys, toA, _ := heldPair(t)
		id := holds.NewID()
		toA.acquireAs(keys[0], holds.Request{ID: id, Lease: longLease})
		a.EndLease()
		status, body, err := toA.call(t.Context(), holds.Extend, keys[0], holds.Request{ID: id, Lease: longLease}.Append(nil))
		if r, _ := errors.AsType[*link.RefusedError](err); r == nil || r.Reason != link.Unavailable {
			t.Errorf("extended by a worker whose session is over: %d %q %v", status, body, err)
		}
	})
}

// Leases are bounded.
func TestMaxLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start(func(cfg *worker.Config) { cfg.MaxLease = time.Hour })
		w.AwaitServing(t, 16)
		c, id := newCaller(t, w), holds.NewID()
		c.acquireAs("k", holds.Request{ID: id, Lease: time.Hour})
		for method, body := range map[string][]byte{
			holds.Acquire: holds.Request{ID: holds.NewID(), Lease: time.Hour + 1}.Append(nil),
			holds.Extend:  holds.Request{ID: id, Lease: time.Hour + 1}.Append(nil),
		} {
			if status, body, err := c.call(t.Context(), method, "k", body); status != http.StatusBadRequest || err != nil {
				t.Errorf("%s with a longer lease: %d %s %v", method, status, body, err)
			}
		}
	})
}

// What the store keeps vouches for no longer lease than it keeps.
func TestTrapWrittenLeaseIsShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, _, keys, toA, _ := heldPair(t)
		id := holds.NewID()
		toA.acquireAs(keys[0], holds.Request{ID: id, Firm: true, Lease: 9600 * time.Millisecond})
		if s.kept(t, a, keys[0]) != 1 {
			t.Fatal("a lease that the session does not vouch for is not written")
		}
		if g := toA.extend(keys[0], holds.Request{ID: id, Lease: 10 * time.Second}); g.Lease != 10*time.Second || g.Surrender > 9500*time.Millisecond {
			t.Errorf("extended to %+v, want a promise of the session's", g)
		}
	})
}

// How many locks the store keeps is said, whatever becomes of them.
func TestWrittenLocksAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b, keys, toA, toB := heldPair(t)
		counted := func(w *site.Worker, locks, written int) {
			t.Helper()
			synctest.Wait() // an answer may come just before the counts are up to date
			expectMetrics(t, w, metrictest.Values{"keyway_worker_locks": float64(locks), "keyway_worker_locks_written": float64(written)})
		}
		ids := []holds.ID{holds.NewID(), holds.NewID(), holds.NewID()}
		toA.acquire(keys[0], ids[0])
		toA.acquireAs(keys[1], holds.Request{ID: ids[1], Lease: longLease})
		toA.acquireAs(keys[2], holds.Request{ID: ids[2], Lease: longLease})
		counted(a, 3, 2)
		toA.extend(keys[0], holds.Request{ID: ids[0], Lease: longLease})
		toA.extend(keys[1], holds.Request{ID: ids[1], Lease: 2 * longLease})
		counted(a, 3, 3)
		toA.release(ids[1])
		counted(a, 2, 2)
		s.Store.(*memstore.Store).Lose()
		time.Sleep(15 * time.Second)
		counted(a, 2, 2)
		leave(t, a, b)
		counted(a, 0, 0)
		counted(b, 2, 2)
		toB.release(ids[0], ids[2])
		counted(b, 0, 0)
	})
}

// A planned move that is not made leaves of a long lease what is left.
func TestTrapLongLocksComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(islandStore)
		a, _, key, toA, _ := pairOf(t, func(cfg *worker.Config) {
			if store.Store == nil {
				store.Store = cfg.Store
				cfg.Store = store
			}
		})
		long, short := holds.NewID(), holds.NewID()
		grant := toA.acquireAs(key, holds.Request{ID: long, Firm: true, Lease: longLease})
		time.Sleep(longLease - 20*time.Second)
		beside := sameAs(toA.ring, key)
		toA.acquire(beside, short)
		store.Set(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = a.LeaveRing(ctx)
		if explain(t, a, key).Served {
			t.Fatal("the partition is not closed")
		}
		store.Set(false)
		if err := a.JoinRing(); err != nil {
			t.Fatal(err)
		}
		awaitServed(t, a, key)
		if o := toA.inspect(key); o.Token != grant.Token || o.Left > 20*time.Second || o.Left < 15*time.Second {
			t.Errorf("%+v is left of a lock with token %d and 20s", o, grant.Token)
		}
		if s := toA.release(short)[0]; s != holder.Held || !free(t, a, beside) {
			t.Errorf("beside it, released: %v, and free: %v", s, free(t, a, beside))
		}
		time.Sleep(21 * time.Second)
		if !free(t, a, key) {
			t.Error("held beyond its lease")
		}
	})
}
