package sock

import (
	"io"
	"net"
)

// BelowTLS returns nc as the connection to make a [crypto/tls.Conn] of, which [Open] then takes for
// a socket. ahead holds the bytes that were read from nc before.
func BelowTLS(nc net.Conn, ahead []byte) net.Conn {
	return &belowTLS{Conn: nc, socket: Open(nc, nil, nil), ahead: ahead}
}

// belowTLS is a connection below TLS. The reader of the connection owns all of it.
type belowTLS struct {
	net.Conn
	socket *Stream // nil if the connection is none
	ahead  []byte

	fd  uintptr // of the socket, during try
	try bool    // Read does not wait
}

// tryRead reads what TLS makes of the bytes that have arrived, as [Read] does of a socket.
func (b *belowTLS) tryRead(fd uintptr, tls io.Reader, p []byte) (int, error) {
	b.fd, b.try = fd, true
	n, err := tls.Read(p)
	b.try = false
	if n > 0 || err == io.EOF { // an end behind bytes comes again
		err = nil
	}
	return n, err
}

// Read implements [net.Conn]. That nothing has arrived is a temporary error, after which a
// [crypto/tls.Conn] can be read again.
func (b *belowTLS) Read(p []byte) (int, error) {
	switch {
	case len(b.ahead) > 0:
		n := copy(p, b.ahead)
		b.ahead = b.ahead[n:]
		return n, nil
	case b.socket == nil:
		return b.Conn.Read(p)
	case !b.try:
		return b.socket.Read(p)
	}
	n, err := Read(b.fd, p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (b *belowTLS) Write(p []byte) (int, error) {
	if b.socket == nil {
		return b.Conn.Write(p)
	}
	return b.socket.Write(p)
}

// NetConn returns the wrapped connection.
func (b *belowTLS) NetConn() net.Conn { return b.Conn }
