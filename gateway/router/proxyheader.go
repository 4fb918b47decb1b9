package router

import (
	"net/netip"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/router/internal/proxyheader"
)

// welcome serves an accepted connection with p, if its client may have one more. A peer that speaks
// the PROXY protocol must first name its client.
func (s *Server) welcome(conn *conns.Admitted, p protocol) {
	s.router.counters.accepted.Add(1)
	if !isFrom(s.router.cfg.ProxyProtocol, conn.RemoteAddr().String()) {
		s.admit(conn, nil, p)
		return
	}
	g := greeting{conn, s.now.Load()}
	if !s.keep(g) {
		conn.Close()
		return
	}
	go s.readProxyHeader(g, p)
}

// greeting is a connection whose PROXY header is read. It implements servedConn.
type greeting struct {
	*conns.Admitted
	began int64 // tick
}

func (g greeting) check(now int64, p phase) {
	if age := g.IdleFor(now); age >= headTicks || p >= closing && age >= quietTicks {
		g.close()
	}
}

func (g greeting) close()                  { g.Admitted.Close() }
func (g greeting) client() netip.Addr      { return netip.Addr{} }
func (g greeting) IdleFor(now int64) int64 { return now - g.began }
func (g greeting) EndUnused()              { g.close() }

// readProxyHeader reads what a proxy says of a connection, which is served then.
func (s *Server) readProxyHeader(g greeting, p protocol) {
	_ = g.SetReadDeadline(time.Now().Add(hop.ReadHeaderTimeout))
	client, read, err := proxyheader.Parse(g.Admitted)
	defer s.forget(g) // when it is known as what it becomes
	if err != nil {
		s.router.log.Warn("a connection is closed: its peer is among --proxy-protocol, but sent no PROXY header", "peer", g.RemoteAddr(), "error", err)
		g.close()
		return
	}
	_ = g.SetReadDeadline(time.Time{})
	if client != nil {
		g.IsOf(client)
	}
	s.admit(g.Admitted, read, p)
}
