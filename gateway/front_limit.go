package gateway

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// defaultMaxConnections returns how many clients' connections fit into that many
// open files: what is left after 64 of them, or an eighth if that is more, is
// shared by clients and by the connections to workers that they may need.
func defaultMaxConnections(files uint64) int {
	files = min(files, 1<<30)
	reserve := max(64, files/8)
	return int(max((files-min(reserve, files))/2, 1))
}

// spareTicks is how long a connection must have been without a request before it
// is ended to make room for another one.
const spareTicks = int64(time.Second / tick)

// connLimit bounds the connections of clients.
type connLimit struct {
	slots   chan struct{} // holds one element for each connection
	waiting atomic.Int32  // listeners that wait for room
	warned  atomic.Int64  // tick from which the next warning may be logged
}

// admit waits until there is room for another connection. It reports false if the
// front takes no more.
func (f *Front) admit() bool {
	select {
	case f.limit.slots <- struct{}{}:
		return true
	default:
	}
	f.limit.waiting.Add(1)
	defer f.limit.waiting.Add(-1)
	if at, now := f.limit.warned.Load(), f.now.Load(); now >= at && f.limit.warned.CompareAndSwap(at, now+int64(time.Minute/tick)) {
		f.router.cfg.Logger.Warn("no more connections are taken until some end", "connections", cap(f.limit.slots))
	}
	select {
	case f.limit.slots <- struct{}{}:
		return true
	case <-f.leaving:
		return false
	}
}

// dismiss makes room for another connection.
func (l *connLimit) dismiss() { <-l.slots }

// admittedConn is a client's connection, which counts until it is closed.
type admittedConn struct {
	net.Conn
	limit  *connLimit
	closed atomic.Bool
}

func (c *admittedConn) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) {
		c.limit.dismiss()
	}
	return err
}

// SyscallConn implements [syscall.Conn].
func (c *admittedConn) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite is what net/http and crypto/tls use to end a connection gently.
func (c *admittedConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return nil
}

// idleConn is a connection on which no request is under way.
type idleConn interface {
	// idle returns for how many ticks that has been so, 0 if it is not so.
	idle(now int64) int64
	// endIdle ends the connection, but no request that has come.
	endIdle()
}

// makeRoom ends those connections that have been without a request for longest:
// one, and a thirty-second of all idle ones. f.mu is held.
func (f *Front) makeRoom(now int64) {
	type spare struct {
		idleConn
		ticks int64
	}
	var spares []spare
	consider := func(c idleConn) {
		if ticks := c.idle(now); ticks >= spareTicks {
			spares = append(spares, spare{c, ticks})
		}
	}
	for c := range f.conns {
		consider(c)
	}
	for _, c := range f.others.idleConns() {
		consider(c)
	}
	slices.SortFunc(spares, func(a, b spare) int { return cmp.Compare(b.ticks, a.ticks) })
	for _, c := range spares[:min(1+len(spares)/32, len(spares))] {
		c.endIdle()
	}
}

// handedOver is a connection that has been handed over and on which no request
// is under way.
type handedOver struct {
	to    *handovers
	conn  net.Conn
	since int64 // tick
}

func (c handedOver) idle(now int64) int64 { return now - c.since }

func (c handedOver) endIdle() {
	c.to.mu.Lock()
	defer c.to.mu.Unlock()
	if since, ok := c.to.idle[c.conn]; !ok || since != c.since {
		return
	}
	if t, ok := c.conn.(*followedTLS); ok {
		t.tls.NetConn().Close() // Close of the tls.Conn may wait for the client
		return
	}
	c.conn.Close()
}

// idleConns returns the idle ones of the connections that were handed over.
func (h *handovers) idleConns() []handedOver {
	h.mu.Lock()
	defer h.mu.Unlock()
	idle := make([]handedOver, 0, len(h.idle))
	for conn, since := range h.idle {
		idle = append(idle, handedOver{h, conn, since})
	}
	return idle
}

// note takes down what a connection that was handed over does.
func (h *handovers) note(conn net.Conn, state http.ConnState, now int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		h.idle[conn] = now
	default:
		delete(h.idle, conn)
	}
}
