package router_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/site"
)

// counts tells what do has changed in the router's metrics, once that is what is wanted
// or does not become so.
func counts(t *testing.T, rt *router.Router, do func(), want metrictest.Values) {
	t.Helper()
	before := metrictest.Gather(t, rt)
	do()
	var changed metrictest.Values
	kit.Eventually(t, fmt.Sprint("the metrics show ", want), func() bool {
		changed = metrictest.Gather(t, rt).Changed(before)
		for name, n := range want {
			if changed[name] != n {
				return false
			}
		}
		return true
	})
}

// requests is the name of the counter of requests.
func requests(route, code, way string) string {
	return fmt.Sprintf("keyway_router_requests_total{code=%q,route=%q,way=%q}", code, route, way)
}

func TestMetricsOfRequests(t *testing.T) {
	eachWay(t, testMetricsOfRequests)
}

func testMetricsOfRequests(t *testing.T, front way) {
	app := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		status := http.StatusOK
		fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.WriteHeader(status)
		if status != http.StatusNotModified {
			fmt.Fprintf(w, "got %d", len(body))
		}
	}
	up := site.NewFake(t, "upstream", app)
	config := func(c *router.Config) {
		c.Keys, c.Routes = nil, site.Routes(t,
			"name: orders, match: {path: '/{status}/orders'}, key: 'header:X-Key'",
			"name: few, match: {path: /few}, key: 'header:X-Key', rate: {per-route: 1/h}",
			"name: site, match: {path: '/site/{rest...}'}, key: 'header:X-Key', without-key: '"+up.URL+"'",
		)
	}
	linked, _ := throughLink(t, app, config)
	plainWorker := site.NewFake(t, "plain", app)
	cfg := router.Config{Members: hub.Of(plainWorker.Member)}
	config(&cfg)
	plain := site.NewRouter(t, cfg)
	send := func(t *testing.T, s *site.Front, method, path, key string, body io.Reader) {
		req := kit.Must(http.NewRequestWithContext(t.Context(), method, s.URL+path, body))
		if key != "" {
			req.Header.Set("X-Key", key)
		}
		kit.Do(t, s.HTTP, req)
	}
	for name, tt := range map[string]struct {
		rt           *router.Router
		method, path string
		key, body    string
		want         metrictest.Values
	}{
		"link": {linked, "GET", "/200/orders", "k", "", metrictest.Values{
			requests("orders", "2xx", "link"):                              1,
			`keyway_router_request_duration_seconds_count{route="orders"}`: 1,
			`keyway_router_sent_bytes_total{route="orders"}`:               5,
		}},
		"a body": {linked, "POST", "/200/orders", "k", strings.Repeat("x", 100), metrictest.Values{
			requests("orders", "2xx", "link"):                    1,
			`keyway_router_received_bytes_total{route="orders"}`: 100,
			`keyway_router_sent_bytes_total{route="orders"}`:     7,
		}},
		"a large body": {linked, "POST", "/200/orders", "k", strings.Repeat("x", 100_000), metrictest.Values{
			requests("orders", "2xx", "link"):                    1,
			`keyway_router_received_bytes_total{route="orders"}`: 100_000,
		}},
		"redirect":     {linked, "GET", "/304/orders", "k", "", metrictest.Values{requests("orders", "3xx", "link"): 1}},
		"not found":    {linked, "GET", "/404/orders", "k", "", metrictest.Values{requests("orders", "4xx", "link"): 1}},
		"server error": {linked, "GET", "/500/orders", "k", "", metrictest.Values{requests("orders", "5xx", "link"): 1}},
		"plain":        {plain, "GET", "/200/orders", "k", "", metrictest.Values{requests("orders", "2xx", "http1"): 1}},
		"large body":   {plain, "POST", "/200/orders", "k", strings.Repeat("x", 100_000), metrictest.Values{requests("orders", "2xx", "http1"): 1}},
		"upstream":     {linked, "GET", "/site/200", "", "", metrictest.Values{requests("site", "2xx", "upstream"): 1}},
		"no key": {linked, "GET", "/200/orders", "", "", metrictest.Values{
			requests("orders", "4xx", "router"):           1,
			`keyway_router_problems_total{kind="no-key"}`: 1,
		}},
		"no route": {linked, "GET", "/nothing", "k", "", metrictest.Values{
			requests("other", "4xx", "router"):              1,
			`keyway_router_problems_total{kind="no-route"}`: 1,
		}},
		"bad form": {linked, "TRACE", "/200/orders", "k", "", metrictest.Values{
			requests("other", "4xx", "router"):           1,
			`keyway_router_problems_total{kind="trace"}`: 1,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := front(t, tt.rt)
			var body io.Reader
			if tt.body != "" {
				body = strings.NewReader(tt.body)
			}
			counts(t, tt.rt, func() { send(t, s, tt.method, tt.path, tt.key, body) }, tt.want)
			kit.Eventually(t, "no request is under way", func() bool {
				return metrictest.Gather(t, tt.rt)["keyway_router_requests_in_flight"] == 0
			})
		})
	}
	s := front(t, linked)
	send(t, s, "GET", "/few", "k", nil)
	counts(t, linked, func() { send(t, s, "GET", "/few", "k", nil) }, metrictest.Values{
		requests("few", "4xx", "router"):                  1,
		`keyway_router_problems_total{kind="route-rate"}`: 1,
	})
}

