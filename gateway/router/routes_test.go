package router_test

import (
	"fmt"
	"net/http"
	"strings"
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

func TestOnlyHigherEpochsOfKnownWorkersAreFollowed(t *testing.T) {
	routertest.EachWay(t, testOnlyHigherEpochsOfKnownWorkersAreFollowed)
}

func testOnlyHigherEpochsOfKnownWorkersAreFollowed(t *testing.T, front routertest.Way) {
	b := routertest.NewWorker(t, "b", routertest.Answer("b"))
	gate := ring.Member{Name: "r", Incarnation: "r-life", Role: ring.RoleRouter, State: ring.StateActive, Addr: b.Addr}
	stranger := routertest.Member("stranger", b.URL)
	for name, hint := range map[string]http.HandlerFunc{
		"epoch 0":             routertest.NotOwner(b.Member, 0),
		"negative epoch":      routertest.NotOwner(b.Member, -1),
		"no hint":             routertest.Refuse("not-owner", 421),
		"unknown incarnation": routertest.NotOwner(stranger, 9),
		"not a worker":        routertest.NotOwner(gate, 9),
		"bad epoch": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Keyway-Epoch", "x")
			w.Header().Set("Keyway-Owner", b.Incarnation)
			routertest.Refuse("not-owner", 421)(w, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := routertest.NewWorker(t, "a", hint)
			rt := routertest.New(t, router.Config{Members: routertest.NewCluster(t, a.Member, routertest.Leaving(b.Member), gate), Hold: -1})
			res, body := routertest.Get(t, front(t, rt), "k")
			if res.StatusCode != 503 || !strings.Contains(body, "no reachable owner") || b.Hits.Load() != 0 {
				t.Errorf("%d %q, %d requests to the one who was named", res.StatusCode, body, b.Hits.Load())
			}
		})
	}
}

// An epoch has one owner: a second one of the same epoch is not believed.
func TestAHintOfTheLearnedEpochIsNotFollowed(t *testing.T) {
	routertest.EachWay(t, testAHintOfTheLearnedEpochIsNotFollowed)
}

func testAHintOfTheLearnedEpochIsNotFollowed(t *testing.T, front routertest.Way) {
	b, d := routertest.NewWorker(t, "b", routertest.Answer("b")), routertest.NewWorker(t, "d", routertest.Answer("d"))
	a := routertest.NewWorker(t, "a", routertest.NotOwner(b.Member, 7))
	rt := routertest.New(t, router.Config{Members: routertest.NewCluster(t, a.Member, routertest.Leaving(b.Member), routertest.Leaving(d.Member)), Hold: -1})
	s := front(t, rt)
	routertest.Get(t, s, "k")
	for _, epoch := range []int64{6, 7} {
		b.Set(routertest.NotOwner(d.Member, epoch))
		if res, body := routertest.Get(t, s, "k"); res.StatusCode != 503 || d.Hits.Load() != 0 {
			t.Errorf("epoch %d: %d %q", epoch, res.StatusCode, body)
		}
	}
	b.Set(routertest.NotOwner(d.Member, 8))
	if res, body := routertest.Get(t, s, "k"); res.StatusCode != 200 || body != "d" {
		t.Errorf("epoch 8: %d %q", res.StatusCode, body)
	}
}

// Each worker names the next one with a lower, equal or higher epoch.
func TestHopsAreBounded(t *testing.T) { routertest.EachWay(t, testHopsAreBounded) }

func testHopsAreBounded(t *testing.T, front routertest.Way) {
	ws := make([]*routertest.Worker, 6)
	for i := range ws {
		ws[i] = routertest.NewWorker(t, fmt.Sprint("w", i), routertest.Answer(fmt.Sprint("w", i)))
	}
	for i := range 5 {
		ws[i].Set(routertest.NotOwner(ws[i+1].Member, int64(10+i)))
	}
	members := []ring.Member{ws[0].Member}
	for _, w := range ws[1:] {
		members = append(members, routertest.Leaving(w.Member))
	}
	c := routertest.NewCluster(t, members...)
	rt := routertest.New(t, router.Config{Members: c, Hold: -1})
	s := front(t, rt)
	res, _ := routertest.Get(t, s, "k")
	if res.StatusCode != 503 || ws[3].Hits.Load() != 1 || ws[4].Hits.Load() != 0 {
		t.Errorf("%d; the 4th worker got %d requests, the 5th %d; want 503, 1, 0", res.StatusCode, ws[3].Hits.Load(), ws[4].Hits.Load())
	}
	if res, body := routertest.Get(t, s, "k"); body != "w5" {
		t.Errorf("the next request starts from what was learned: %d %q", res.StatusCode, body)
	}
}

// a says b, b says a, each with a higher epoch: the router must come to rest.
func TestFlappingOwnersAreFollowedByEpoch(t *testing.T) {
	routertest.EachWay(t, testFlappingOwnersAreFollowedByEpoch)
}

func testFlappingOwnersAreFollowedByEpoch(t *testing.T, front routertest.Way) {
	a, b := routertest.NewWorker(t, "a", nil), routertest.NewWorker(t, "b", nil)
	var epoch atomic.Int64
	a.Set(func(w http.ResponseWriter, r *http.Request) {
		if epoch.Load() >= 2 {
			routertest.Answer("a")(w, r)
			return
		}
		routertest.NotOwner(b.Member, epoch.Add(1))(w, r)
	})
	b.Set(func(w http.ResponseWriter, r *http.Request) { routertest.NotOwner(a.Member, epoch.Add(1))(w, r) })
	rt := routertest.New(t, router.Config{Members: routertest.NewCluster(t, a.Member, routertest.Leaving(b.Member)), Hold: -1})
	res, body := routertest.Get(t, front(t, rt), "k")
	if res.StatusCode != 200 || body != "a" || a.Hits.Load() != 2 || b.Hits.Load() != 1 {
		t.Errorf("%d %q, a %d, b %d", res.StatusCode, body, a.Hits.Load(), b.Hits.Load())
	}
}

func TestLearnedOwnerThatFailsIsNotTheOnlyTry(t *testing.T) {
	routertest.EachWay(t, testLearnedOwnerThatFailsIsNotTheOnlyTry)
}

func testLearnedOwnerThatFailsIsNotTheOnlyTry(t *testing.T, front routertest.Way) {
	b := routertest.NewWorker(t, "b", routertest.Answer("b"))
	a := routertest.NewWorker(t, "a", routertest.NotOwner(b.Member, 7))
	rt := routertest.New(t, router.Config{Members: routertest.NewCluster(t, a.Member, routertest.Leaving(b.Member)), Hold: -1})
	s := front(t, rt)
	routertest.Get(t, s, "k")
	b.Set(routertest.Refuse("unavailable", 503))
	a.Set(routertest.Answer("a"))
	if res, body := routertest.Get(t, s, "k"); res.StatusCode != 200 || body != "a" {
		t.Errorf("%d %q", res.StatusCode, body)
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
