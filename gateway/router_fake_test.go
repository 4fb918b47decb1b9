package gateway_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/ring"
)

// cluster is a Membership that tests change at will.
type cluster struct {
	mu      sync.Mutex
	view    *ring.View
	changed chan struct{}
	store   ring.StoreID // of the one who looks
}

func newCluster(t testing.TB, members ...ring.Member) *cluster {
	c := &cluster{changed: make(chan struct{})}
	c.set(t, members...)
	return c
}

func (c *cluster) set(t testing.TB, members ...ring.Member) {
	t.Helper()
	members, refused := ring.Agreeing(ring.Member{StoreID: c.store}, members)
	var names []string
	for _, m := range ring.ActiveWorkers(members) {
		names = append(names, m.Name)
	}
	table, err := ring.New(ring.Config{}, names)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view = ring.NewView(table, members)
	c.view.Refused = refused
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *cluster) View() *ring.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view
}

func (c *cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *cluster) Settings() ring.Settings { return ring.Settings{Store: c.store} }

func (c *cluster) Announce(func(*ring.Member)) error { return nil }

// worker makes a member of the address of a test server.
func worker(name, addr string) ring.Member {
	return ring.Member{Name: name, Incarnation: name + "-life", Role: ring.RoleWorker, State: ring.StateActive, Addr: strings.TrimPrefix(addr, "http://")}
}

// leaving returns the member in that state.
func leaving(m ring.Member) ring.Member {
	m.State = ring.StateLeaving
	return m
}

// fakeWorker is a worker over TCP whose handler tests can change.
type fakeWorker struct {
	ring.Member
	*httptest.Server
	handler atomic.Pointer[http.HandlerFunc]
	hits    atomic.Int64
}

func newWorker(t testing.TB, name string, h http.HandlerFunc) *fakeWorker {
	w := &fakeWorker{}
	w.handler.Store(&h)
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.hits.Add(1)
		(*w.handler.Load())(rw, r)
	}))
	t.Cleanup(w.Server.Close)
	w.Member = worker(name, w.URL)
	return w
}

func (w *fakeWorker) set(h http.HandlerFunc) { w.handler.Store(&h) }

func answer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
}

// notOwner refuses as a worker does that knows the owner.
func notOwner(owner ring.Member, epoch int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Keyway-Refused", "not-owner")
		h.Set("Keyway-Owner", owner.Incarnation)
		h.Set("Keyway-Owner-Addr", owner.Addr)
		h.Set("Keyway-Epoch", strconv.FormatInt(epoch, 10))
		http.Error(w, "not the owner", http.StatusMisdirectedRequest)
	}
}

// refuse refuses without naming an owner.
func refuse(why string, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Keyway-Refused", why)
		http.Error(w, why, status)
	}
}

func newRouter(t testing.TB, cfg gateway.RouterConfig) *gateway.Router {
	t.Helper()
	if cfg.Keys == nil {
		cfg.Keys = sources(t, "header:X-Key")
	}
	rt, err := gateway.NewRouter(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close() })
	return rt
}

func sources(t testing.TB, specs ...string) []gateway.KeySource {
	t.Helper()
	var out []gateway.KeySource
	for _, spec := range specs {
		s, err := gateway.ParseKeySource(spec)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// site is where a router takes requests, HTTP/1.1 and HTTP/2 without TLS.
type site struct {
	URL      string
	Listener net.Listener
	client   *http.Client
	http2    bool // is what the client speaks
}

// Client returns the test's client.
func (s *site) Client() *http.Client { return s.client }

// way makes a router take requests.
type way func(t testing.TB, rt *gateway.Router) *site

// bothWays runs a test with a router behind the standard library's server and
// behind a Front, for clients of HTTP/1.1 and of HTTP/2.
func bothWays(t *testing.T, test func(t *testing.T, front way)) {
	t.Run("server", func(t *testing.T) { test(t, throughServer) })
	t.Run("front", func(t *testing.T) { test(t, throughFront) })
	t.Run("h2", func(t *testing.T) { test(t, throughH2) })
}

func throughServer(t testing.TB, rt *gateway.Router) *site { return siteOf(t, rt) }

// siteOf makes h take requests behind the standard library's server.
func siteOf(t testing.TB, h http.Handler) *site {
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return &site{URL: s.URL, Listener: s.Listener, client: s.Client()}
}

func throughFront(t testing.TB, rt *gateway.Router) *site {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	frontOn(t, rt, l)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &site{URL: "http://" + l.Addr().String(), Listener: l, client: &http.Client{Transport: transport}}
}

func throughH2(t testing.TB, rt *gateway.Router) *site {
	s := throughFront(t, rt)
	s.client, s.http2 = clientOf(t, "HTTP/2"), true
	return s
}

// netHTTP makes a gateway of net/http in front of an app, the yardstick for what
// a router and a worker do. It has at most conns connections to the app, if that
// is not 0. under counts the requests that are under way at the gateway.
func netHTTP(t *testing.T, app http.Handler, conns int) (s *site, under *atomic.Int64) {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(must(url.Parse(serve(t, app).URL)))
	transport := &http.Transport{MaxConnsPerHost: conns}
	t.Cleanup(transport.CloseIdleConnections)
	proxy.Transport, proxy.ErrorLog = transport, log.New(io.Discard, "", 0)
	under = new(atomic.Int64)
	return siteOf(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		under.Add(1)
		defer under.Add(-1)
		proxy.ServeHTTP(rw, r)
	})), under
}

// clientOf returns a client that speaks HTTP/1.1 or HTTP/2, with connections of
// its own.
func clientOf(t testing.TB, proto string) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(proto == "HTTP/1.1")
	transport.Protocols.SetUnencryptedHTTP2(proto == "HTTP/2")
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// get sends a request for a key and returns status and body.
func get(t testing.TB, s *site, key string) (*http.Response, string) {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/", nil)
	req.Header.Set("X-Key", key)
	return do(t, s.Client(), req)
}

func do(t testing.TB, c *http.Client, req *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name := range res.Header {
		if strings.HasPrefix(name, "Keyway-") {
			t.Errorf("the client sees %s: %s", name, res.Header.Get(name))
		}
	}
	return res, string(b)
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}

// noLeaks fails the test if at its end, after everything registered later was
// cleaned up, more goroutines run than now.
func noLeaks(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		var now int
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
			http.DefaultTransport.(*http.Transport).CloseIdleConnections()
			if now = runtime.NumGoroutine(); now <= before {
				return
			}
		}
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d before:\n%s", now, before, buf[:runtime.Stack(buf, true)])
	})
}

// freeAddr returns an address on which nobody listens.
func freeAddr(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
