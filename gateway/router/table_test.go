package router_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// told is what a worker, or an app, sees of a request.
func told(h http.Header, key, encoded string) string {
	text, err := policy.FromText(encoded)
	if err != nil {
		return err.Error()
	}
	p, err := policy.Decode(text)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("key %q, %v, %v, route %q %s", key, p.Mode, p.Timeout, p.Route, h.Get("X-App"))
}

func TestRoutesOfRequests(t *testing.T) { eachWay(t, testRoutesOfRequests) }

func testRoutesOfRequests(t *testing.T, front way) {
	plain := site.NewFake(t, "plain", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		key, err := strconv.Unquote(`"` + r.Header.Get(gateway.HeaderKey) + `"`)
		fmt.Fprint(w, told(r.Header, key, r.Header.Get(hop.HeaderPolicy)), err)
	})
	linked := site.LinkWorker(t, func(w *link.ResponseWriter, r *link.ServerRequest) {
		_, _ = w.Write([]byte(told(nil, r.Key, string(policy.AppendText(nil, r.Policy))) + "<nil>"))
	})
	upstream := site.NewFake(t, "upstream", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		ours := 0
		for name := range r.Header {
			if strings.HasPrefix(name, "Keyway-") {
				ours++
			}
		}
		fmt.Fprintf(w, "upstream %s %d bytes, %d of ours, for %s", r.URL, len(body), ours, r.Header.Get("X-Forwarded-For"))
	})
	table := site.Routes(t,
		`name: orders, match: {path: "/orders/{id}", methods: [POST]}, key: path:id, prefix: "o:", timeout: 3s`,
		`name: reads, match: {path: "/orders/", methods: [GET]}, key: header:X-Key, mode: serialize, rate: {per-key: 5/s}`,
		`name: carts, match: {path: "/carts"}, key: header:X-Key, without-key: any`,
		`name: assets, match: {path: "/assets/"}, key: header:X-Key, without-key: "http://`+upstream.Addr+`"`,
		`name: strict, match: {path: "/strict"}, key: header:X-Key, without-key: reject`,
	)
	large := strings.Repeat("x", 70_000)
	for kind, m := range map[string]ring.Member{"plain": plain.Member, "link": linked} {
		rt := site.NewRouter(t, router.Config{Members: hub.Of(m), Routes: table})
		s := front(t, rt)
		for _, tt := range []struct {
			method, target, body string
			header               []string
			want                 string
		}{
			{"POST", "/orders/7", "", nil, `key "o:7", auto, 3s, route "" <nil>`},
			{"POST", "/orders/7/", large, nil, `key "o:7", auto, 3s, route "" <nil>`},
			{"GET", "/orders/7", "", []string{"X-Key", "k"}, `key "k", serialize, 0s, route "reads" <nil>`},
			{"GET", "/orders/7", "", nil, "400"},
			{"PUT", "/orders/7", "", []string{"X-Key", "k"}, "404"},
			{"POST", "/x/../orders/7", "", nil, "400"},
			{"POST", "/carts", "body", []string{"X-Key", "k"}, `key "k", auto, 0s, route "" <nil>`},
			{"POST", "/carts", "body", nil, `key "", unkeyed, 0s, route "" <nil>`},
			{"POST", "/carts", large, nil, `key "", unkeyed, 0s, route "" <nil>`},
			{"POST", "/assets/a?b=c", "body", []string{"Keyway-Key", "x", "X-Forwarded-For", "1.2.3.4"}, `upstream /assets/a?b=c 4 bytes, 0 of ours, for 127.0.0.1`},
			{"POST", "/assets/a", large, nil, `upstream /assets/a 70000 bytes, 0 of ours, for 127.0.0.1`},
			{"GET", "/assets/a", "", []string{"X-Key", "k"}, `key "k", auto, 0s, route "" <nil>`},
			{"OPTIONS", "/orders/7", "", []string{"Origin", "http://a", "Access-Control-Request-Method", "GET"}, `key "", unkeyed, 0s, route "" <nil>`},
			{"OPTIONS", "/orders/7", "", []string{"Origin", "http://a", "Access-Control-Request-Method", "POST"}, `key "o:7", auto, 3s, route "" <nil>`},
			{"OPTIONS", "/orders/7", "", nil, "404"},
			{"OPTIONS", "/strict", "", []string{"Origin", "http://a", "Access-Control-Request-Method", "GET"}, "400"},
			{"OPTIONS", "/strict", "", []string{"Origin", "http://a"}, "400"},
		} {
			req := kit.Must(http.NewRequestWithContext(t.Context(), tt.method, s.URL+tt.target, strings.NewReader(tt.body)))
			for i := 0; i < len(tt.header); i += 2 {
				req.Header.Set(tt.header[i], tt.header[i+1])
			}
			res, got := kit.Do(t, s.HTTP, req)
			if res.StatusCode != 200 {
				got = strconv.Itoa(res.StatusCode)
			}
			if got != tt.want {
				t.Errorf("%s: %s %s %v: %s, want %s", kind, tt.method, tt.target, tt.header, got, tt.want)
			}
		}
	}
}

