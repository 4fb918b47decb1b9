package conns

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// followedConn is a connection whose requests net/http reads. It answers a request of ambiguous
// framing (RFC 9112, section 6.1), which net/http hides from handlers, with 400 and closes the
// connection.
type followedConn struct {
	netutil.ReadAhead
	follower http1.Follower
	hijacked atomic.Bool // what comes are no requests any more
}

// Follow follows the requests on conn. ahead holds the bytes read from it before.
func Follow(conn net.Conn, ahead []byte) net.Conn {
	c := &followedConn{ReadAhead: netutil.ReadAhead{Conn: conn, Ahead: ahead}}
	if a, ok := conn.(*Admitted); ok {
		conn = a.Conn
	}
	if t, ok := conn.(*tls.Conn); ok {
		return &followedTLS{c, t}
	}
	return c
}

// followedTLS shows net/http that its connection is one of TLS.
type followedTLS struct {
	*followedConn
	tls *tls.Conn
}

// ConnectionState returns the state of the TLS connection, where net/http looks for it.
func (c *followedTLS) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// Read implements [net.Conn]. If the framing is ambiguous, it returns an error before the head's
// end, and net/http answers with 400.
func (c *followedConn) Read(p []byte) (n int, err error) {
	if _, err := c.follower.Check(nil); err != nil {
		return 0, err
	}
	n, err = c.ReadAhead.Read(p)
	if c.hijacked.Load() {
		return n, err
	}
	passed, bad := c.follower.Check(p[:n])
	if bad != nil && passed == 0 {
		return 0, bad
	}
	if bad != nil {
		return passed, nil
	}
	return n, err
}

func (c *followedConn) noteHijacked() { c.hijacked.Store(true) }

// LetGoOfHijacked makes the server's connections be followed no further once they are hijacked.
func LetGoOfHijacked(s *http.Server) {
	next := s.ConnState
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		if c, ok := conn.(interface{ noteHijacked() }); ok && state == http.StateHijacked {
			c.noteHijacked()
		}
		if next != nil {
			next(conn, state)
		}
	}
}
