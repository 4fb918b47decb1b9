package websocket

import (
	"net"
	"strings"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// ServiceRestart is the code of a close frame with which a server that ends tells
// clients to connect again (registered with IANA beside those of RFC 6455).
const ServiceRestart = 1012

// Conn is a client's connection on which another protocol than HTTP is spoken,
// as the one that copies an app's bytes to it sees it: Write takes what the app
// sends. Make one with [NewConn].
type Conn struct {
	net.Conn
	known bool // the protocol is WebSocket

	mu      sync.Mutex // guards what follows
	frames  Frames     // what Write has taken
	writing bool       // a Write is under way
	leaving []byte     // the close frame that is to be sent; nil until GoAway
	ended   bool       // nothing more is written
	grace   *time.Timer
}

// NewConn returns conn as one on which that protocol, as the field Upgrade names
// it, is spoken from the next byte on.
func NewConn(conn net.Conn, protocol string) *Conn {
	return &Conn{Conn: conn, known: strings.EqualFold(protocol, "websocket")}
}

// GoAway ends the connection without breaking a frame in two. As soon as what the
// app has sent ends with a frame, the client gets a close frame of that code, and
// nothing of the app any more; the client's answer to it, as all that it sends,
// goes on to the app, for which the client has then closed. That may take until
// the grace is over: then the connection is closed. One of another protocol than
// WebSocket is closed at once. GoAway does not wait, and does nothing if it was
// called before.
func (c *Conn) GoAway(code uint16, reason string, grace time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.leaving != nil:
		return
	case !c.known:
		go c.Conn.Close() // it may wait for a peer, as that of TLS does
	}
	c.leaving = AppendClose(nil, code, reason)
	c.grace = time.AfterFunc(grace, func() { netutil.CloseNow(c.Conn) })
	if !c.writing && c.closableLocked() {
		go c.sendClose()
	}
}

// closableLocked reports whether the close frame is to be sent now, which the
// caller must do.
func (c *Conn) closableLocked() bool {
	if c.leaving == nil || c.ended || !c.frames.AtBoundary() {
		return false
	}
	c.ended = true
	return c.known && !c.frames.Closed()
}

// sendClose sends the close frame. It ends with the connection at the latest.
func (c *Conn) sendClose() { _, _ = c.Conn.Write(c.leaving) }

// Write implements [net.Conn]. Once the client has been told to go away, it takes
// what comes and sends nothing.
func (c *Conn) Write(b []byte) (int, error) {
	part := c.begin(b)
	if len(part) > 0 {
		if n, err := c.Conn.Write(part); err != nil {
			return n, err
		}
	}
	c.mu.Lock()
	c.writing = false
	closes := c.closableLocked()
	c.mu.Unlock()
	if closes {
		c.sendClose()
	}
	return len(b), nil
}

// begin begins a Write, and returns how much of b is to be sent.
func (c *Conn) begin(b []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing = true
	switch {
	case c.ended:
		return nil
	case !c.known:
		return b
	case c.leaving != nil: // at no boundary
		return b[:c.frames.Take(b)]
	}
	for n := 0; n < len(b); {
		n += c.frames.Take(b[n:])
	}
	return b
}

// CloseWrite ends this side of the connection.
func (c *Conn) CloseWrite() error { return netutil.CloseWrite(c.Conn) }

// Close implements [net.Conn].
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.grace != nil {
		c.grace.Stop()
	}
	c.mu.Unlock()
	return c.Conn.Close()
}
