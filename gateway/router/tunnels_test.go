package router_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/routertest"
	"github.com/keyway-go/keyway/internal/wire/websocket"
)

// tunnelApp changes to the protocol that it is asked for and says what then comes
// of its clients.
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
	all, _ := io.ReadAll(buf)
	a.came <- all
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

// A server that is shut down tells clients that speak WebSocket to connect again,
// between two frames, and waits until they and their app have closed.
func TestShutdownEndsWebSocketsBetweenFrames(t *testing.T) {
	kit.NoLeaks(t)
	app := newTunnelApp()
	rt, _ := throughLink(t, app.ServeHTTP)
	base, f := frontOf(t, rt)
	idle, idleIn := openTunnel(t, base, "WebSocket")
	<-app.conns
	busy, busyIn := openTunnel(t, base, "websocket")
	busyApp := <-app.conns

	busyApp.Write([]byte("\x81\x05he"))
	expect(t, busyIn, []byte("\x81\x05he"))
	ended := make(chan error, 1)
	go func() { ended <- f.Shutdown(context.Background()) }()
	restart := websocket.AppendClose(nil, 1012, "service restart")
	expect(t, idleIn, restart)
	answer := []byte("\x88\x82mask\x6e\x95")
	idle.Write(answer)
	idle.Close()
	if got := <-app.came; !bytes.Equal(got, answer) {
		t.Errorf("the app gets %q of the client", got)
	}
	busyApp.Write([]byte("llo\x81\x01x"))
	expect(t, busyIn, append([]byte("llo"), restart...))
	select {
	case err := <-ended:
		t.Fatalf("shut down with a client still there: %v", err)
	default:
	}
	busy.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What is no WebSocket cannot be told of it.
func TestShutdownEndsOtherProtocols(t *testing.T) {
	app := newTunnelApp()
	_, rt, _ := route(t, routertest.ThroughServer, app.ServeHTTP, func(c *router.Config) { c.Upgrades = []string{"chat"} })
	base, f := frontOf(t, rt)
	_, in := openTunnel(t, base, "chat")
	if err := f.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if b, err := in.ReadByte(); err == nil {
		t.Errorf("%q", b)
	}
}

// A client that does not go holds a shutdown up no longer than that may take.
func TestShutdownOfWebSocketsIsBounded(t *testing.T) {
	app := newTunnelApp()
	rt, _ := throughLink(t, app.ServeHTTP)
	base, f := frontOf(t, rt)
	_, in := openTunnel(t, base, "websocket")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Shutdown(ctx) }()
	expect(t, in, websocket.AppendClose(nil, 1012, "service restart"))
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	f.Close()
	if b, err := in.ReadByte(); err == nil {
		t.Errorf("%q of a server that is closed", b)
	}
}
