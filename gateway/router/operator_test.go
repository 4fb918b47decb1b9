package router_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/keyway-go/keyway/gateway/router"
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
