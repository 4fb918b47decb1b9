package router_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

// keyAt returns a key that the ring gives to the worker of that name.
func keyAt(t testing.TB, c *hub.Handle, name string) string {
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

func TestRequestsGoToTheOwner(t *testing.T) { eachWay(t, testRequestsGoToTheOwner) }

func testRequestsGoToTheOwner(t *testing.T, front way) {
	a, b, d := site.NewFake(t, "a", site.Answer("a")), site.NewFake(t, "b", site.Answer("b")), site.NewFake(t, "d", site.Answer("d"))
	c := hub.Of(a.Member, b.Member, d.Member)
	s := front(t, site.NewRouter(t, router.Config{Members: c}))
	for _, name := range []string{"a", "b", "d"} {
		if res, body := site.Get(t, s, keyAt(t, c, name)); res.StatusCode != 200 || body != name {
			t.Errorf("%d from %q, want %q", res.StatusCode, body, name)
		}
	}
}

func TestHintIsFollowedAndRemembered(t *testing.T) {
	eachWay(t, testHintIsFollowedAndRemembered)
}

func testHintIsFollowedAndRemembered(t *testing.T, front way) {
	b := site.NewFake(t, "b", site.Answer("b"))
	a := site.NewFake(t, "a", site.NotOwner(b.Member, 7))
	c := hub.Of(a.Member, site.Leaving(b.Member))
	rt := site.NewRouter(t, router.Config{Members: c})
	s := front(t, rt)
	for range 5 {
		if res, body := site.Get(t, s, "k"); res.StatusCode != 200 || body != "b" {
			t.Fatalf("%d %q", res.StatusCode, body)
		}
	}
	if a.Hits.Load() != 1 || b.Hits.Load() != 5 {
		t.Errorf("a got %d requests and b %d, want 1 and 5", a.Hits.Load(), b.Hits.Load())
	}
	if st := rt.Stats(); st.Hops != 1 || st.Refusals != 1 || st.Held != 0 {
		t.Errorf("%+v", st)
	}
	e, err := rt.Operator().Explain(t.Context(), "k")
	if err != nil || e.Believed.Name != "b" || e.Epoch != 7 {
		t.Errorf("requests go to %+v, epoch %d, %v", e.Believed, e.Epoch, err)
	}
}

func TestLearnedOwnerIsForgottenOnceItLeaves(t *testing.T) {
	eachWay(t, testLearnedOwnerIsForgottenOnceItLeaves)
}

func testLearnedOwnerIsForgottenOnceItLeaves(t *testing.T, front way) {
	b := site.NewFake(t, "b", site.Answer("b"))
	a := site.NewFake(t, "a", site.NotOwner(b.Member, 7))
	c := hub.Of(a.Member, site.Leaving(b.Member))
	rt := site.NewRouter(t, router.Config{Members: c})
	s := front(t, rt)
	site.Get(t, s, "k")
	var epoch atomic.Value
	a.Set(func(w http.ResponseWriter, r *http.Request) {
		epoch.Store(r.Header.Get("Keyway-Epoch"))
		site.Answer("a")(w, r)
	})
	c.Set(a.Member)
	if res, body := site.Get(t, s, "k"); res.StatusCode != 200 || body != "a" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	if epoch.Load() != "7" {
		t.Errorf("Keyway-Epoch is %q, want the highest one known", epoch.Load())
	}
}

func TestTheAppsOwn421And503PassThrough(t *testing.T) {
	eachWay(t, testTheAppsOwn421And503PassThrough)
}

func testTheAppsOwn421And503PassThrough(t *testing.T, front way) {
	for _, status := range []int{421, 503} {
		a := site.NewFake(t, "a", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Keyway-Owner", "b-life")
			w.Header().Set("Keyway-Epoch", "9")
			http.Error(w, "from the app", status)
		})
		b := site.NewFake(t, "b", site.Answer("b"))
		rt := site.NewRouter(t, router.Config{Members: hub.Of(a.Member, site.Leaving(b.Member))})
		res, body := site.Get(t, front(t, rt), "k")
		if res.StatusCode != status || body != "from the app\n" || a.Hits.Load() != 1 || b.Hits.Load() != 0 {
			t.Errorf("%d %q, a %d, b %d", res.StatusCode, body, a.Hits.Load(), b.Hits.Load())
		}
	}
}

func TestABusyWorkersAnswerReachesTheClient(t *testing.T) {
	eachWay(t, testABusyWorkersAnswerReachesTheClient)
}

func testABusyWorkersAnswerReachesTheClient(t *testing.T, front way) {
	a := site.NewFake(t, "a", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "3")
		site.Refuse("busy", 429)(w, r)
	})
	rt := site.NewRouter(t, router.Config{Members: hub.Of(a.Member)})
	res, _ := site.Get(t, front(t, rt), "k")
	if res.StatusCode != 429 || res.Header.Get("Retry-After") != "3" || a.Hits.Load() != 1 {
		t.Errorf("%d, %d requests", res.StatusCode, a.Hits.Load())
	}
}
