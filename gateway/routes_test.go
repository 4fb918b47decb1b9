package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/ring"
)

// keyAt returns a key that the ring gives to the worker of that name.
func keyAt(t testing.TB, c *cluster, name string) string {
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

func TestRequestsGoToTheOwner(t *testing.T) { bothWays(t, testRequestsGoToTheOwner) }

func testRequestsGoToTheOwner(t *testing.T, front way) {
	a, b, d := newWorker(t, "a", answer("a")), newWorker(t, "b", answer("b")), newWorker(t, "d", answer("d"))
	c := newCluster(t, a.Member, b.Member, d.Member)
	s := front(t, newRouter(t, gateway.RouterConfig{Members: c}))
	for _, name := range []string{"a", "b", "d"} {
		if res, body := get(t, s, keyAt(t, c, name)); res.StatusCode != 200 || body != name {
			t.Errorf("%d from %q, want %q", res.StatusCode, body, name)
		}
	}
}

func TestHintIsFollowedAndRemembered(t *testing.T) { bothWays(t, testHintIsFollowedAndRemembered) }

func testHintIsFollowedAndRemembered(t *testing.T, front way) {
	b := newWorker(t, "b", answer("b"))
	a := newWorker(t, "a", notOwner(b.Member, 7))
	c := newCluster(t, a.Member, leaving(b.Member))
	rt := newRouter(t, gateway.RouterConfig{Members: c})
	s := front(t, rt)
	for range 5 {
		if res, body := get(t, s, "k"); res.StatusCode != 200 || body != "b" {
			t.Fatalf("%d %q", res.StatusCode, body)
		}
	}
	if a.hits.Load() != 1 || b.hits.Load() != 5 {
		t.Errorf("a got %d requests and b %d, want 1 and 5", a.hits.Load(), b.hits.Load())
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
	bothWays(t, testLearnedOwnerIsForgottenOnceItLeaves)
}

func testLearnedOwnerIsForgottenOnceItLeaves(t *testing.T, front way) {
	b := newWorker(t, "b", answer("b"))
	a := newWorker(t, "a", notOwner(b.Member, 7))
	c := newCluster(t, a.Member, leaving(b.Member))
	rt := newRouter(t, gateway.RouterConfig{Members: c})
	s := front(t, rt)
	get(t, s, "k")
	var epoch atomic.Value
	a.set(func(w http.ResponseWriter, r *http.Request) {
		epoch.Store(r.Header.Get("Keyway-Epoch"))
		answer("a")(w, r)
	})
	c.set(t, a.Member)
	if res, body := get(t, s, "k"); res.StatusCode != 200 || body != "a" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	if epoch.Load() != "7" {
		t.Errorf("Keyway-Epoch is %q, want the highest one known", epoch.Load())
	}
}

func TestOnlyHigherEpochsOfKnownWorkersAreFollowed(t *testing.T) {
	bothWays(t, testOnlyHigherEpochsOfKnownWorkersAreFollowed)
}

func testOnlyHigherEpochsOfKnownWorkersAreFollowed(t *testing.T, front way) {
	b := newWorker(t, "b", answer("b"))
	router := ring.Member{Name: "r", Incarnation: "r-life", Role: ring.RoleRouter, State: ring.StateActive, Addr: b.Addr}
	stranger := worker("stranger", b.URL)
	for name, hint := range map[string]http.HandlerFunc{
		"epoch 0":             notOwner(b.Member, 0),
		"negative epoch":      notOwner(b.Member, -1),
		"no hint":             refuse("not-owner", 421),
		"unknown incarnation": notOwner(stranger, 9),
		"not a worker":        notOwner(router, 9),
		"bad epoch": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Keyway-Epoch", "x")
			w.Header().Set("Keyway-Owner", b.Incarnation)
			refuse("not-owner", 421)(w, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newWorker(t, "a", hint)
			rt := newRouter(t, gateway.RouterConfig{Members: newCluster(t, a.Member, leaving(b.Member), router), Hold: -1})
			res, body := get(t, front(t, rt), "k")
			if res.StatusCode != 503 || !strings.Contains(body, "no reachable owner") || b.hits.Load() != 0 {
				t.Errorf("%d %q, %d requests to the one who was named", res.StatusCode, body, b.hits.Load())
			}
		})
	}
}

// An epoch has one owner: a second one of the same epoch is not believed.
func TestAHintOfTheLearnedEpochIsNotFollowed(t *testing.T) {
	bothWays(t, testAHintOfTheLearnedEpochIsNotFollowed)
}

func testAHintOfTheLearnedEpochIsNotFollowed(t *testing.T, front way) {
	b, d := newWorker(t, "b", answer("b")), newWorker(t, "d", answer("d"))
	a := newWorker(t, "a", notOwner(b.Member, 7))
	rt := newRouter(t, gateway.RouterConfig{Members: newCluster(t, a.Member, leaving(b.Member), leaving(d.Member)), Hold: -1})
	s := front(t, rt)
	get(t, s, "k")
	for _, epoch := range []int64{6, 7} {
		b.set(notOwner(d.Member, epoch))
		if res, body := get(t, s, "k"); res.StatusCode != 503 || d.hits.Load() != 0 {
			t.Errorf("epoch %d: %d %q", epoch, res.StatusCode, body)
		}
	}
	b.set(notOwner(d.Member, 8))
	if res, body := get(t, s, "k"); res.StatusCode != 200 || body != "d" {
		t.Errorf("epoch 8: %d %q", res.StatusCode, body)
	}
}

// Each worker names the next one with a lower, equal or higher epoch.
func TestHopsAreBounded(t *testing.T) { bothWays(t, testHopsAreBounded) }

func testHopsAreBounded(t *testing.T, front way) {
	ws := make([]*fakeWorker, 6)
	for i := range ws {
		ws[i] = newWorker(t, fmt.Sprint("w", i), answer(fmt.Sprint("w", i)))
	}
	for i := range 5 {
		ws[i].set(notOwner(ws[i+1].Member, int64(10+i)))
	}
	members := []ring.Member{ws[0].Member}
	for _, w := range ws[1:] {
		members = append(members, leaving(w.Member))
	}
	c := newCluster(t, members...)
	rt := newRouter(t, gateway.RouterConfig{Members: c, Hold: -1})
	s := front(t, rt)
	res, _ := get(t, s, "k")
	if res.StatusCode != 503 || ws[3].hits.Load() != 1 || ws[4].hits.Load() != 0 {
		t.Errorf("%d; the 4th worker got %d requests, the 5th %d; want 503, 1, 0", res.StatusCode, ws[3].hits.Load(), ws[4].hits.Load())
	}
	if res, body := get(t, s, "k"); body != "w5" {
		t.Errorf("the next request starts from what was learned: %d %q", res.StatusCode, body)
	}
}

// a says b, b says a, each with a higher epoch: the router must come to rest.
func TestFlappingOwnersAreFollowedByEpoch(t *testing.T) {
	bothWays(t, testFlappingOwnersAreFollowedByEpoch)
}

func testFlappingOwnersAreFollowedByEpoch(t *testing.T, front way) {
	a, b := newWorker(t, "a", nil), newWorker(t, "b", nil)
	var epoch atomic.Int64
	a.set(func(w http.ResponseWriter, r *http.Request) {
		if epoch.Load() >= 2 {
			answer("a")(w, r)
			return
		}
		notOwner(b.Member, epoch.Add(1))(w, r)
	})
	b.set(func(w http.ResponseWriter, r *http.Request) { notOwner(a.Member, epoch.Add(1))(w, r) })
	rt := newRouter(t, gateway.RouterConfig{Members: newCluster(t, a.Member, leaving(b.Member)), Hold: -1})
	res, body := get(t, front(t, rt), "k")
	if res.StatusCode != 200 || body != "a" || a.hits.Load() != 2 || b.hits.Load() != 1 {
		t.Errorf("%d %q, a %d, b %d", res.StatusCode, body, a.hits.Load(), b.hits.Load())
	}
}

func TestLearnedOwnerThatFailsIsNotTheOnlyTry(t *testing.T) {
	bothWays(t, testLearnedOwnerThatFailsIsNotTheOnlyTry)
}

func testLearnedOwnerThatFailsIsNotTheOnlyTry(t *testing.T, front way) {
	b := newWorker(t, "b", answer("b"))
	a := newWorker(t, "a", notOwner(b.Member, 7))
	rt := newRouter(t, gateway.RouterConfig{Members: newCluster(t, a.Member, leaving(b.Member)), Hold: -1})
	s := front(t, rt)
	get(t, s, "k")
	b.set(refuse("unavailable", 503))
	a.set(answer("a"))
	if res, body := get(t, s, "k"); res.StatusCode != 200 || body != "a" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

func TestTheAppsOwn421And503PassThrough(t *testing.T) {
	bothWays(t, testTheAppsOwn421And503PassThrough)
}

func testTheAppsOwn421And503PassThrough(t *testing.T, front way) {
	for _, status := range []int{421, 503} {
		a := newWorker(t, "a", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Keyway-Owner", "b-life")
			w.Header().Set("Keyway-Epoch", "9")
			http.Error(w, "from the app", status)
		})
		b := newWorker(t, "b", answer("b"))
		rt := newRouter(t, gateway.RouterConfig{Members: newCluster(t, a.Member, leaving(b.Member))})
		res, body := get(t, front(t, rt), "k")
		if res.StatusCode != status || body != "from the app\n" || a.hits.Load() != 1 || b.hits.Load() != 0 {
			t.Errorf("%d %q, a %d, b %d", res.StatusCode, body, a.hits.Load(), b.hits.Load())
		}
	}
}

func TestABusyWorkersAnswerReachesTheClient(t *testing.T) {
	bothWays(t, testABusyWorkersAnswerReachesTheClient)
}

func testABusyWorkersAnswerReachesTheClient(t *testing.T, front way) {
	a := newWorker(t, "a", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "3")
		refuse("busy", 429)(w, r)
	})
	rt := newRouter(t, gateway.RouterConfig{Members: newCluster(t, a.Member)})
	res, _ := get(t, front(t, rt), "k")
	if res.StatusCode != 429 || res.Header.Get("Retry-After") != "3" || a.hits.Load() != 1 {
		t.Errorf("%d, %d requests", res.StatusCode, a.hits.Load())
	}
}

func TestLookupWithoutWorkers(t *testing.T) {
	rt := newRouter(t, gateway.RouterConfig{Members: newCluster(t)})
	if route, err := rt.Lookup("k"); err != nil || route.Owner.Name != "" {
		t.Errorf("%+v, %v", route, err)
	}
	if _, err := rt.Lookup("a\nb"); err == nil {
		t.Error("a bad key is looked up")
	}
}
