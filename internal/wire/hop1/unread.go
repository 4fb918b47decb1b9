package hop1

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
	"github.com/keyway-go/keyway/internal/wire/sock"
)

// How long to wait for a proof on a busy machine. Without a proof in time, the request may have
// run.
const (
	refusalWait = 200 * time.Millisecond // for the reset that follows an end of the connection
	refusalLook = time.Millisecond
	goneWait    = 500 * time.Millisecond // for a server that has closed a connection to close its listener
)

// ended reports whether err may say that the server has ended the connection.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// closedBefore reports whether the server had closed the connection before any byte of the present
// request reached it, so that none was read. failed is the error of writing it and reading the
// answer.
//
// The end of a connection (FIN) acknowledges everything that arrived before, and the kernel answers
// bytes that arrive after a close with a reset (RST). Linux reports a reset behind an end as EPIPE
// and any other as ECONNRESET. A server that ends only its sending, reads on, and then resets the
// connection before it acknowledges anything looks the same, but it could not answer the request.
func (c *conn) closedBefore(failed error) bool {
	refused := errors.Is(failed, syscall.EPIPE)
	if c.raw == nil || errors.Is(failed, syscall.ECONNRESET) || !refused && !errors.Is(failed, io.EOF) || !netutil.OnOneMachine(c.nc) {
		return false
	}
	for waited := time.Duration(0); ; waited += refusalLook {
		var acknowledged uint64
		var met, err error
		if c.raw.Control(func(fd uintptr) { met = sock.Failure(fd); acknowledged, err = sock.Acknowledged(fd) }) != nil {
			return false
		}
		switch {
		case err != nil || acknowledged != c.before+1: // the handshake counts as one
			return false
		case refused || met == syscall.EPIPE:
			return true
		case met != nil || waited >= refusalWait:
			return false
		}
		time.Sleep(refusalLook)
	}
}

// leftUnread reports whether the server has ended the connection without having
// read the last of the present request. A request without a body has not begun then.
// failed is the error of writing it or reading the answer.
//
// A server that closes a connection with unread bytes resets it. A TCP server can also reset on
// purpose (SO_LINGER 0), which a Unix socket cannot. The reset of a TCP connection therefore counts
// only if the server as a whole is gone.
func (p *Pool) leftUnread(ctx context.Context, c *conn, failed error) bool {
	if !errors.Is(failed, syscall.ECONNRESET) || !netutil.OnOneMachine(c.nc) {
		return false
	}
	return c.nc.LocalAddr().Network() == "unix" || p.isGone(ctx)
}

// isGone reports whether the server takes no connections: it refuses one, or closes
// its listener before one is accepted. A process that dies closes its connections
// first.
func (p *Pool) isGone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, goneWait)
	defer cancel()
	nc, err := p.Dial(ctx)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
	}
	defer nc.Close()
	_ = nc.SetReadDeadline(time.Now().Add(goneWait))
	_, err = nc.Read(make([]byte, 1))
	return errors.Is(err, syscall.ECONNRESET)
}
