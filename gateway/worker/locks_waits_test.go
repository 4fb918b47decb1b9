package worker_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/test/site"
)

// Calls that wait for the store have their share of a link, as those that wait for their keys do: the rest is for calls
// that need not wait.
func TestTrapStoreWaitersHaveAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams = 8
		c := site.New(t, 16)
		s := &heldStore{Store: c.Store}
		w := c.StartOwner(func(cfg *worker.Config) { cfg.Store, cfg.StreamsPerLink = s, streams })
		toW, kept := newCaller(t, w), holds.NewID()
		toW.acquireAs("kept", holds.Request{ID: kept, Lease: longLease})
		letGo := s.hold()
		var all sync.WaitGroup
		for i := range 10 * streams {
			all.Go(func() {
				_, _, _ = toW.call(t.Context(), holds.Acquire, fmt.Sprint("long-", i), holds.Request{ID: holds.NewID(), Lease: longLease}.Append(nil))
			})
			all.Go(func() { _, _, _ = toW.call(t.Context(), holds.Release, "", toW.refs([]holds.ID{kept})) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if status, body, err := toW.call(ctx, holds.Acquire, "short", holds.Request{ID: holds.NewID()}.Append(nil)); status != http.StatusOK {
			t.Errorf("a call that needs no store while others wait for it: %d %q %v", status, body, err)
		}
		letGo()
		all.Wait()
		if s := toW.release(kept)[0]; s != holder.Held && s != holder.Gone || !free(t, w, "kept") {
			t.Errorf("after its releases: %v, and free: %v", s, free(t, w, "kept"))
		}
	})
}

// Those who wait for their keys become no more locks of a partition than can move with it, however many they are.
func TestTrapWaitersBecomeNoMoreLocksThanMove(t *testing.T) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const many, most = 400, 250 // of 4,000 bytes each: as many as fit are fewer
			w := site.New(t, 1).Start()
			w.AwaitServing(t, 1)
			c, letGo := newCaller(t, w), make(chan struct{})
			var all sync.WaitGroup
			for i := range many {
				key := fmt.Sprintf("%04000d", i*number(!shared))
				if i == 0 || !shared {
					all.Go(func() {
						_ = w.Do(t.Context(), key, func(gateway.Execution) error {
							<-letGo
							return nil
						})
					})
					synctest.Wait()
				}
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					_, _, _ = c.call(ctx, holds.Acquire, key, holds.Request{ID: holds.NewID(), Shared: shared}.Append(nil))
				})
			}
			synctest.Wait()
			close(letGo)
			all.Wait()
			if held := w.Status().Locks; held == 0 || held > most {
				t.Errorf("shared %v: %d locks, want %d at most", shared, held, most)
			}
			time.Sleep(11 * time.Second)
			if s := w.Status(); s.Holds != 0 || s.BusyKeys != 0 {
				t.Errorf("%d locks and %d busy keys are left", s.Holds, s.BusyKeys)
			}
		})
	}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
