// Package netutil has what the ends of all protocols do with connections,
// listeners and the goroutines that serve them.
package netutil

import (
	"context"
	"errors"
	"net"
	"runtime"
	"time"
)

// Past is a deadline that has passed.
var Past = time.Unix(1, 0)

// CloseNow closes a connection without a wait for its peer, which Close of a
// tls.Conn does.
func CloseNow(nc net.Conn) {
	Bare(nc).Close()
	nc.Close()
}

// Bare returns the connection below all that says what it wraps, as a tls.Conn does.
func Bare(nc net.Conn) net.Conn {
	for {
		over, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = over.NetConn()
	}
}

// Until returns a connection that is closed when ctx ends, if not before.
func Until(ctx context.Context, nc net.Conn) net.Conn {
	return until{nc, context.AfterFunc(ctx, func() { nc.Close() })}
}

type until struct {
	net.Conn
	forget func() bool
}

func (c until) Close() error {
	if !c.forget() {
		return nil // it is closed with ctx, or was before
	}
	return c.Conn.Close()
}

// CloseWrite ends this side of a connection. The error is
// [errors.ErrUnsupported] if it has no sides.
func CloseWrite(nc net.Conn) error {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// OnOneMachine reports whether both ends of a connection are sockets of this
// machine, between which what is sent has come. It is not known of systems other
// than Linux.
func OnOneMachine(nc net.Conn) bool {
	if runtime.GOOS != "linux" {
		return false
	}
	switch local := nc.LocalAddr().(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		remote, ok := nc.RemoteAddr().(*net.TCPAddr)
		return ok && local.IP.Equal(remote.IP)
	}
	return false
}

// ReadAhead is a connection whose first bytes, Ahead, were read before.
type ReadAhead struct {
	net.Conn
	Ahead []byte
}

// Read implements [net.Conn].
func (c *ReadAhead) Read(p []byte) (int, error) {
	if len(c.Ahead) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.Ahead)
	if c.Ahead = c.Ahead[n:]; len(c.Ahead) == 0 {
		c.Ahead = nil
	}
	return n, nil
}

// NetConn returns the wrapped connection.
func (c *ReadAhead) NetConn() net.Conn { return c.Conn }

// CloseWrite is what net/http uses to end a connection gently.
func (c *ReadAhead) CloseWrite() error { return CloseWrite(c.Conn) }