// Preflights pass where keys are said by flags, too; other requests without a key do not.
func TestPreflightsOfFlags(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		w := site.NewFake(t, "w", site.Answer("app"))
		s := front(t, site.NewRouter(t, router.Config{Members: hub.Of(w.Member)}))
		for asked, want := range map[string]int{"POST": 200, "": 400} {
			req := kit.Must(http.NewRequestWithContext(t.Context(), "OPTIONS", s.URL, nil))
			req.Header.Set("Origin", "http://shop.example")
			if asked != "" {
				req.Header.Set("Access-Control-Request-Method", asked)
			}
			if res, body := kit.Do(t, s.HTTP, req); res.StatusCode != want {
				t.Errorf("asked for %q: %d %s", asked, res.StatusCode, body)
			}
		}
	})
}

// A request without a key goes to each of the workers in turn, past one that cannot be
// reached, and waits while there is none.
func TestRequestsWithoutAKey(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		a, b := site.NewFake(t, "a", site.Answer("a")), site.NewFake(t, "b", site.Answer("b"))
		dead := site.Member("dead", kit.FreeAddr(t))
		c := hub.Of()
		rt := site.NewRouter(t, router.Config{Members: c, Routes: site.Routes(t,
			`name: now, match: {path: /now}, without-key: any, hold: 0s`, `name: rest, without-key: any`)})
		s := front(t, rt)
		if res, _ := kit.Fetch(t, s.URL+"/now"); res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
			t.Errorf("without a worker: %d", res.StatusCode)
		}
		held := make(chan string, 1)
		go func() {
			_, body := kit.Fetch(t, s.URL)
			held <- body
		}()
		kit.Eventually(t, "a request is held", func() bool { return rt.Stats().Holding == 1 })
		c.Set(a.Member, b.Member, dead)
		if got := <-held; got != "a" && got != "b" {
			t.Errorf("the held request: %q", got)
		}
		for range 12 {
			if res, body := kit.Fetch(t, s.URL); res.StatusCode != 200 {
				t.Errorf("%d %s", res.StatusCode, body)
			}
		}
		if a.Hits.Load() < 3 || b.Hits.Load() < 3 {
			t.Errorf("a has %d requests and b %d", a.Hits.Load(), b.Hits.Load())
		}
	})
}

func TestRateOfARoute(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		w := site.NewFake(t, "w", site.Answer("app"))
		lines := []string{`name: few, match: {path: /few}, key: header:X-Key, rate: {per-route: 3/h}`, `name: rest, key: header:X-Key`}
		rt := site.NewRouter(t, router.Config{Members: hub.Of(w.Member), Routes: site.Routes(t, lines...), Limits: gateway.Limits{ReplayBytes: 1}})
		s := front(t, rt)
		send := func(path string, size int) *http.Response {
			req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL+path, strings.NewReader(strings.Repeat("x", size))))
			req.Header.Set("X-Key", "k")
			res, _ := kit.Do(t, s.HTTP, req)
			return res
		}
		for i := range 3 {
			if res := send("/few", 1+5000*i); res.StatusCode != 200 { // there is no memory for the second one, which goes another way
				t.Errorf("request %d: %d", i, res.StatusCode)
			}
		}
		// A reload does not give the route what it has had.
		if err := rt.SetRoutes(site.Routes(t, lines...)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			res := send("/few", 1)
			if after, err := strconv.Atoi(res.Header.Get("Retry-After")); res.StatusCode != 429 || err != nil || after < 1190 || after > 1200 {
				t.Errorf("over the rate: %d, Retry-After %q, want 429 and 20 min", res.StatusCode, res.Header.Get("Retry-After"))
			}
		}
		if res := send("/other", 1); res.StatusCode != 200 {
			t.Errorf("another route: %d", res.StatusCode)
		}
	})
}

