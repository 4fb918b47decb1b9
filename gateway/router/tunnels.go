package router

import (
	"net"
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
func (t *tunnel) Client() netip.Addr  { return netip.Addr{} }
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
