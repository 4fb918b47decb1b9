package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/test/site"
)

// overrun has a worker lose its session while an execution of it holds keys[0], which goes on past its
// cancellation: the next owner grants a lock of the key then, and the partition comes back. It returns that
// lock's grant, and what ends the execution.
func overrun(t *testing.T, ask holds.Request) (grant holds.Grant, end func(), s *heldStore, a *site.Worker, keys []string, toA *caller) {
	s, a, b, keys, toA, toB := heldPair(t)
	stop, ended, began := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = a.Do(t.Context(), keys[0], func(gateway.Execution) error {
			close(began)
			<-stop
			return nil
		})
	}()
	end = func() {
		close(stop)
		<-ended
	}
	<-began
	first := a.Incarnation()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_ = a.LeaveRing(ctx) // which says that it runs still
	awaitServed(t, b, keys[0])
	if free(t, b, keys[0]) {
		t.Error("the next owner grants a key that runs at the former one")
	}
	if err := s.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	grant = toB.acquireAs(keys[0], ask)
	if err := a.JoinRing(); err != nil {
		t.Fatal(err)
	}
	awaitServed(t, a, keys[0])
	return grant, end, s, a, keys, toA
}

// A lock that was granted elsewhere comes to a worker where an execution from before runs on past its
// cancellation: it is a lock as any other, and nobody else gets its key before both have ended.
func TestTrapLocksComeBesideAnOverrun(t *testing.T) {
	for _, lockFirst := range []bool{true, false} {
		for _, lease := range []time.Duration{0, longLease} {
			synctest.Test(t, func(t *testing.T) {
				id := holds.NewID()
				grant, end, s, a, keys, toA := overrun(t, holds.Request{ID: id, Lease: lease})
				if h := explain(t, a, keys[0]).Holder; h == nil || h.Token != grant.Token || h.Kind != "hold" {
					t.Errorf("holder: %+v, want the lock with token %d", h, grant.Token)
				}
				if g := toA.extend(keys[0], holds.Request{ID: id, Lease: lease}); g.Token != grant.Token {
					t.Errorf("token %d became %d", grant.Token, g.Token)
				}
				release := func() {
					if s := toA.release(id)[0]; s != holder.Held {
						t.Errorf("released: %v", s)
					}
				}
				first, second := end, release
				if lockFirst {
					first, second = release, end
				}
				first()
				if free(t, a, keys[0]) {
					t.Errorf("free before both have ended, the lock first: %v", lockFirst)
				}
				if !lockFirst && toA.renew(id).States[0] != holder.Held {
					t.Error("the lock has ended with the execution")
				}
				second()
				if !free(t, a, keys[0]) || s.kept(t, a, keys[0]) != 0 {
					t.Errorf("free: %v, and the store keeps %d locks", free(t, a, keys[0]), s.kept(t, a, keys[0]))
				}
			})
		}
	}
}

// Nobody joins a shared lock while an execution from before runs with its key.
func TestTrapNobodyJoinsBesideAnOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := holds.NewID()
		_, end, _, _, keys, toA := overrun(t, holds.Request{ID: id, Shared: true})
		other := toA.ask(keys[0], "other", true)
		if other.granted() != 0 {
			t.Error("joined while the execution runs")
		}
		end()
		toA.release(id)
		if other.granted() == 0 {
			t.Error("not granted though both have ended")
		}
	})
}