func TestUpgradesOfARoute(t *testing.T) {
	w := site.NewFake(t, "w", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("Upgrade")) })
	s := site.ThroughServer(t, site.NewRouter(t, router.Config{Members: hub.Of(w.Member), Routes: site.Routes(t,
		`name: none, match: {path: /none}, key: header:X-Key, upgrade: none`, `name: own, match: {path: /own}, key: header:X-Key, upgrade: [own]`, `name: rest, key: header:X-Key`)}))
	for path, want := range map[string]string{"/none": "", "/own": "own", "/": "websocket"} {
		_, got := kit.Fetch(t, s.URL+path, "X-Key", "k", "Connection", "Upgrade", "Upgrade", "own, websocket")
		if got != want {
			t.Errorf("%s: the app is asked for %q, want %q", path, got, want)
		}
	}
}

// An upstream that cannot be reached has not got the request.
func TestAnUpstreamThatIsDown(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		s := front(t, site.NewRouter(t, router.Config{Members: hub.Of(), Routes: site.Routes(t, `name: a, without-key: "http://`+kit.FreeAddr(t)+`"`)}))
		if res, body := kit.Fetch(t, s.URL); res.StatusCode != 503 || strings.Contains(body, "127.0.0.1") {
			t.Errorf("%d %s", res.StatusCode, body)
		}
	})
}

// No request fails while the routes change, and each has the policy of one table.
func TestRoutesChangeUnderLoad(t *testing.T) {
	w := site.NewFake(t, "w", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, told(r.Header, r.Header.Get(gateway.HeaderKey), r.Header.Get(hop.HeaderPolicy)))
	})
	lines := func(i int) []string {
		out := []string{fmt.Sprintf(`name: a, match: {path: "/{id}"}, key: path:id, timeout: %ds`, i%3+1)}
		for j := range i % 4 {
			out = append(out, fmt.Sprintf(`name: more-%d, match: {path: "/more/%d"}, key: host`, j, j))
		}
		return out
	}
	rt := site.NewRouter(t, router.Config{Members: hub.Of(w.Member), Routes: site.Routes(t, lines(0)...)})
	s := site.ThroughServer(t, rt)
	var sent atomic.Int64
	var clients sync.WaitGroup
	done := make(chan struct{})
	for c := range 4 {
		clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				key := fmt.Sprint(c, "-", i)
				res, body := kit.Fetch(t, s.URL+"/"+key)
				if res.StatusCode != 200 || !strings.HasPrefix(body, fmt.Sprintf("key %q, auto, ", key)) {
					t.Errorf("%d %s", res.StatusCode, body)
				}
				sent.Add(1)
			}
		})
	}
	for i := range 100 {
		before := sent.Load()
		if err := rt.SetRoutes(site.Routes(t, lines(i)...)); err != nil {
			t.Fatal(err)
		}
		kit.Eventually(t, "a request came through", func() bool { return sent.Load() > before+1 })
	}
	close(done)
	clients.Wait()
}

// Routes by which a request could have two keys are not put in force, and those before stay.
func TestRoutesThatChangeKeysAreRefused(t *testing.T) {
	w := site.NewFake(t, "w", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get(gateway.HeaderKey)) })
	rt := site.NewRouter(t, router.Config{Members: hub.Of(w.Member), Routes: site.Routes(t, `name: a, key: query:a`)})
	s, source := site.ThroughServer(t, rt), rt.KeySource()
	err := rt.SetRoutes(site.Routes(t, `name: a, key: query:b`))
	if err == nil || !strings.Contains(err.Error(), `route 1, "a"`) {
		t.Errorf("another key: %v", err)
	}
	if _, got := kit.Fetch(t, s.URL+"?a=1&b=2"); got != "1" || rt.KeySource() != source {
		t.Errorf("key %q, key source %s", got, rt.KeySource())
	}
	if err := rt.SetRoutes(site.Routes(t, `name: other, key: query:a, timeout: 1s`)); err != nil || rt.KeySource() != source || rt.Routes().Routes()[0].Name != "other" {
		t.Errorf("another name and time: %v", err)
	}
}

