package worker_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// islandStore is a site.CutStore that keeps its worker from moving partitions too.
type islandStore struct{ site.CutStore }

func (s *islandStore) Apply(ctx context.Context, generation, incarnation string, changes []records.Change) ([]records.PartitionState, error) {
	if err := s.Reach(ctx); err != nil {
		return nil, err
	}
	return s.Store.Apply(ctx, generation, incarnation, changes)
}

// A lock that was granted anew elsewhere, after its first owner had lost its session, comes back to that one, which still
// has a lock of the same id from before: the one that comes is the holder's, and its key stays held when the other one ends.
func TestTrapLostLockShadowsNoOther(t *testing.T) {
	for _, lease := range []time.Duration{0, longLease} {
		synctest.Test(t, func(t *testing.T) {
			store := new(islandStore)
			a, b, key, toA, toB := pairOf(t, func(cfg *worker.Config) {
				if store.Store == nil {
					store.Store = cfg.Store
					cfg.Store = store
				}
			})
			id := holds.NewID()
			time.Sleep(time.Second)
			store.Set(true)
			time.Sleep(4500 * time.Millisecond) // it admits for 7 s from its last renewal on
			lost := toA.acquire(key, id)
			granted := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = a.LeaveRing(ctx)
			awaitServed(t, b, key)
			grant := toB.acquireAs(key, holds.Request{ID: id, Lease: lease})
			store.Set(false)
			if err := a.JoinRing(); err != nil {
				t.Fatal(err)
			}
			awaitServed(t, a, key)
			if time.Since(granted) > 9*time.Second {
				t.Fatalf("the lock of before has ended after %v", time.Since(granted))
			}
			if s := toA.renew(id).States[0]; s != holder.Held {
				t.Errorf("renewed where it has come back: %v", s)
			}
			if again := toA.acquireAs(key, holds.Request{ID: id, Lease: lease}); again.Token != grant.Token || grant.Token <= lost.Token {
				t.Errorf("token %d has come back as %d, and was %d before", grant.Token, again.Token, lost.Token)
			}
			time.Sleep(time.Until(granted.Add(11 * time.Second)))
			if toA.renew(id); free(t, a, key) {
				t.Error("free with the end of the lock of before")
			}
			if s := toA.release(id)[0]; s != holder.Held || !free(t, a, key) {
				t.Errorf("released: %v, and free: %v", s, free(t, a, key))
			}
		})
	}
}

// Calls that name one lock are for the same key and the same mode; otherwise they are told what differs.
func TestTrapSameLockIsTheSameRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		c := newCaller(t, w)
		other := sameAs(c.ring, "k")
		for _, shared := range []bool{true, false} {
			id, fails := holds.NewID(), holds.NewID()
			c.acquireAs("k", holds.Request{ID: id, Shared: shared})
			waits := make(chan int, 1)
			go func() {
				status, _, _ := c.call(t.Context(), holds.Acquire, "k", holds.Request{ID: fails, Wait: time.Second}.Append(nil))
				waits <- status
			}()
			synctest.Wait()
			for name, tt := range map[string]struct {
				method, key string
				body        []byte
			}{
				"another mode":                 {holds.Acquire, "k", holds.Request{ID: id, Shared: !shared}.Append(nil)},
				"another key":                  {holds.Acquire, other, holds.Request{ID: id, Shared: shared}.Append(nil)},
				"an extension, another key":    {holds.Extend, other, holds.Request{ID: id}.Append(nil)},
				"another mode, while it waits": {holds.Acquire, "k", holds.Request{ID: fails, Shared: true}.Append(nil)},
			} {
				if status, body, err := c.call(t.Context(), tt.method, tt.key, tt.body); status != http.StatusUnprocessableEntity || err != nil {
					t.Errorf("shared %v, %s: %d %q %v", shared, name, status, body, err)
				}
			}
			if status := <-waits; status != http.StatusConflict {
				t.Errorf("who waited reads %d", status)
			}
			c.acquireAs("k", holds.Request{ID: id, Shared: shared})
			if s := c.release(id); !slices.Equal(s, []holder.Answer{holder.Held}) || !free(t, w, "k") {
				t.Errorf("released: %v", s)
			}
		}
	})
}

