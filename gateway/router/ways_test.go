package router_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// way makes a router take requests.
type way func(t testing.TB, rt *router.Router) *site.Front

// eachWay runs a test with a router behind the standard library's server and
// behind a [router.Server], for clients of HTTP/1.1, with and without TLS, and of HTTP/2.
func eachWay(t *testing.T, test func(t *testing.T, front way)) {
	t.Run("server", func(t *testing.T) { test(t, throughNetHTTP) })
	t.Run("front", func(t *testing.T) { test(t, site.ThroughServer) })
	t.Run("TLS", func(t *testing.T) { test(t, throughTLS) })
	t.Run("h2", func(t *testing.T) { test(t, throughH2) })
}

// throughNetHTTP is a [way] through the standard library's server.
func throughNetHTTP(t testing.TB, rt *router.Router) *site.Front { return behindNetHTTP(t, rt) }

// behindNetHTTP makes h take requests behind the standard library's server.
func behindNetHTTP(t testing.TB, h http.Handler) *site.Front {
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = site.NetServer().Protocols
	s.Start()
	t.Cleanup(s.Close)
	return &site.Front{URL: s.URL, Listener: s.Listener, HTTP: s.Client()}
}

// throughTLS is a [way] through a [router.Server], for clients of HTTP/1.1 over TLS.
func throughTLS(t testing.TB, rt *router.Router) *site.Front {
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	server := site.NetServer()
	server.Protocols.SetHTTP2(true)
	f := router.NewServer(rt, server)
	cert, key, _ := kit.Certificate(t)
	kit.Serve(t, f, func() error { return f.ServeTLS(l, cert, key) })
	return &site.Front{URL: "https://" + l.Addr().String(), Listener: l, HTTP: kit.Client(t, "HTTP/1.1"), Server: f}
}

// throughH2 is a [way] through a [router.Server], for clients of HTTP/2.
func throughH2(t testing.TB, rt *router.Router) *site.Front {
	s := site.ThroughServer(t, rt)
	s.HTTP, s.HTTP2 = kit.Client(t, "HTTP/2"), true
	return s
}

// entrance is one of the ways on which requests reach an app.
type entrance struct {
	name   string
	base   string
	http2  bool
	worker *site.Worker // nil for a router alone
}

// send sends a request and returns the answer in a form that can be compared.
// lines are fields as in HTTP/1.1.
func (e *entrance) send(t *testing.T, method, target string, lines []string, body string) string {
	t.Helper()
	lines = append([]string{"X-Key: k"}, lines...)
	if !e.http2 {
		head := append([]string{method + " " + target + " HTTP/1.1", "Host: shop.example"}, lines...)
		return sendRaw(t, e.base, strings.Join(append(head, "", ""), "\r\n")+body)
	}
	fields := []string{":method", method, ":scheme", "http", ":authority", "shop.example", ":path", target}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		fields = append(fields, strings.ToLower(name), strings.TrimSpace(value))
	}
	return sendH2(t, e.base, h2Head(true, fields...))
}

// entrances returns every way to an app: behind a sidecar, on the short way and
// on net/http's, and as a handler; each at the worker's own port, and through
// routers with and without the link, which take HTTP/1.1 and HTTP/2 at a [router.Server]
// and by net/http. change may be nil.
func entrances(t *testing.T, app http.HandlerFunc, change func(*router.Config, *worker.Config)) (all []entrance) {
	t.Helper()
	if change == nil {
		change = func(*router.Config, *worker.Config) {}
	}
	server := site.Serve(t, app)
	keys := kit.KeySources(t, "header:X-Key")
	for _, kind := range []string{"sidecar", "sidecar, net/http", "handler"} {
		c := site.New(t, 16)
		w := c.StartReady(func(cfg *worker.Config) {
			cfg.Direct, cfg.Keys = true, keys
			change(&router.Config{}, cfg)
		})
		var h http.Handler
		switch kind {
		case "sidecar":
			h = kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(server.URL))))
		case "sidecar, net/http":
			h = kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(server.URL+"/?app=1"))))
		default:
			h = w.Handler(app)
		}
		addr := w.Listen(t, h)
		all = append(all, entrance{kind + ", own port", "http://" + addr, false, w})
		for _, hop := range []string{"link", "HTTP", "link in memory"} {
			cfg := router.Config{Keys: keys}
			switch hop {
			case "link":
				cfg.Members = c.Join("router")
			case "HTTP":
				cfg.Members = hub.Of(site.Member("w1", addr))
			default:
				cfg.Members, cfg.Own = w.Member, w.Server.Dial
			}
			change(&cfg, &worker.Config{})
			for _, e := range routerEntrances(t, kind+", "+hop, cfg) {
				e.worker = w
				all = append(all, e)
			}
		}
	}
	cfg := router.Config{Keys: keys, Members: hub.Of(site.Member("w1", server.URL))}
	change(&cfg, &worker.Config{})
	return append(all, routerEntrances(t, "router alone", cfg)...)
}

// routerEntrances returns the ways into a router.
func routerEntrances(t *testing.T, name string, cfg router.Config) []entrance {
	t.Helper()
	return routerEntrancesOf(t, name, site.NewRouter(t, cfg))
}

func routerEntrancesOf(t *testing.T, name string, rt *router.Router) []entrance {
	t.Helper()
	front, _ := frontOf(t, rt)
	return []entrance{
		{name: name + ", net/http", base: throughNetHTTP(t, rt).URL},
		{name: name + ", front", base: front},
		{name: name + ", h2", base: front, http2: true},
	}
}

// upload sends a body of chunks with trailers, some of them announced, and
// returns the answer in a form that can be compared.
func (e *entrance) upload(t *testing.T, target, announced string, trailers []string) string {
	t.Helper()
	if !e.http2 {
		return e.send(t, "POST", target, []string{"Transfer-Encoding: chunked", "Trailer: " + announced}, "4\r\nbody\r\n0\r\n"+strings.Join(append(trailers, "", ""), "\r\n"))
	}
	head := []string{":method", "POST", ":scheme", "http", ":authority", "shop.example", ":path", target, "x-key", "k", "trailer", announced}
	var fields []string
	for _, line := range trailers {
		name, value, _ := strings.Cut(line, ":")
		fields = append(fields, strings.ToLower(name), strings.TrimSpace(value))
	}
	return sendH2(t, e.base, h2Head(false, head...)+h2Data(false, "body")+h2Head(true, fields...))
}

// dial connects to the entrance.
func (e *entrance) dial(t *testing.T) net.Conn {
	t.Helper()
	conn := kit.Must(kit.Connect(e.base))
	t.Cleanup(func() { conn.Close() })
	return conn
}
