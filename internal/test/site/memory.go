package site

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// memoryConn is one end of a connection in memory, of which either direction
// can end first.
type memoryConn struct {
	net.Conn          // to read from
	out      net.Conn // to write to
}

func memoryConns() (a, b net.Conn) {
	a1, b1 := net.Pipe()
	a2, b2 := net.Pipe()
	return memoryConn{a1, a2}, memoryConn{b2, b1}
}

func (c memoryConn) Write(b []byte) (int, error)        { return c.out.Write(b) }
func (c memoryConn) CloseWrite() error                  { return c.out.Close() }
func (c memoryConn) Close() error                       { return errors.Join(c.Conn.Close(), c.out.Close()) }
func (c memoryConn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }
func (c memoryConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// MemoryListener takes connections that Dial makes.
type MemoryListener struct{ *netutil.Listener }

// NewMemoryListener makes a listener.
func NewMemoryListener() MemoryListener {
	return MemoryListener{netutil.NewListener(&net.UnixAddr{Name: "memory", Net: "unix"})}
}

// Dial makes a connection, of which one side can be closed.
func (l MemoryListener) Dial(ctx context.Context) (net.Conn, error) {
	near, far := memoryConns()
	if !l.Put(far, ctx.Done(), nil) {
		return nil, cmp.Or(ctx.Err(), net.ErrClosed)
	}
	return near, nil
}