// A table that takes the place of another one goes on counting where that has stopped.
func TestMetricsOutliveTables(t *testing.T) {
	rt, _ := throughLink(t, echo, func(c *router.Config) {
		c.Keys, c.Routes = nil, site.Routes(t, "name: a, key: 'header:X-Key'")
	})
	s := site.ThroughServer(t, rt)
	counts(t, rt, func() {
		site.Get(t, s, "k")
		if err := rt.SetRoutes(site.Routes(t, "name: a, key: 'header:X-Key', hold: 1s")); err != nil {
			t.Fatal(err)
		}
		site.Get(t, s, "k")
	}, metrictest.Values{requests("a", "2xx", "link"): 2})
	if n := rt.Stats().Requests; n != 2 {
		t.Errorf("%d requests by Stats, want 2", n)
	}
}

// Whatever clients send, there are no more series than the routes make.
func TestMetricsAreBounded(t *testing.T) {
	rt, _ := throughLink(t, echo)
	for _, front := range []way{site.ThroughServer, throughNetHTTP} {
		s := front(t, rt)
		send := func(i int) {
			req := kit.Must(http.NewRequestWithContext(t.Context(), fmt.Sprintf("M%d", i), fmt.Sprintf("%s/%d?q=%d", s.URL, i, i), nil))
			req.Host = fmt.Sprintf("h%d.example", i)
			req.Header.Set("X-Key", fmt.Sprint(i))
			req.Header.Set("User-Agent", fmt.Sprint(i))
			kit.Do(t, s.HTTP, req)
		}
		answered := requests("default", "2xx", "link")
		counts(t, rt, func() { send(0) }, metrictest.Values{answered: 1})
		before := len(metrictest.Gather(t, rt))
		counts(t, rt, func() {
			for i := range 1000 {
				send(i)
			}
		}, metrictest.Values{answered: 1000})
		if n := len(metrictest.Gather(t, rt)); n != before {
			t.Errorf("%d series, and %d after 1000 requests", before, n)
		}
	}
}

func TestMetricsOfClientsThatLeave(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		entered := make(chan struct{})
		rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
		})
		s := front(t, rt)
		counts(t, rt, func() {
			ctx, cancel := context.WithCancel(t.Context())
			req := kit.Must(http.NewRequestWithContext(ctx, "GET", s.URL, nil))
			req.Header.Set("X-Key", "k")
			defer cancel()
			go func() { <-entered; cancel() }()
			if res, err := s.HTTP.Do(req); err == nil {
				res.Body.Close()
				t.Error("the request was answered")
			}
		}, metrictest.Values{requests("default", "499", "router"): 1})
	})
}

// The way of requests to their owners: refusals, hints, attempts that have not started,
// and waiting.
func TestMetricsOfRouting(t *testing.T) {
	b := site.NewFake(t, "b", site.Answer("b"))
	a := site.NewFake(t, "a", site.NotOwner(b.Member, 7))
	rt := site.NewRouter(t, router.Config{Members: hub.Of(a.Member, site.Leaving(b.Member))})
	s := site.ThroughServer(t, rt)
	counts(t, rt, func() { site.Get(t, s, "k") }, metrictest.Values{
		"keyway_router_misroutes_total":      1,
		"keyway_router_hints_followed_total": 1,
	})

	gone := site.NewFake(t, "gone", site.Answer(""))
	gone.Close()
	rt = site.NewRouter(t, router.Config{Members: hub.Of(gone.Member), Limits: gateway.Limits{NoHold: true}})
	s = site.ThroughServer(t, rt)
	counts(t, rt, func() { site.Get(t, s, "k") }, metrictest.Values{
		"keyway_router_retries_total":                   1,
		`keyway_router_problems_total{kind="no-owner"}`: 1,
		requests("default", "5xx", "router"):            1,
	})
}

func TestMetricsOfHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := site.NewRouter(t, router.Config{Members: hub.Of(), Limits: gateway.Limits{Hold: time.Second}})
		done := make(chan struct{})
		go func() {
			defer close(done)
			req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", "http://h/", nil))
			req.RemoteAddr = "192.0.2.1:1"
			req.Header.Set("X-Key", "k")
			rt.ServeHTTP(httptest.NewRecorder(), req)
		}()
		synctest.Wait()
		now := metrictest.Gather(t, rt)
		if now["keyway_router_held_requests"] != 1 || now["keyway_router_requests_in_flight"] != 1 || now["keyway_router_hold_duration_seconds_count"] != 0 {
			t.Errorf("while it waits: %v", now)
		}
		<-done
		now = metrictest.Gather(t, rt)
		if now["keyway_router_held_requests"] != 0 || now["keyway_router_hold_duration_seconds_count"] != 1 || now["keyway_router_hold_duration_seconds_sum"] != 1 {
			t.Errorf("afterwards: %v", now)
		}
	})
}

func TestMetricsOfConnections(t *testing.T) {
	app := newTunnelApp()
	rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			app.ServeHTTP(rw, r)
		}
	}, func(c *router.Config) { c.MaxConnections = 77 })
	base, _ := frontOf(t, rt)
	h1 := `keyway_router_connections{protocol="http/1.1"}`
	h2 := `keyway_router_connections{protocol="http/2"}`
	counts(t, rt, func() { kit.GreetH2(t, kit.Dial(t, base)) }, metrictest.Values{h2: 1, "keyway_router_connections_accepted_total": 1})
	var conn net.Conn
	counts(t, rt, func() {
		conn = kit.Dial(t, base)
		kit.SendRaw(t, conn, "/", "k")
	}, metrictest.Values{
		h1: 1, requests("default", "2xx", "link"): 1,
	})
	counts(t, rt, func() { conn.Close() }, metrictest.Values{h1: -1})
	var tunnel net.Conn
	counts(t, rt, func() { tunnel, _ = openTunnel(t, base, "websocket") }, metrictest.Values{
		h1: 1, "keyway_router_tunnels": 1, requests("default", "1xx", "relay"): 1,
		`keyway_router_request_duration_seconds_count{route="default"}`: 1,
	})
	counts(t, rt, func() { tunnel.Close() }, metrictest.Values{h1: -1, "keyway_router_tunnels": -1, requests("default", "1xx", "relay"): 0})
	if n := metrictest.Gather(t, rt)["keyway_router_max_connections"]; n != 77 {
		t.Errorf("%v connections are allowed, want 77", n)
	}
}

// A client's connection that is one too many is counted.
func TestMetricsOfRefusedConnections(t *testing.T) {
	rt, _ := throughLink(t, echo, func(c *router.Config) { c.ProxyProtocol, c.MaxConnectionsPerClient = loopback, 1 })
	base, _ := frontOf(t, rt)
	open := func() {
		conn := kit.Dial(t, base)
		io.WriteString(conn, "PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n")
	}
	counts(t, rt, open, metrictest.Values{"keyway_router_connections_accepted_total": 1, `keyway_router_connections{protocol="http/1.1"}`: 1})
	counts(t, rt, open, metrictest.Values{"keyway_router_connections_accepted_total": 1, "keyway_router_connections_refused_total": 1})
}

func TestMetricsOfLinks(t *testing.T) {
	app := &kit.Blocking{Release: make(chan struct{})}
	rt, w := throughLink(t, app.ServeHTTP)
	base, _ := frontOf(t, rt)
	owner := w.Member.Self().Name
	requests := fmt.Sprintf("keyway_router_link_requests{worker=%q}", owner)
	links := fmt.Sprintf("keyway_router_links{worker=%q}", owner)
	conn := kit.Dial(t, base)
	var in *bufio.Reader
	counts(t, rt, func() { in = kit.SendRaw(t, conn, "/block", "k") }, metrictest.Values{requests: 1, links: 1})
	counts(t, rt, func() { close(app.Release); kit.ReadServed(t, in) }, metrictest.Values{requests: -1, links: 0})
}

// Metrics can be collected at any time.
func TestMetricsWhileServing(t *testing.T) {
	rt, _ := throughLink(t, echo)
	s := site.ThroughServer(t, rt)
	var clients sync.WaitGroup
	for i := range 50 {
		clients.Go(func() {
			for range 20 {
				req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", s.URL, nil))
				req.Header.Set("X-Key", fmt.Sprint(i))
				res, err := s.HTTP.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				res.Body.Close()
			}
		})
	}
	done := make(chan struct{})
	go func() { clients.Wait(); close(done) }()
	for last := 0.0; ; {
		now := metrictest.Gather(t, rt)[requests("default", "2xx", "link")]
		if now < last {
			t.Fatalf("%v requests, after %v", now, last)
		}
		last = now
		select {
		case <-done:
			if n := metrictest.Gather(t, rt)[requests("default", "2xx", "link")]; n != 1000 {
				t.Errorf("%v requests, want 1000", n)
			}
			return
		default:
		}
	}
}
