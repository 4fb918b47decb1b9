package site

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/routes"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
)

// Members is a gateway.Members that tests change at will.
type Members struct {
	mu      sync.Mutex
	view    *ring.View
	changed chan struct{}
	Store   ring.StoreID // of the one who looks
	Keys    [][]byte     // its secrets
}

// NewMembers makes a Members of members, which are a router's view.
func NewMembers(t testing.TB, members ...ring.Member) *Members {
	c := &Members{changed: make(chan struct{})}
	c.Set(t, members...)
	return c
}

// Set replaces the members and tells those who wait for a change.
func (c *Members) Set(t testing.TB, members ...ring.Member) {
	t.Helper()
	members, refused := ring.Agreeing(ring.Member{StoreID: c.Store}, members)
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

// Conflict sets the KeyConflict of the view, and tells those who wait for a change.
func (c *Members) Conflict(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	view := *c.view
	view.KeyConflict = err
	c.view = &view
	close(c.changed)
	c.changed = make(chan struct{})
}

// Self implements [gateway.Members]; it is nobody.
func (c *Members) Self() ring.Member { return ring.Member{} }

// View implements [gateway.Members].
func (c *Members) View() *ring.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view
}

// Changed implements [gateway.Members].
func (c *Members) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Settings implements [gateway.Members]; they are the default ones, but for [kit.TTL].
func (c *Members) Settings() ring.Settings { return ring.Settings{TTL: kit.TTL, Store: c.Store} }

// Secrets implements [gateway.Members].
func (c *Members) Secrets(string) [][]byte { return c.Keys }

// Announce implements [gateway.Members], and announces nothing.
func (c *Members) Announce(func(*ring.Member)) error { return nil }

// Member makes a member of the address of a test server.
func Member(name, addr string) ring.Member {
	return ring.Member{Name: name, Incarnation: name + "-life", Role: ring.RoleWorker, State: ring.StateActive, Addr: strings.TrimPrefix(addr, "http://")}
}

// Leaving returns the member in that state.
func Leaving(m ring.Member) ring.Member {
	m.State = ring.StateLeaving
	return m
}

// Fake is a worker over TCP whose handler tests can change.
type Fake struct {
	ring.Member
	*httptest.Server
	handler atomic.Pointer[http.HandlerFunc]
	Hits    atomic.Int64
}

// NewFake starts a worker that answers with h until the test ends.
func NewFake(t testing.TB, name string, h http.HandlerFunc) *Fake {
	w := &Fake{}
	w.handler.Store(&h)
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.Hits.Add(1)
		(*w.handler.Load())(rw, r)
	}))
	t.Cleanup(w.Server.Close)
	w.Member = Member(name, w.URL)
	return w
}

// Set replaces the handler.
func (w *Fake) Set(h http.HandlerFunc) { w.handler.Store(&h) }

// Answer makes a handler that answers with text.
func Answer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
}

// NotOwner refuses as a worker does that knows the owner.
func NotOwner(owner ring.Member, epoch int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Keyway-Refused", "not-owner")
		h.Set("Keyway-Owner", owner.Incarnation)
		h.Set("Keyway-Owner-Addr", owner.Addr)
		h.Set("Keyway-Epoch", strconv.FormatInt(epoch, 10))
		http.Error(w, "not the owner", http.StatusMisdirectedRequest)
	}
}

// Refuse refuses without naming an owner.
func Refuse(why string, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Keyway-Refused", why)
		http.Error(w, why, status)
	}
}

// Routes parses routes, one on each line, such as "name: a, key: host".
func Routes(t testing.TB, lines ...string) *routes.Table {
	t.Helper()
	var text strings.Builder
	text.WriteString("routes:\n")
	for _, line := range lines {
		text.WriteString("  - {" + line + "}\n")
	}
	table, err := routes.Parse("routes", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// NewRouter makes a router that is closed when the test ends. Its key is the field
// X-Key by default.
func NewRouter(t testing.TB, cfg router.Config) *router.Router {
	t.Helper()
	if cfg.Keys == nil && cfg.Routes == nil {
		cfg.Keys = kit.KeySources(t, "header:X-Key")
	}
	rt, err := router.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close() })
	return rt
}

// Front is where a router takes requests.
type Front struct {
	URL      string
	Listener net.Listener
	HTTP     *http.Client
	HTTP2    bool           // is what the client speaks
	Router   *router.Router // of InFrontOf; nil otherwise
}

// Client returns the test's client.
func (s *Front) Client() *http.Client { return s.HTTP }

// Way makes a router take requests.
type Way func(t testing.TB, rt *router.Router) *Front

