package router_test

import (
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// Connections over the bound are accepted when others end.
func TestConnectionsOverTheBoundWait(t *testing.T) {
	kit.NoLeaks(t)
	app := &kit.Blocking{Release: make(chan struct{})}
	logs := new(kit.Buffer)
	rt, _ := throughLink(t, app.ServeHTTP, func(c *router.Config) {
		c.MaxConnections, c.Logger = 2, slog.New(slog.NewTextHandler(logs, nil))
	})
	base, _ := frontOf(t, rt)
	t.Cleanup(func() { close(app.Release) })
	first := kit.Dial(t, base)
	kit.SendRaw(t, first, "/block", "first")
	kit.SendRaw(t, kit.Dial(t, base), "/block", "second")
	kit.Eventually(t, "two requests run", func() bool { return app.Running.Load() == 2 })
	kit.Eventually(t, "a warning", func() bool { return strings.Contains(logs.String(), "connections=2") })
	waiting := kit.SendRaw(t, kit.Dial(t, base), "/", "waiting")
	first.Close()
	kit.ReadServed(t, waiting)
}

// Connections without a request end for those that wait; one with a request
// does not.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	cert, key, trusted := kit.Certificate(t)
	secure := func(proto string) func(*testing.T, net.Conn) {
		return func(t *testing.T, conn net.Conn) {
			c := tls.Client(conn, &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1", NextProtos: []string{proto}})
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			if proto == "http/1.1" {
				kit.ReadServed(t, kit.SendRaw(t, c, "/", "idle"))
			} else {
				kit.GreetH2(t, c)
			}
		}
	}
	silent := func(*testing.T, net.Conn) {}
	for name, tt := range map[string]struct {
		tls bool
		use func(*testing.T, net.Conn) // leaves the connection without a request
	}{
		"silent":       {false, silent},
		"HTTP/1.1":     {false, func(t *testing.T, c net.Conn) { kit.ReadServed(t, kit.SendRaw(t, c, "/", "idle")) }},
		"handed over":  {false, func(t *testing.T, c net.Conn) { kit.ReadServed(t, kit.SendRaw(t, c, `/a"b`, "idle")) }},
		"HTTP/2":       {false, func(t *testing.T, c net.Conn) { kit.GreetH2(t, c) }},
		"TLS silent":   {true, silent},
		"TLS HTTP/1.1": {true, secure("http/1.1")},
		"TLS HTTP/2":   {true, secure("h2")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := &kit.Blocking{Release: make(chan struct{})}
			rt, _ := throughLink(t, app.ServeHTTP, func(c *router.Config) { c.MaxConnections = 3 })
			l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
			server := site.NetServer()
			server.Protocols.SetHTTP2(true)
			f := router.NewServer(rt, server)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if tt.tls {
					f.ServeTLS(l, cert, key)
				} else {
					f.Serve(l)
				}
			}()
			t.Cleanup(func() {
				f.Close()
				<-done
			})
			connect := func() net.Conn {
				conn := kit.Dial(t, "tcp://"+l.Addr().String())
				if tt.tls {
					return tls.Client(conn, &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1"})
				}
				return conn
			}
			blocked := kit.SendRaw(t, connect(), "/block", "blocked")
			kit.Eventually(t, "a request runs", func() bool { return app.Running.Load() == 1 })
			for range 2 {
				tt.use(t, kit.Dial(t, "tcp://"+l.Addr().String()))
			}
			for range 2 {
				kit.ReadServed(t, kit.SendRaw(t, connect(), "/", "waiting"))
			}
			close(app.Release)
			kit.ReadServed(t, blocked)
		})
	}
}
