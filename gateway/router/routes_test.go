package router_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/routertest"
	"github.com/keyway-go/keyway/ring"
)

// keyAt returns a key that the ring gives to the worker of that name.
func keyAt(t testing.TB, c *routertest.Cluster, name string) string {
	var cfg ring.Config
	for i := range 10_000 {
		key := fmt.Sprintf("key-%d", i)
		if m, ok := c.View().Owner(cfg.Partition(key)); ok && m.Name == name {
			return key
		}
	}
	t.Fatalf("%s owns nothing", name)
	return ""
}

func TestRequestsGoToTheOwner(t *testing.T) { routertest.EachWay(t, testRequestsGoToTheOwner) }

func testRequestsGoToTheOwner(t *testing.T, front routertest.Way) {
	a, b, d := routertest.NewWorker(t, "a", routertest.Answer("a")), routertest.NewWorker(t, "b", routertest.Answer("b")), routertest.NewWorker(t, "d", routertest.Answer("d"))
	c := routertest.NewCluster(t, a.Member, b.Member, d.Member)
	s := front(t, routertest.New(t, router.Config{Members: c}))
	for _, name := range []string{"a", "b", "d"} {
		if res, body := routertest.Get(t, s, keyAt(t, c, name)); res.StatusCode != 200 || body != name {
			t.Errorf("%d from %q, want %q", res.StatusCode, body, name)
		}
	}
}

func TestHintIsFollowedAndRemembered(t *testing.T) {
	routertest.EachWay(t, testHintIsFollowedAndRemembered)
}

func testHintIsFollowedAndRemembered(t *testing.T, front routertest.Way) {
	b := routertest.NewWorker(t, "b", routertest.Answer("b"))
	a := routertest.NewWorker(t, "a", routertest.NotOwner(b.Member, 7))
	c := routertest.NewCluster(t, a.Member, routertest.Leaving(b.Member))
	rt := routertest.New(t, router.Config{Members: c})
	s := front(t, rt)
	for range 5 {
		if res, body := routertest.Get(t, s, "k"); res.StatusCode != 200 || body != "b" {
			t.Fatalf("%d %q", res.StatusCode, body)
		}
	}
	if a.Hits.Load() != 1 || b.Hits.Load() != 5 {
		t.Errorf("a got %d requests and b %d, want 1 and 5", a.Hits.Load(), b.Hits.Load())
	}
	if st := rt.Stats(); st.Hops != 1 || st.Refusals != 1 || st.Held != 0 {
		t.Errorf("%+v", st)
	}
	route, err := rt.Lookup("k")
	if err != nil || route.Owner.Name != "b" || route.Epoch != 7 {
		t.Errorf("lookup: %+v, %v", route, err)
	}
}

func TestLearnedOwnerIsForgottenOnceItLeaves(t *testing.T) {
	routertest.EachWay(t, testLearnedOwnerIsForgottenOnceItLeaves)
}

func testLearnedOwnerIsForgottenOnceItLeaves(t *testing.T, front routertest.Way) {
	b := routertest.NewWorker(t, "b", routertest.Answer("b"))
	a := routertest.NewWorker(t, "a", routertest.NotOwner(b.Member, 7))
	c := routertest.NewCluster(t, a.Member, routertest.Leaving(b.Member))
	rt := routertest.New(t, router.Config{Members: c})
	s := front(t, rt)
	routertest.Get(t, s, "k")
	var epoch atomic.Value
	a.Set(func(w http.ResponseWriter, r *http.Request) {
		epoch.Store(r.Header.Get("Keyway-Epoch"))
		routertest.Answer("a")(w, r)
	})
	c.Set(t, a.Member)
	if res, body := routertest.Get(t, s, "k"); res.StatusCode != 200 || body != "a" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	if epoch.Load() != "7" {
		t.Errorf("Keyway-Epoch is %q, want the highest one known", epoch.Load())
	}
}

func TestTheAppsOwn421And503PassThrough(t *testing.T) {
	routertest.EachWay(t, testTheAppsOwn421And503PassThrough)
}

func testTheAppsOwn421And503PassThrough(t *testing.T, front routertest.Way) {
	for _, status := range []int{421, 503} {
		a := routertest.NewWorker(t, "a", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Keyway-Owner", "b-life")
			w.Header().Set("Keyway-Epoch", "9")
			http.Error(w, "from the app", status)
		})
		b := routertest.NewWorker(t, "b", routertest.Answer("b"))
		rt := routertest.New(t, router.Config{Members: routertest.NewCluster(t, a.Member, routertest.Leaving(b.Member))})
		res, body := routertest.Get(t, front(t, rt), "k")
		if res.StatusCode != status || body != "from the app\n" || a.Hits.Load() != 1 || b.Hits.Load() != 0 {
			t.Errorf("%d %q, a %d, b %d", res.StatusCode, body, a.Hits.Load(), b.Hits.Load())
		}
	}
}

func TestABusyWorkersAnswerReachesTheClient(t *testing.T) {
	routertest.EachWay(t, testABusyWorkersAnswerReachesTheClient)
}

func testABusyWorkersAnswerReachesTheClient(t *testing.T, front routertest.Way) {
	a := routertest.NewWorker(t, "a", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "3")
		routertest.Refuse("busy", 429)(w, r)
	})
	rt := routertest.New(t, router.Config{Members: routertest.NewCluster(t, a.Member)})
	res, _ := routertest.Get(t, front(t, rt), "k")
	if res.StatusCode != 429 || res.Header.Get("Retry-After") != "3" || a.Hits.Load() != 1 {
		t.Errorf("%d, %d requests", res.StatusCode, a.Hits.Load())
	}
}

func TestLookupWithoutWorkers(t *testing.T) {
	rt := routertest.New(t, router.Config{Members: routertest.NewCluster(t)})
	if route, err := rt.Lookup("k"); err != nil || route.Owner.Name != "" {
		t.Errorf("%+v, %v", route, err)
	}
	if _, err := rt.Lookup("a\nb"); err == nil {
		t.Error("a bad key is looked up")
	}
}