// EachWay runs a test with a router behind the standard library's server and
// behind a [router.Server], for clients of HTTP/1.1, with and without TLS, and of HTTP/2.
func EachWay(t *testing.T, test func(t *testing.T, front Way)) {
	t.Run("server", func(t *testing.T) { test(t, ThroughNetHTTP) })
	t.Run("front", func(t *testing.T) { test(t, ThroughServer) })
	t.Run("TLS", func(t *testing.T) { test(t, throughTLS) })
	t.Run("h2", func(t *testing.T) { test(t, throughH2) })
}

// ThroughNetHTTP is a [Way] through the standard library's server.
func ThroughNetHTTP(t testing.TB, rt *router.Router) *Front { return siteOf(t, rt) }

// siteOf makes h take requests behind the standard library's server.
func siteOf(t testing.TB, h http.Handler) *Front {
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = NetServer().Protocols
	s.Start()
	t.Cleanup(s.Close)
	return &Front{URL: s.URL, Listener: s.Listener, HTTP: s.Client()}
}

// ThroughServer is a [Way] through a [router.Server], for clients of HTTP/1.1.
func ThroughServer(t testing.TB, rt *router.Router) *Front {
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	ServeRouter(t, rt, l)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &Front{URL: "http://" + l.Addr().String(), Listener: l, HTTP: &http.Client{Transport: transport}}
}

// throughTLS is a [Way] through a [router.Server], for clients of HTTP/1.1 over TLS.
func throughTLS(t testing.TB, rt *router.Router) *Front {
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	ServeRouterTLS(t, rt, l)
	return &Front{URL: "https://" + l.Addr().String(), Listener: l, HTTP: kit.Client(t, "HTTP/1.1")}
}

// throughH2 is a [Way] through a [router.Server], for clients of HTTP/2.
func throughH2(t testing.TB, rt *router.Router) *Front {
	s := ThroughServer(t, rt)
	s.HTTP, s.HTTP2 = kit.Client(t, "HTTP/2"), true
	return s
}

// NetHTTP makes a gateway of net/http in front of an app, the yardstick for what
// a router and a worker do. It has at most conns connections to the app, if that
// is not 0. under counts the requests that are under way at the gateway.
func NetHTTP(t *testing.T, app http.Handler, conns int) (s *Front, under *atomic.Int64) {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(kit.Must(url.Parse(Serve(t, app).URL)))
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

// Get sends a request for a key and returns status and body.
func Get(t testing.TB, s *Front, key string) (*http.Response, string) {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/", nil)
	req.Header.Set("X-Key", key)
	return kit.Do(t, s.Client(), req)
}

// ServeRouter serves l with a [router.Server] until the test ends.
func ServeRouter(t testing.TB, rt *router.Router, l net.Listener) *router.Server {
	t.Helper()
	f := router.NewServer(rt, NetServer())
	kit.Serve(t, f, l)
	return f
}

// ServeRouterTLS is ServeRouter with TLS.
func ServeRouterTLS(t testing.TB, rt *router.Router, l net.Listener) *router.Server {
	t.Helper()
	server := NetServer()
	server.Protocols.SetHTTP2(true)
	f := secureServer{Server: router.NewServer(rt, server)}
	f.cert, f.key, _ = kit.Certificate(t)
	kit.Serve(t, f, l)
	return f.Server
}

type secureServer struct {
	*router.Server
	cert, key string // files
}

func (s secureServer) Serve(l net.Listener) error { return s.ServeTLS(l, s.cert, s.key) }

// NetServer makes settings for a [router.Server]: HTTP/1.1 and HTTP/2 without
// TLS, heads of 64 KiB that take a second at most.
func NetServer() *http.Server {
	s := &http.Server{MaxHeaderBytes: 64 << 10, ReadHeaderTimeout: time.Second, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// InFrontOf makes a router in front of a sidecar of an app, with the link
// between them.
func InFrontOf(t testing.TB, app string, change ...func(*worker.Config)) (s *Front, w *Worker) {
	t.Helper()
	c := New(t, 16)
	w = c.StartReady(append(change, func(cfg *worker.Config) { cfg.GRPC = strings.HasPrefix(app, "h2c:") })...)
	addr := w.Listen(t, kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(app)))))
	if err := w.Member.Announce(func(self *ring.Member) { self.Addr = addr }); err != nil {
		t.Fatal(err)
	}
	gate := kit.Must(c.Hub.Join(ring.Member{Name: "router", Role: ring.RoleRouter, State: ring.StateActive}))
	rt := kit.Must(router.New(router.Config{Members: gate, Keys: kit.KeySources(t, "header:X-Key")}))
	t.Cleanup(func() { rt.Close() })
	s = ThroughServer(t, rt)
	s.Router = rt
	return s, w
}
