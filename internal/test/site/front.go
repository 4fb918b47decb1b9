package site

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/routes"
	"github.com/keyway-go/keyway/internal/test/kit"
)

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

// Front is where a router takes requests.
type Front struct {
	URL      string
	Listener net.Listener
	HTTP     *http.Client
	HTTP2    bool           // is what the client speaks
	Server   *router.Server // nil behind the standard library's server
	Router   *router.Router // of InFrontOf; nil otherwise
}

// ThroughServer makes a router take requests through a [router.Server], for clients of HTTP/1.1.
func ThroughServer(t testing.TB, rt *router.Router) *Front {
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	return &Front{URL: "http://" + l.Addr().String(), Listener: l, HTTP: kit.Client(t, "HTTP/1.1"), Server: ServeRouter(t, rt, l)}
}

// ServeRouter serves l with a [router.Server].
func ServeRouter(t testing.TB, rt *router.Router, l net.Listener) *router.Server {
	f := router.NewServer(rt, NetServer())
	kit.Serve(t, f, func() error { return f.Serve(l) })
	return f
}

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
func InFrontOf(t testing.TB, app string, change ...func(*worker.Config)) (*Front, *Worker) {
	t.Helper()
	s := New(t, 16)
	w := s.StartReady(append(change, func(cfg *worker.Config) { cfg.GRPC = strings.HasPrefix(app, "h2c:") })...)
	w.Listen(t, kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(app)))))
	rt := s.NewRouter(router.Config{})
	front := ThroughServer(t, rt)
	front.Router = rt
	return front, w
}

// Serve starts an app.
func Serve(t testing.TB, h http.Handler) *httptest.Server {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// Ask sends a request for a key to a handler and returns the answer.
func Ask(t testing.TB, h http.Handler, path, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
	r.Header.Set(gateway.HeaderKey, key)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// Get sends a request for a key to a router and returns the answer and its body.
func Get(t testing.TB, s *Front, key string) (*http.Response, string) {
	t.Helper()
	req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", s.URL+"/", nil))
	req.Header.Set("X-Key", key)
	return kit.Do(t, s.HTTP, req)
}

// Post sends one POST for the key k.
func Post(t testing.TB, client *http.Client, target, contentType, body string) (int, http.Header, string) {
	t.Helper()
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body)))
	req.Header.Set("X-Key", "k")
	req.Header.Set(gateway.HeaderKey, "k")
	req.Header.Set("Content-Type", contentType)
	res, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return 0, nil, ""
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, res.Header, string(got)
}
