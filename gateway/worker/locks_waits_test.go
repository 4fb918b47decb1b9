package worker_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/workertest"
)

// Calls that wait for the store have their share of a link, as those that wait for their keys do: the rest is for calls
// that need not wait.
func TestTrapStoreWaitersHaveAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams = 8
		c := workertest.New(t, 16)
		s := &heldStore{Store: c.Store}
		w := c.Start(func(cfg *worker.Config) { cfg.Store, cfg.StreamsPerLink = s, streams })
		w.AwaitServing(t, 16)
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
		if s := toW.release(kept)[0]; s != holds.Held && s != holds.Gone || !free(t, w, "kept") {
			t.Errorf("after its releases: %v, and free: %v", s, free(t, w, "kept"))
		}
	})
}
