package websocket

import (
	"net"
	"strings"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// ServiceRestart is the close code that tells clients to connect again because the server ends
// (registered with IANA as an addition to RFC 6455).
const ServiceRestart = 1012

// Conn is a client's connection that speaks another protocol than HTTP. Write copies the app's
// bytes to the client. Make it with [NewConn]. It is open, leaving after GoAway, and ended once no
// further byte is written; mu guards these changes.
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

// GoAway ends the connection without cutting a frame. As soon as the app's bytes end with a whole
// frame, the client gets a close frame with the code, and nothing more from the app. The client's
// answer still goes to the app, which sees that the client has closed. When the grace is over, the
// connection is closed. A connection of another protocol than WebSocket is closed at once. GoAway
// does not wait, and further calls do nothing.
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

// closableLocked reports whether the caller must send the close frame now.
func (c *Conn) closableLocked() bool {
	if c.leaving == nil || c.ended || !c.frames.AtBoundary() {
		return false
	}
	c.ended = true
	return c.known && !c.frames.Closed()
}

// sendClose sends the close frame. It ends with the connection at the latest.
func (c *Conn) sendClose() { _, _ = c.Conn.Write(c.leaving) }

// Write implements [net.Conn]. Once the client has been told to go away, it accepts bytes and drops
// them.
func (c *Conn) Write(b []byte) (int, error) {
	part := c.beginWrite(b)
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

// beginWrite begins a Write, and returns the part of b to send.
func (c *Conn) beginWrite(b []byte) []byte {
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
