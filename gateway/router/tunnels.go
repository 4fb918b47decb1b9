package router

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/netip"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// tunnel is a client's connection on which another protocol is spoken. It
// implements servedConn and [net.Conn].
type tunnel struct {
	net.Conn
	server *Server
}

func (t *tunnel) check(_ int64, p phase) {
	if p >= closing {
		t.close()
	}
}

func (t *tunnel) close()              { netutil.CloseNow(t.Conn) }
func (t *tunnel) client() netip.Addr  { return netip.Addr{} }
func (t *tunnel) IdleFor(int64) int64 { return 0 }
func (t *tunnel) EndUnused()          {}

// CloseWrite ends this side of the connection.
func (t *tunnel) CloseWrite() error { return netutil.CloseWrite(t.Conn) }

func (t *tunnel) Close() error {
	t.server.forget(t)
	return t.Conn.Close()
}

func (s *Server) tunnel(conn net.Conn) net.Conn {
	t := &tunnel{conn, s}
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
	if err != nil {
		return nil, nil, err
	}
	w.status = http.StatusSwitchingProtocols
	w.account()
	if s, ok := w.context.Value(serverKey{}).(*Server); ok {
		conn = s.tunnel(conn)
	}
	return conn, buf, nil
}

var _ http.Hijacker = (*clientWriter)(nil)
