package router_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/suspects"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/site"
)

// A question for loads leaves no link behind that there was not before: both ends would watch it for ever.
func TestLoadsLeaveNoLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.NewInBubble(t)
		c.App = http.NotFoundHandler()
		w := c.StartServing()
		w.AwaitServing(t, site.Partitions)
		rt := c.NewRouter(router.Config{Dial: c.Network.Dial})
		for _, links := range []float64{0, 1} {
			for range 2 {
				if rows := rt.Operator().Loads(t.Context()); len(rows) != 1 || rows[0].Loads == nil {
					t.Fatalf("the worker tells %+v", rows)
				}
				synctest.Wait()
				if n := metrictest.Gather(t, rt)[`keyway_router_links{worker="w1"}`]; n != links {
					t.Errorf("%v links, want %v", n, links)
				}
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.Header.Set("X-Key", "k")
			rt.ServeHTTP(httptest.NewRecorder(), r)
		}
	})
}

// readOnly is a store that takes no notes while it is set.
type readOnly struct {
	worker.Store
	set atomic.Bool
}

func (s *readOnly) Replace(ctx context.Context, note records.Note, from, to string) (string, error) {
	if s.set.Load() {
		return "", errors.New("the store is full")
	}
	return s.Store.Replace(ctx, note, from, to)
}

// A quarantine is ended by whichever worker answers. A store that fails is named: the key is quarantined all the same.
func TestReleaseByAnyWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.NewInBubble(t)
		c.App = http.NotFoundHandler()
		store := &readOnly{Store: c.Store}
		with := func(cfg *worker.Config) { cfg.Store = store }
		first, second := c.StartServing(with), c.StartServing(with)
		book := suspects.Book{Cases: []suspects.Case{{Key: "k", Since: time.Now().Unix(), Workers: [2]string{"a", "b"}}}}
		kit.Must(c.Store.Replace(t.Context(), records.Suspects, "", book.String()))
		for len(first.Status().Quarantined)+len(second.Status().Quarantined) < 2 {
			time.Sleep(10 * time.Millisecond)
		}
		operator := c.NewRouter(router.Config{Dial: c.Network.Dial}).Operator()
		if err := operator.Release(t.Context(), "other", "test"); !errors.Is(err, status.ErrNotQuarantined) {
			t.Errorf("release of another key: %v", err)
		}
		store.set.Store(true)
		if err := operator.Release(t.Context(), "k", "test"); err == nil || errors.Is(err, status.ErrNotQuarantined) || !strings.Contains(err.Error(), "the store is full") {
			t.Errorf("release while the store is full: %v", err)
		}
		store.set.Store(false)
		c.Sever(first, true)
		if err := operator.Release(t.Context(), "k", "test"); err != nil {
			t.Error(err)
		}
	})
}
