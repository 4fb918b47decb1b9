package worker_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// linkTo returns a client of a worker's link.
func linkTo(t *testing.T, w *site.Worker, addr string) *link.Client {
	t.Helper()
	c := &link.Client{Addr: addr, Config: link.Config{Cluster: "keyway", Digest: ring.Settings{Ring: w.Ring, TTL: kit.TTL}.Digest(), Logger: slog.New(slog.DiscardHandler)}}
	t.Cleanup(func() { c.Close() })
	return c
}

// servedOverLink sends a request with a key of its own over the link.
func servedOverLink(t *testing.T, c *link.Client, key string) {
	t.Helper()
	answer, err := c.Do(t.Context(), &link.Request{Method: "GET", Target: "/", Host: "x", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(answer.Body); string(text) != "served" {
		t.Errorf("%q, %v", text, err)
	}
}

// Connections of HTTP over the bound of a worker wait until others end, and
// leave links alone.
func TestWorkerConnectionsOverTheBoundWait(t *testing.T) {
	kit.NoLeaks(t)
	app := &kit.Blocking{Release: make(chan struct{})}
	logs := new(kit.Buffer)
	w := site.New(t, 16).StartReady(func(cfg *worker.Config) {
		cfg.MaxConnections, cfg.Direct, cfg.Logger, cfg.Keys = 16, true, slog.New(slog.NewTextHandler(logs, nil)), kit.KeySources(t, "header:X-Key")
	})
	const others, share = 12, 2 // of 16 connections
	var begun atomic.Int64
	addr := w.Listen(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		begun.Add(1)
		app.ServeHTTP(rw, r)
	})))
	t.Cleanup(func() { close(app.Release) })
	for i := range others {
		kit.SendRaw(t, kit.Dial(t, "tcp://"+addr), "/block", fmt.Sprint(i))
	}
	kit.Eventually(t, "as many requests run", func() bool { return app.Running.Load() == others })
	kit.Eventually(t, "a warning", func() bool { return strings.Contains(logs.String(), "connections=12") })
	for range 2 * share {
		kit.SendRaw(t, kit.Dial(t, "tcp://"+addr), "/", "waiting") // closed when more wait
	}
	servedOverLink(t, linkTo(t, w, addr), "first")
	waiting := kit.SendRaw(t, kit.Dial(t, "tcp://"+addr), "/", "waiting")
	servedOverLink(t, linkTo(t, w, addr), "second")
	if n := begun.Load(); n != others+2 {
		t.Errorf("%d requests began, want those of %d connections and of 2 links", n, others)
	}
	app.Release <- struct{}{} // one of them ends
	kit.ReadServed(t, waiting)
}

// Links over their bound are refused; the ones that are there go on.
func TestLinksOverTheBoundAreRefused(t *testing.T) {
	w := site.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.MaxConnections = 16 })
	addr := w.Listen(t, w.Handler(&kit.Blocking{}))
	first, second := linkTo(t, w, addr), linkTo(t, w, addr)
	servedOverLink(t, first, "k")
	servedOverLink(t, second, "k")
	if _, err := linkTo(t, w, addr).Do(t.Context(), &link.Request{Method: "GET", Target: "/", Host: "x", Key: "k"}); !errors.Is(err, link.ErrNotStarted) {
		t.Errorf("the third: %v", err)
	}
	servedOverLink(t, first, "k")
	servedOverLink(t, second, "k")
}

// Connections to a worker without a request end for those that wait; ones with
// a request do not, and connections that have ended count no more, whatever they
// were.
func TestIdleConnectionsOfWorkersMakeRoom(t *testing.T) {
	cert, key, trusted := kit.Certificate(t)
	secure := func(proto string) func(*testing.T, net.Conn) net.Conn {
		return func(t *testing.T, conn net.Conn) net.Conn {
			c := tls.Client(conn, &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1", NextProtos: []string{proto}})
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			return c
		}
	}
	plain := func(_ *testing.T, c net.Conn) net.Conn { return c }
	request := func(t *testing.T, c net.Conn) { kit.ReadServed(t, kit.SendRaw(t, c, "/", "idle")) }
	for name, tt := range map[string]struct {
		tls     bool
		connect func(*testing.T, net.Conn) net.Conn
		use     func(*testing.T, net.Conn) // leaves the connection without a request
	}{
		"begun":        {false, plain, func(t *testing.T, c net.Conn) { io.WriteString(c, "GET ") }},
		"HTTP/1.1":     {false, plain, request},
		"HTTP/2":       {false, plain, kit.GreetH2},
		"TLS HTTP/1.1": {true, secure("http/1.1"), request},
		"TLS HTTP/2":   {true, secure("h2"), kit.GreetH2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := &kit.Blocking{Release: make(chan struct{})}
			w := site.New(t, 16).StartReady(func(cfg *worker.Config) {
				cfg.MaxConnections, cfg.Direct, cfg.Keys = 5, true, kit.KeySources(t, "header:X-Key") // 3 of HTTP
			})
			l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
			addr := "tcp://" + l.Addr().String()
			if tt.tls {
				pair := kit.Must(tls.LoadX509KeyPair(cert, key))
				l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}})
			}
			s := w.NewServer(w.Handler(app))
			done := make(chan error, 1)
			go func() { done <- s.Serve(l) }()
			t.Cleanup(func() {
				s.Close()
				if err := <-done; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
			connect := func() net.Conn {
				if tt.tls {
					return secure("http/1.1")(t, kit.Dial(t, addr))
				}
				return kit.Dial(t, addr)
			}
			blocked := kit.SendRaw(t, connect(), "/block", "blocked")
			kit.Eventually(t, "a request runs", func() bool { return app.Running.Load() == 1 })
			for range 2 {
				tt.use(t, tt.connect(t, kit.Dial(t, addr)))
			}
			for range 5 {
				conn := connect()
				kit.ReadServed(t, kit.SendRaw(t, conn, "/", "waiting"))
				conn.Close()
			}
			close(app.Release)
			kit.ReadServed(t, blocked)
		})
	}
}
