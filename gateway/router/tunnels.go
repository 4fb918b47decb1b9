package router

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/keyway-go/keyway/internal/wire/websocket"
)

// tunnelGrace is how long tunnels of other protocols than HTTP may continue when the server is shut
// down.
const tunnelGrace = 5 * time.Second

// tunnel is a client's connection on which another protocol is spoken. It
// implements servedConn and [net.Conn].
type tunnel struct {
	*websocket.Conn
	server *Server
}

func (t *tunnel) check(_ int64, p phase) {
	if p >= closing {
		t.GoAway(websocket.ServiceRestart, "service restart", tunnelGrace)
	}
}

func (t *tunnel) close()              { t.Conn.Close() }
func (t *tunnel) client() netip.Addr  { return netip.Addr{} }
func (t *tunnel) IdleFor(int64) int64 { return 0 }
func (t *tunnel) EndUnused()          {}

func (t *tunnel) Close() error {
	t.server.forget(t)
	return t.Conn.Close()
}

// tunnel begins the server's knowledge of a connection that was hijacked, on which
// that protocol is spoken now.
func (s *Server) tunnel(conn net.Conn, protocol string) net.Conn {
	t := &tunnel{websocket.NewConn(conn, protocol), s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[t] = struct{}{}
	t.check(0, phase(s.phase.Load()))
	return t
}

// serverKey is the key under which requests that net/http has read have their
// Server in their context.
type serverKey struct{}

// nameServer puts s into the context of the requests of its general server.
func nameServer(s *Server) {
	base := s.general.BaseContext
	s.general.BaseContext = func(l net.Listener) context.Context {
		ctx := context.Background()
		if base != nil {
			ctx = base(l)
		}
		return context.WithValue(ctx, serverKey{}, s)
	}
}

// Hijack implements [http.Hijacker], for a connection that changes protocols.
func (w *clientWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := w.control.Hijack()
	if err == nil {
		w.status = http.StatusSwitchingProtocols
		w.account()
	}
	s, ok := w.context.Value(serverKey{}).(*Server)
	if h2w, isH2 := w.ResponseWriter.(*h2Writer); isH2 {
		s, ok = h2w.conn.server, true
	}
	if ok && err == nil {
		conn = s.tunnel(conn, w.upgraded)
	}
	return conn, buf, err
}

var _ http.Hijacker = (*clientWriter)(nil)
