package router_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// tunnelApp changes to the protocol that it is asked for, returns what then comes
// of its clients, and says what that was.
type tunnelApp struct {
	conns chan net.Conn
	came  chan []byte // all that a client has sent, at the end of it
}

func newTunnelApp() *tunnelApp {
	return &tunnelApp{make(chan net.Conn, 10), make(chan []byte, 10)}
}

func (a *tunnelApp) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	conn, buf, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	a.conns <- conn
	var all bytes.Buffer
	_, _ = io.Copy(io.MultiWriter(&all, conn), buf)
	a.came <- all.Bytes()
}

// openTunnel changes protocols.
func openTunnel(t *testing.T, base, protocol string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn := kit.Dial(t, base)
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: h\r\nX-Key: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", conn.LocalAddr(), protocol)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", res, err)
	}
	return conn, in
}

func expect(t *testing.T, in io.Reader, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the client reads %q, %v, want %q", got[:n], err, want)
	}
}

// A server that is shut down ends its tunnels, whose clients and apps see it.
func TestShutdownEndsTunnels(t *testing.T) {
	kit.NoLeaks(t)
	app := newTunnelApp()
	_, rt, _ := route(t, site.ThroughServer, app.ServeHTTP, func(c *router.Config) { c.Upgrades = []string{"chat", "websocket"} })
	base, f := frontOf(t, rt)
	for _, protocol := range []string{"chat", "WebSocket"} {
		conn, in := openTunnel(t, base, protocol)
		io.WriteString(conn, "asked")
		expect(t, in, []byte("asked"))
		defer func() {
			if b, err := in.ReadByte(); err == nil {
				t.Errorf("%s: %q", protocol, b)
			}
			if got := <-app.came; string(got) != "asked" {
				t.Errorf("%s: the app gets %q of the client", protocol, got)
			}
		}()
	}
	if err := f.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
