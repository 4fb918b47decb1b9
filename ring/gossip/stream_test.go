package gossip

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// conn is one end of a stream: it reads from in and writes to out.
type conn struct {
	net         *Network
	owner       *Transport
	local, peer *net.UDPAddr
	in, out     *half
}

func newPair(n *Network, a, b *Transport) (*conn, *conn) {
	ab, ba := newHalf(), newHalf()
	return &conn{n, a, a.addr, b.addr, ba, ab}, &conn{n, b, b.addr, a.addr, ab, ba}
}

func (c *conn) Read(p []byte) (int, error) { return c.in.read(p) }

// Write never waits for the reader: a stream has room for all that memberlist
// sends. Across a cut it succeeds, and the data is gone.
func (c *conn) Write(p []byte) (int, error) {
	d, ok := c.net.delays(c.local.String(), c.peer.String(), 200*time.Millisecond)
	time.Sleep(d)
	if !ok {
		return len(p), nil
	}
	return c.out.write(p)
}

func (c *conn) Close() error {
	c.in.close()
	c.out.close()
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	delete(c.owner.open, c)
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.peer }

func (c *conn) SetDeadline(t time.Time) error     { return c.SetReadDeadline(t) }
func (c *conn) SetWriteDeadline(time.Time) error  { return nil }
func (c *conn) SetReadDeadline(t time.Time) error { c.in.setDeadline(t); return nil }

// half carries bytes in one direction.
type half struct {
	mu       sync.Mutex
	data     []byte
	closed   bool
	deadline time.Time
	changed  chan struct{} // closed and replaced at each change
}

func newHalf() *half { return &half{changed: make(chan struct{})} }

// change runs f and wakes readers.
func (h *half) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *half) close()                  { h.change(func() { h.closed = true }) }
func (h *half) setDeadline(t time.Time) { h.change(func() { h.deadline = t }) }

func (h *half) write(p []byte) (n int, err error) {
	h.change(func() {
		if h.closed {
			err = io.ErrClosedPipe
			return
		}
		h.data = append(h.data, p...)
		n = len(p)
	})
	return n, err
}

func (h *half) read(p []byte) (int, error) {
	for {
		h.mu.Lock()
		deadline, changed := h.deadline, h.changed
		if n := copy(p, h.data); n > 0 {
			h.data = h.data[n:]
			h.mu.Unlock()
			return n, nil
		}
		closed := h.closed
		h.mu.Unlock()
		if closed {
			return 0, io.EOF
		}
		if deadline.IsZero() {
			<-changed
			continue
		}
		left := time.Until(deadline)
		if left <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}