// A worker whose session may be over says of no lock that it was held up to its release: others may have had the key.
func TestTrapReleaseNeedsASession(t *testing.T) {
	for _, lease := range []time.Duration{0, longLease} {
		synctest.Test(t, func(t *testing.T) {
			_, a, _, keys, toA, _ := heldPair(t)
			id := holds.NewID()
			toA.acquireAs(keys[0], holds.Request{ID: id, Lease: lease})
			a.EndLease()
			if s := toA.release(id)[0]; s != holder.Elsewhere {
				t.Errorf("released by a worker whose session may be over: %v", s)
			}
			status, body, err := toA.call(t.Context(), holds.Release, keys[0], toA.refs([]holds.ID{id}))
			if r, _ := errors.AsType[*link.RefusedError](err); r == nil {
				t.Errorf("released by who may not own it any more: %d %v %v", status, body, err)
			}
			time.Sleep(3 * time.Second) // it is renewed
			if s := toA.release(id)[0]; s != holder.Held || !free(t, a, keys[0]) {
				t.Errorf("released: %v", s)
			}
		})
	}
}

// An attempt that comes after its request's lock was released locks nothing, also where its partition has moved; another
// request does.
func TestTrapLateAttemptLocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, key, toA, toB := pairOf(t)
		asks := holds.Request{ID: holds.NewID(), Call: 7}
		late := func(c *caller) {
			t.Helper()
			if status, body, err := c.call(t.Context(), holds.Acquire, key, asks.Append(nil)); status != http.StatusGone || err != nil {
				t.Errorf("%d %q %v", status, body, err)
			}
		}
		toA.acquireAs(key, asks)
		toA.release(asks.ID)
		late(toA)
		leave(t, a, b)
		asks.Call = 8
		late(toB)
		if s := toB.release(asks.ID)[0]; s != holder.Held {
			t.Errorf("released: %v", s)
		}
	})
}

// Releases that are remembered are bounded, and leave room for the locks that move.
func TestReleasesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, key, toA, toB := pairOf(t)
		held, id := holds.NewID(), holds.NewID()
		toA.acquire(sameAs(toA.ring, key), held)
		for range 300 {
			id = holds.NewID()
			toA.acquire(key, id)
			toA.release(id)
		}
		leave(t, a, b)
		if s := toB.release(id, held); !slices.Equal(s, []holder.Answer{holder.Held, holder.Held}) {
			t.Errorf("after the move: %v", s)
		}
	})
}

// A lock that was cancelled, since the session was not confirmed in time, is nobody's though the session goes on after all:
// its key is kept to the end of its lease, and who asks again by its id waits for that as others do.
func TestTrapCancelledLockIsNobodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		store := &site.CutStore{Store: c.Store}
		w := c.StartOwner(func(cfg *worker.Config) { cfg.Store = store })
		caller, id, life := newCaller(t, w), holds.NewID(), w.Incarnation()
		lost := caller.acquire("k", id)
		store.Set(true)
		_ = w.Do(t.Context(), "other", func(x gateway.Execution) error {
			<-x.Context().Done()
			return nil
		})
		store.Set(false)
		awaitServed(t, w, "k")
		caller.renew(id)
		for !free(t, w, "other") {
			time.Sleep(10 * time.Millisecond)
		}
		if status, body, err := caller.call(t.Context(), holds.Acquire, "k", holds.Request{ID: id, Try: true}.Append(nil)); status != http.StatusConflict || err != nil {
			t.Errorf("asked for again: %d %q %v", status, body, err)
		}
		if s := caller.release(id)[0]; s != holder.Gone || free(t, w, "k") {
			t.Errorf("released: %v, and free: %v", s, free(t, w, "k"))
		}
		if again := caller.acquire("k", holds.NewID()); again.Token <= lost.Token || w.Incarnation() != life {
			t.Errorf("token %d follows %d", again.Token, lost.Token)
		}
	})
}

// A lock of a lost life keeps its key to the end of its lease, however many lives are lost meanwhile.
func TestTrapLostLocksStayLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 1)
		w := c.StartOwner()
		caller, id := newCaller(t, w), holds.NewID()
		caller.acquire("k", id)
		granted := time.Now()
		for range 2 {
			life := w.Incarnation()
			if err := c.Store.Release(t.Context(), life); err != nil {
				t.Fatal(err)
			}
			for w.Incarnation() == life {
				time.Sleep(10 * time.Millisecond)
			}
			awaitServed(t, w, "k")
		}
		if free(t, w, "k") || caller.renew(id).States[0] != holder.Gone {
			t.Errorf("after %v of its lease the key is free, or its lock is renewed", time.Since(granted))
		}
		time.Sleep(time.Until(granted.Add(11 * time.Second)))
		if !free(t, w, "k") {
			t.Error("held beyond its lease")
		}
	})
}