// A route bounds its bodies, and says whether they are read first.
func TestBodiesOfARoute(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		w := site.NewFake(t, "w", func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, err)
		})
		s := front(t, site.NewRouter(t, router.Config{Members: hub.Of(w.Member), Routes: site.Routes(t,
			`name: small, match: {path: /small}, key: header:X-Key, body: {max: 1000}`,
			`name: large, match: {path: /large}, key: header:X-Key, body: {max: 100KiB}`,
			`name: stream, match: {path: /stream}, key: header:X-Key, body: {max: 100KiB, buffer: false}`,
			`name: rest, key: header:X-Key`)}))
		for _, tt := range []struct {
			path  string
			size  int
			known bool
			want  int
		}{
			{"/small", 1000, true, 200}, {"/small", 1001, true, 413}, {"/small", 1000, false, 200}, {"/small", 1001, false, 413},
			{"/large", 100 << 10, true, 200}, {"/large", 100<<10 + 1, true, 413}, {"/large", 100 << 10, false, 200}, {"/large", 100<<10 + 1, false, 413},
			{"/stream", 1000, true, 200}, {"/stream", 100 << 10, true, 200}, {"/stream", 100<<10 + 1, true, 413},
			{"/stream", 100 << 10, false, 200}, {"/stream", 100<<10 + 1, false, 413},
			{"/", 200_000, false, 200},
		} {
			req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL+tt.path, strings.NewReader(strings.Repeat("x", tt.size))))
			if req.Header.Set("X-Key", "k"); !tt.known {
				req.ContentLength = -1
			}
			res, body := kit.Do(t, s.HTTP, req)
			if res.StatusCode != tt.want || tt.want == 200 && body != fmt.Sprint(tt.size, nil) {
				t.Errorf("%s with %d bytes (known: %v): %d %s", tt.path, tt.size, tt.known, res.StatusCode, body)
			}
		}
		// The worker works while the client still sends.
		begun := make(chan struct{})
		w.Set(func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n)
		})
		in, out := io.Pipe()
		go func() {
			out.Write([]byte("first"))
			<-begun
			out.Write([]byte("second"))
			out.Close()
		}()
		req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL+"/stream", in))
		req.Header.Set("X-Key", "k")
		if res, body := kit.Do(t, s.HTTP, req); res.StatusCode != 200 || body != "11" {
			t.Errorf("a body that streams: %d %s", res.StatusCode, body)
		}
	})
}

// A router that another one's keys conflict with sends nothing, also of what it has held
// until then, and is not ready; a load balancer may go elsewhere.
func TestTrapRouterStandsAside(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		w := site.NewFake(t, "w", site.Answer("app"))
		c := hub.Of()
		rt := site.NewRouter(t, router.Config{Members: c, Limits: gateway.Limits{Hold: time.Minute}, Routes: site.Routes(t,
			`name: any, match: {path: /any}, key: header:X-Key, without-key: any`, `name: rest, key: header:X-Key`)})
		s := front(t, rt)
		ask := func(path, key string) string {
			req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil))
			if key != "" {
				req.Header.Set("X-Key", key)
			}
			res, body := kit.Do(t, s.HTTP, req)
			return fmt.Sprint(res.StatusCode) + " " + res.Header.Get("Retry-After") + " " + strings.TrimSpace(body)
		}
		const aside = "503 1 this router takes no requests at the moment, try another one"
		held := make(chan string, 2)
		go func() { held <- ask("/", "k") }()
		go func() { held <- ask("/any", "") }()
		kit.Eventually(t, "both wait for a worker", func() bool { return rt.Stats().Holding == 2 })
		conflict := fmt.Errorf("%w: a test", ring.ErrSettings)
		c.Conflict(conflict)
		for range 2 {
			if got := <-held; got != aside {
				t.Errorf("a request that was held: %s", got)
			}
		}
		c.Set(w.Member)
		c.Conflict(conflict)
		for _, got := range []string{ask("/", "k"), ask("/any", "")} {
			if got != aside {
				t.Errorf("a request: %s", got)
			}
		}
		if err := rt.Ready(); !errors.Is(err, ring.ErrSettings) || w.Hits.Load() != 0 {
			t.Errorf("ready: %v; the worker has got %d requests", err, w.Hits.Load())
		}
		c.Conflict(nil)
		if got := ask("/", "k"); got != "200  app" || rt.Ready() != nil {
			t.Errorf("without a conflict: %s, ready: %v", got, rt.Ready())
		}
	})
}
