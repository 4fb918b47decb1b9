package hop1

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
	"github.com/keyway-go/keyway/internal/wire/sock"
)

// errStale: the connection had ended before anything was written.
var errStale = errors.New("the connection had ended")

// conn is a connection to the server, for one request at a time. It belongs to that request, or
// lies in the pool and is guarded by the pool's mutex; broken is final.
type conn struct {
	nc     net.Conn
	raw    syscall.RawConn // nil if it has none
	bare   syscall.RawConn // raw, or that of what nc wraps (TLS); nil if that has none
	pooled bool            // has lain in the pool
	broken bool            // no other request may follow
	period int             // of the pool when it was put there
	wrote  uint64          // bytes, all requests together
	before uint64          // of them before the present request

	// State of start and Read. step and more are method values, made once.
	step    func(fd uintptr) bool
	more    func(fd uintptr) bool
	written bool // the first write has been made
	out, in []byte
	sent    int // bytes of out that were written
	got     int // bytes of in that were read
	err     error
}

func newConn(nc net.Conn) *conn {
	c := &conn{nc: nc, raw: sock.Raw(nc), bare: sock.Raw(netutil.Bare(nc))}
	c.step, c.more = c.writeThenRead, c.readMore
	return c
}

// start writes out and reads the first of the answer to in. If nothing was
// written the error wraps errStale.
func (c *conn) start(out, in []byte) (n int, err error) {
	if c.raw == nil {
		return c.startPlainly(out, in)
	}
	c.written, c.out, c.in, c.sent, c.got, c.err = false, out, in, 0, 0, nil
	c.before = c.wrote
	err = c.raw.Read(c.step)
	c.out, c.in = nil, nil
	switch {
	case err == nil:
		err = c.err
	case !c.written: // the deadline had passed, or the connection was closed
		c.sent = 0
	}
	c.wrote += uint64(c.sent)
	switch {
	case c.sent == 0 && err != nil:
		return 0, errors.Join(errStale, err)
	case c.sent < len(out):
		return c.finish(out[c.sent:], in)
	}
	return c.got, err
}

// writeThenRead is for raw.Read. It writes the request after raw.Read has made
// ready to wait, so that it can wait for the answer at once, without
// looking first whether there is one. A server may have said something, or ended, on a
// new connection before: nothing would wake raw.Read for that.
func (c *conn) writeThenRead(fd uintptr) bool {
	if c.written {
		return c.read(fd)
	}
	c.written = true
	if c.pooled && sock.Look(fd) != sock.Silent {
		c.err = errStale
		return true
	}
	c.sent, c.err = sock.Write(fd, c.out)
	if c.err == syscall.EAGAIN {
		c.err = nil
		return true // start writes the rest
	}
	return c.err != nil || c.sent < len(c.out) || !c.pooled && c.read(fd)
}

// read reads the first of the answer, and reports whether there was anything.
func (c *conn) read(fd uintptr) bool {
	c.got, c.err = sock.Read(fd, c.in)
	if c.err == syscall.EAGAIN {
		c.err = nil
		return false
	}
	if c.got == 0 && c.err == nil {
		c.err = io.EOF
	}
	return true
}

// finish writes the rest of a request and reads the first of the answer. A
// server may answer without having read everything, so that writing fails.
func (c *conn) finish(out, in []byte) (int, error) {
	var failed error
	if len(out) > 0 {
		var n int
		n, failed = c.nc.Write(out)
		c.wrote += uint64(n)
	}
	n, err := c.nc.Read(in)
	if n > 0 {
		c.broken = failed != nil
		return n, nil
	}
	return 0, errors.Join(failed, err)
}

// Read reads more of an answer. Before it waits, it acknowledges what has arrived, which the kernel
// would delay by up to 40 ms. A server that writes head and body separately, with Nagle's algorithm
// on, sends the body only then.
func (c *conn) Read(b []byte) (int, error) {
	if c.raw == nil {
		return c.nc.Read(b)
	}
	c.in, c.got, c.err = b, 0, nil
	err := c.raw.Read(c.more)
	c.in = nil
	return c.got, cmp.Or(err, c.err)
}

func (c *conn) readMore(fd uintptr) bool {
	read := c.read(fd)
	if !read {
		sock.Acknowledge(fd)
	}
	return read
}

// stale reports whether a connection that has lain in the pool has ended, or
// something came on it unasked.
func (c *conn) stale() bool {
	if !c.pooled || c.bare == nil {
		return false
	}
	silent := false
	err := c.bare.Control(func(fd uintptr) { silent = sock.Look(fd) == sock.Silent })
	return err != nil || !silent
}

// awaitEnd half-closes the connection, waits until the server has closed it,
// for at most d, and reports whether it did.
func (c *conn) awaitEnd(d time.Duration) bool {
	_ = c.nc.SetWriteDeadline(netutil.Past)
	_ = c.nc.SetReadDeadline(time.Now().Add(d))
	_ = netutil.CloseWrite(c.nc)
	dropped := make([]byte, 4<<10)
	for {
		if _, err := c.nc.Read(dropped); err != nil {
			return !errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}

// startPlainly is start for a connection that is not a socket.
func (c *conn) startPlainly(out, in []byte) (int, error) {
	if c.stale() {
		return 0, errStale
	}
	n, err := c.nc.Write(out)
	if n == 0 && err != nil {
		return 0, errors.Join(errStale, err)
	}
	return c.finish(out[n:], in)
}
