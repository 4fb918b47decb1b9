package gateway_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
)

// blocking is an app in which requests for /block run until they are released.
type blocking struct {
	running atomic.Int64
	release chan struct{}
}

func (b *blocking) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/block" {
		b.running.Add(1)
		<-b.release
	}
	io.WriteString(rw, "served")
}

// rawRequest sends a request and returns where its answer is to be read.
func rawRequest(t *testing.T, conn net.Conn, path, key string) *bufio.Reader {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: h\r\nX-Key: %s\r\n\r\n", path, key); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(conn)
}

// greetH2 sends what an HTTP/2 client sends first.
func greetH2(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+h2Frame(4, 0, 0, "")+h2Frame(4, 1, 0, "")); err != nil {
		t.Fatal(err)
	}
}

func readServed(t *testing.T, r *bufio.Reader) {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(res.Body); string(body) != "served" {
		t.Errorf("%d %q %v", res.StatusCode, body, err)
	}
}

func dialFront(t *testing.T, base string) net.Conn {
	t.Helper()
	_, addr, _ := strings.Cut(base, "://")
	conn := must(net.Dial("tcp", addr))
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Connections over the bound are accepted when others end.
func TestConnectionsOverTheBoundWait(t *testing.T) {
	noLeaks(t)
	app := &blocking{release: make(chan struct{})}
	logs := new(lockedBuffer)
	rt, _ := throughLink(t, app.ServeHTTP, func(c *gateway.RouterConfig) {
		c.MaxConnections, c.Logger = 2, slog.New(slog.NewTextHandler(logs, nil))
	})
	base, _ := frontOf(t, rt)
	t.Cleanup(func() { close(app.release) })
	first := dialFront(t, base)
	rawRequest(t, first, "/block", "first")
	rawRequest(t, dialFront(t, base), "/block", "second")
	eventually(t, "two requests run", func() bool { return app.running.Load() == 2 })
	eventually(t, "a warning", func() bool { return strings.Contains(logs.String(), "connections=2") })
	waiting := rawRequest(t, dialFront(t, base), "/", "waiting")
	first.Close()
	readServed(t, waiting)
}

// Connections without a request end for those that wait; one with a request
// does not.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	cert, key, trusted := certificate(t)
	secure := func(proto string) func(*testing.T, net.Conn) {
		return func(t *testing.T, conn net.Conn) {
			c := tls.Client(conn, &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1", NextProtos: []string{proto}})
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			if proto == "http/1.1" {
				readServed(t, rawRequest(t, c, "/", "idle"))
			} else {
				greetH2(t, c)
			}
		}
	}
	silent := func(*testing.T, net.Conn) {}
	for name, tt := range map[string]struct {
		tls bool
		use func(*testing.T, net.Conn) // leaves the connection without a request
	}{
		"silent":       {false, silent},
		"HTTP/1.1":     {false, func(t *testing.T, c net.Conn) { readServed(t, rawRequest(t, c, "/", "idle")) }},
		"handed over":  {false, func(t *testing.T, c net.Conn) { readServed(t, rawRequest(t, c, `/a"b`, "idle")) }},
		"HTTP/2":       {false, func(t *testing.T, c net.Conn) { greetH2(t, c) }},
		"TLS silent":   {true, silent},
		"TLS HTTP/1.1": {true, secure("http/1.1")},
		"TLS HTTP/2":   {true, secure("h2")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := &blocking{release: make(chan struct{})}
			rt, _ := throughLink(t, app.ServeHTTP, func(c *gateway.RouterConfig) { c.MaxConnections = 3 })
			l := must(net.Listen("tcp", "127.0.0.1:0"))
			server := frontServer()
			server.Protocols.SetHTTP2(true)
			f := gateway.NewFront(rt, server)
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
				conn := dialFront(t, "tcp://"+l.Addr().String())
				if tt.tls {
					return tls.Client(conn, &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1"})
				}
				return conn
			}
			blocked := rawRequest(t, connect(), "/block", "blocked")
			eventually(t, "a request runs", func() bool { return app.running.Load() == 1 })
			for range 2 {
				tt.use(t, dialFront(t, "tcp://"+l.Addr().String()))
			}
			for range 2 {
				readServed(t, rawRequest(t, connect(), "/", "waiting"))
			}
			close(app.release)
			readServed(t, blocked)
		})
	}
}
