package router_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/admin"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

func TestRouterConfigIsChecked(t *testing.T) {
	if _, err := router.New(router.Config{Keys: kit.KeySources(t, "host")}); err == nil || !strings.Contains(err.Error(), "Members") {
		t.Error(err)
	}
	if _, err := router.New(router.Config{Members: hub.Of()}); err == nil || !strings.Contains(err.Error(), "Keys") {
		t.Error(err)
	}
	for field, cfg := range map[string]router.Config{
		"Limits.Hold is -1ns":          {Limits: gateway.Limits{Hold: -1}},
		"Limits.MaxHeld is -1":         {Limits: gateway.Limits{MaxHeld: -1}},
		"Limits.ReplayBytes is -1":     {Limits: gateway.Limits{ReplayBytes: -1}},
		"Config.ClientTimeout is -1s":  {ClientTimeout: -time.Second},
		"Config.MinBodyRate is -1":     {MinBodyRate: -1},
		"Limits.ConnsPerWorker is -1":  {Limits: gateway.Limits{ConnsPerWorker: -1}},
		"Config.MaxConnections is -20": {MaxConnections: -20},
		"Limits.DialTimeout is -1s":    {Limits: gateway.Limits{DialTimeout: -time.Second}},
	} {
		cfg.Members, cfg.Keys = hub.Of(), kit.KeySources(t, "host")
		if _, err := router.New(cfg); err == nil || !strings.HasPrefix(err.Error(), "router: "+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	rt := site.NewRouter(t, router.Config{Members: hub.Of()})
	for range 2 {
		if err := rt.Close(); err != nil {
			t.Errorf("Close is not idempotent: %v", err)
		}
	}
}

// Thousands of clients that have sent half a request hold nobody up.
func TestSlowClientsHurtNobody(t *testing.T) { eachWay(t, testSlowClientsHurtNobody) }

func testSlowClientsHurtNobody(t *testing.T, front way) {
	kit.NoLeaks(t)
	s, rt, w := route(t, front, site.Answer("a"))
	const slow = 500
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for i := range slow {
		c, err := kit.Connect(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		if i%2 == 0 {
			io.WriteString(c, "GET / HTTP/1.1\r\nX-K")
		} else {
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nX-Key: k\r\nContent-Length: 1000\r\n\r\nhalf")
		}
	}
	kit.Eventually(t, "the slow bodies have begun", func() bool { return rt.Stats().Requests == slow/2 })
	for i := range 100 {
		if res, _ := site.Get(t, s, fmt.Sprint(i)); res.StatusCode != 200 {
			t.Fatalf("request %d: %d", i, res.StatusCode)
		}
	}
	if w.Hits.Load() != 100 {
		t.Errorf("%d requests reached the worker: a body that has not arrived holds its key", w.Hits.Load())
	}
	if b := rt.Stats().BodyBytes; b != 0 {
		t.Errorf("%d bytes are accounted for of bodies of which little has come", b)
	}
}

func TestManyClientsAtOnce(t *testing.T) { eachWay(t, testManyClientsAtOnce) }

func testManyClientsAtOnce(t *testing.T, front way) {
	kit.NoLeaks(t)
	ws := []*site.Fake{site.NewFake(t, "a", site.Answer("a")), site.NewFake(t, "b", site.Answer("b")), site.NewFake(t, "d", site.Answer("d"))}
	c := hub.Of(ws[0].Member, ws[1].Member, ws[2].Member)
	s := front(t, site.NewRouter(t, router.Config{Members: c}))
	var mu sync.Mutex
	owners := make(map[string]string)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 50 {
				key := fmt.Sprint("key-", (i+j)%20)
				_, body := site.Get(t, s, key)
				mu.Lock()
				if o, ok := owners[key]; ok && o != body {
					t.Errorf("%s went to %s and %s", key, o, body)
				}
				owners[key] = body
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestAnAttackOnTheMarkers(t *testing.T) { eachWay(t, testAnAttackOnTheMarkers) }

func testAnAttackOnTheMarkers(t *testing.T, front way) {
	b := site.NewFake(t, "b", site.Answer("b"))
	s, rt, _ := route(t, front, site.Answer("a"))
	c, err := kit.Connect(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Key: k\r\nKeyway-Refused: not-owner\r\nKeyway-Owner: %s\r\nKeyway-Epoch: 99\r\n\r\n", b.Incarnation)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != 200 || b.Hits.Load() != 0 || rt.Stats().Refusals != 0 {
		t.Errorf("%v, %v", res, err)
	}
}

func TestAdmin(t *testing.T) {
	gate := ring.Member{Name: "r", Role: ring.RoleRouter, State: ring.StateActive, Addr: "r:1", Gossip: "r:2"}
	c := hub.Of(gate)
	rt := site.NewRouter(t, router.Config{Members: c})
	pages := admin.New(admin.Config{Members: c, Ready: rt.Ready, Operator: rt.Operator()})
	ask := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, nil))
		return w
	}
	if w := ask("/healthz"); w.Code != 200 {
		t.Errorf("healthz: %d", w.Code)
	}
	if w := ask("/readyz"); w.Code != 503 || !strings.Contains(w.Body.String(), "no worker") {
		t.Errorf("readyz without workers: %d %s", w.Code, w.Body)
	}
	a, b := site.Member("a", "a:1"), site.Member("b", "b:1")
	c.Set(gate, a, b)
	if w := ask("/readyz"); w.Code != 200 {
		t.Errorf("readyz: %d %s", w.Code, w.Body)
	}
	var view struct {
		Digest     string
		Partitions int
		Owners     []int
		Workers    []struct {
			Name       string
			Partitions int
		}
		Members []struct {
			Name, Role, State, Address string
			Partitions                 int
		}
	}
	for _, path := range []string{"/ring", "/members"} {
		if err := json.Unmarshal(ask(path).Body.Bytes(), &view); err != nil {
			t.Fatal(err)
		}
	}
	if view.Digest != fmt.Sprintf("%016x", c.View().Digest) || view.Partitions != 4096 || len(view.Members) != 3 || len(view.Owners) != 4096 || len(view.Workers) != 2 {
		t.Fatalf("%+v", view)
	}
	for p, i := range view.Owners {
		if owner, _ := c.View().Owner(p); view.Workers[i].Name != owner.Name {
			t.Fatalf("partition %d is of %s, want %s", p, view.Workers[i].Name, owner.Name)
		}
	}
	if m := view.Members; m[0].Name != "a" || m[0].Role != "worker" || m[0].State != "active" || m[0].Address != "a:1" || m[2].Partitions != 0 || m[0].Partitions+m[1].Partitions != 4096 {
		t.Errorf("%+v", m)
	}
	var found struct {
		Key       string
		Partition int
		Believed  struct{ Name, Address string }
	}
	if err := json.Unmarshal(ask("/explain?key=a%2Fb").Body.Bytes(), &found); err != nil {
		t.Fatal(err)
	}
	p := ring.Config{}.Partition("a/b")
	owner, _ := c.View().Owner(p)
	if found.Key != "a/b" || found.Partition != p || found.Believed.Name != owner.Name || found.Believed.Address != owner.Addr {
		t.Errorf("%+v", found)
	}
	for _, path := range []string{"/explain", "/explain?key=", "/explain?key=%00", "/explain?key=1&key=2"} {
		if w := ask(path); w.Code != 400 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}
