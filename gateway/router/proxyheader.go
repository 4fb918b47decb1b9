package router

import (
	"net"
	"net/netip"

	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/router/internal/proxyheader"
	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// welcome serves an accepted connection with p, if its client may have one more. A peer that speaks
// the PROXY protocol must first name its client.
func (s *Server) welcome(conn *conns.Admitted, p protocol) {
	s.router.counters.accepted.Add(1)
	if !isFrom(s.router.cfg.ProxyProtocol, conn.RemoteAddr().String()) {
		s.admit(conn, nil, p)
		return
	}
	c := arriving{conn, netip.Addr{}, s.now.Load()}
	if !s.keep(c) {
		conn.Close()
		return
	}
	go s.readProxyHeader(c, conn, p)
}

// arriving is a connection whose PROXY header is read, or whose TLS handshake is under way. It
// implements servedConn.
type arriving struct {
	net.Conn
	of    netip.Addr // the client that it counts for
	began int64      // tick
}

func (c arriving) check(now int64, p phase) {
	if age := c.IdleFor(now); age >= headTicks || p >= closing && age >= quietTicks {
		c.close()
	}
}

func (c arriving) close()                  { netutil.CloseNow(c.Conn) }
func (c arriving) Client() netip.Addr      { return c.of }
func (c arriving) IdleFor(now int64) int64 { return now - c.began }
func (c arriving) EndUnused()              { c.close() }

// readProxyHeader reads what a proxy says of a connection, which is served then.
func (s *Server) readProxyHeader(c arriving, conn *conns.Admitted, p protocol) {
	client, read, err := proxyheader.Parse(conn) // which the server's clock bounds
	defer s.forget(c)                            // when it is known as what it becomes
	if err != nil {
		s.router.log.Warn("a connection is closed: its peer is among --proxy-protocol, but sent no PROXY header", "peer", conn.RemoteAddr(), "error", err)
		c.close()
		return
	}
	if client != nil {
		conn.IsOf(client)
	}
	s.admit(conn, read, p)
}
