package gateway

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// spareFiles returns how many of that many open files are left for connections
// and what they may need: all but 64, or but an eighth if that is more.
func spareFiles(files uint64) uint64 { return files - min(max(64, files/8), files) }

// defaultMaxConnections returns how many clients' connections fit into that many
// open files, where each may need another connection to a worker or an app.
func defaultMaxConnections(files uint64) int {
	return int(max(spareFiles(min(files, 1<<30))/2, 1))
}

// warnOfFiles warns of a bound on connections that the process has too few files for.
func warnOfFiles(log *slog.Logger, connections int) {
	files := maxOpenFiles()
	if spare := spareFiles(files); uint64(connections) > spare {
		log.Warn("MaxConnections (--max-connections) is more than the limit of open files leaves for connections: lower it, or raise the limit (RLIMIT_NOFILE, ulimit -n)",
			"connections", connections, "open_files", files, "left", spare)
	}
}

// spareTicks is how long a connection must have been without a request before it
// is ended to make room for another one.
const spareTicks = int64(time.Second / tick)

// connLimit bounds the connections of clients.
type connLimit struct {
	slots    chan struct{} // holds one element for each connection
	log      *slog.Logger  // limited
	makeRoom func()        // ends idle connections; called at each tick by who waits for room
}

func newConnLimit(n int, log *slog.Logger, makeRoom func()) *connLimit {
	return &connLimit{make(chan struct{}, n), log, makeRoom}
}

// admit waits until there is room for another connection. It reports false if
// none is to be taken any more.
func (l *connLimit) admit(leaving <-chan struct{}) bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
	}
	l.log.Warn("no more connections are taken until some end", "connections", cap(l.slots))
	clock := time.NewTicker(tick)
	defer clock.Stop()
	for {
		select {
		case l.slots <- struct{}{}:
			return true
		case <-leaving:
			return false
		case <-clock.C:
			l.makeRoom()
		}
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

// endLongestIdle ends those of the connections that have been without a request
// for longest: one, and a thirty-second of all that have for spareTicks.
func endLongestIdle(conns []idleConn, now int64) {
	type spare struct {
		idleConn
		ticks int64
	}
	var spares []spare
	for _, c := range conns {
		if ticks := c.idle(now); ticks >= spareTicks {
			spares = append(spares, spare{c, ticks})
		}
	}
	slices.SortFunc(spares, func(a, b spare) int { return cmp.Compare(b.ticks, a.ticks) })
	for _, c := range spares[:min(1+len(spares)/32, len(spares))] {
		c.endIdle()
	}
}

// servedConns knows which connections of an [http.Server] are idle.
type servedConns struct {
	mu   sync.Mutex
	idle map[net.Conn]int64 // tick since when each has been without a request; guarded by mu
}

// note takes down what a connection does.
func (s *servedConns) note(conn net.Conn, state http.ConnState, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		if s.idle == nil {
			s.idle = make(map[net.Conn]int64)
		}
		s.idle[conn] = now
	default:
		delete(s.idle, conn)
	}
}

// list returns the idle connections.
func (s *servedConns) list() []idleConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]idleConn, 0, len(s.idle))
	for conn, since := range s.idle {
		list = append(list, idleServed{s, conn, since})
	}
	return list
}

// idleServed is an idle connection of an [http.Server].
type idleServed struct {
	of    *servedConns
	conn  net.Conn
	since int64 // tick
}

func (c idleServed) idle(now int64) int64 { return now - c.since }

func (c idleServed) endIdle() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if since, ok := c.of.idle[c.conn]; !ok || since != c.since {
		return
	}
	switch t := c.conn.(type) { // Close of a tls.Conn may wait for the client
	case *followedTLS:
		t.tls.NetConn().Close()
	case *tls.Conn:
		t.NetConn().Close()
	default:
		c.conn.Close()
	}
}
