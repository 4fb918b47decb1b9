// Package conns bounds the connections of clients, ends idle ones to make room, and refuses
// ambiguous framing on connections that net/http reads.
package conns

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// spareFiles returns how many of a limit of open files are left for connections
// and what they need: all but 128, or but a quarter if that is more. Half of those are for bodies
// in temporary files, the others for admin, gossip, the store and links.
func spareFiles(files uint64) uint64 { return files - min(max(128, files/4), files) }

// Default returns how many clients' connections fit into a limit of open files,
// where each may need another connection to a worker or an app.
func Default(files uint64) int {
	return int(max(spareFiles(min(files, 1<<30))/2, 1))
}

// WarnOfFiles warns of a bound on connections that the process has too few files for.
func WarnOfFiles(log *slog.Logger, connections int) {
	files := MaxOpenFiles()
	if spare := spareFiles(files); uint64(connections) > spare {
		log.Warn("MaxConnections (--max-connections) is more than the limit of open files leaves for connections: lower it, or raise the limit (RLIMIT_NOFILE, ulimit -n)",
			"connections", connections, "open_files", files, "left", spare)
	}
}

// spareTicks is how long a connection must have been without a request before it
// is ended to make room for another one.
const spareTicks = int64(time.Second / Tick)

// Limit bounds the connections of clients.
type Limit struct {
	slots    chan struct{} // holds one element for each connection
	log      *slog.Logger  // limited
	makeRoom func()        // ends idle connections; called at each tick by who waits for room
	open     atomic.Int64  // connections that were accepted and are not closed

	mu      sync.Mutex
	clients map[netip.Addr]int // connections of those that are counted; guarded by mu
}

// NewLimit makes a Limit of n connections. An accept that must wait for room warns log, and calls
// makeRoom at each [Tick].
func NewLimit(n int, log *slog.Logger, makeRoom func()) *Limit {
	return &Limit{slots: make(chan struct{}, n), log: log, makeRoom: makeRoom, clients: make(map[netip.Addr]int)}
}

// admit waits until there is room for another connection. It returns false if leaving is closed
// first.
func (l *Limit) admit(leaving <-chan struct{}) bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
	}
	l.log.Warn("no further connections are accepted until some end", "connections", cap(l.slots))
	clock := time.NewTicker(Tick)
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

// Dismiss makes room for another connection.
func (l *Limit) Dismiss() { <-l.slots }

// Open returns how many connections there are.
func (l *Limit) Open() int64 { return l.open.Load() }

// Listen returns a listener that takes connections from l, each as an
// [*Admitted]. Over the bound they wait to be accepted.
func (l *Limit) Listen(from net.Listener) net.Listener {
	return &limitedListener{Listener: from, limit: l, leaving: make(chan struct{})}
}

type limitedListener struct {
	net.Listener
	limit   *Limit
	once    sync.Once
	leaving chan struct{} // closed with the listener
}

func (l *limitedListener) Accept() (net.Conn, error) {
	if !l.limit.admit(l.leaving) {
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		l.limit.Dismiss()
		return nil, err
	}
	l.limit.open.Add(1)
	return &Admitted{Conn: conn, limit: l.limit}, nil
}

func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.leaving) })
	return l.Listener.Close()
}

// Admitted is a client's connection, which counts until it is closed.
type Admitted struct {
	net.Conn
	limit  *Limit
	client net.Addr // in place of the peer's; nil for that
	closed atomic.Bool

	counted netip.Addr // guarded by limit.mu; zero if it is not
}

// IsOf records the client that the connection's peer makes it for. It must be called before the
// connection is served.
func (c *Admitted) IsOf(client net.Addr) { c.client = client }

// RemoteAddr implements [net.Conn]: it is the client's address.
func (c *Admitted) RemoteAddr() net.Addr {
	if c.client != nil {
		return c.client
	}
	return c.Conn.RemoteAddr()
}

// Count counts the connection as one of the client's, until it is closed, and returns
// how many those are now.
func (c *Admitted) Count(client netip.Addr) int {
	l := c.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.closed.Load() && !c.counted.IsValid() {
		c.counted = client
		l.clients[client]++
	}
	return l.clients[client]
}

// Close implements [net.Conn], and makes room for another connection.
func (c *Admitted) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) {
		l := c.limit
		l.mu.Lock()
		if l.clients[c.counted] > 1 {
			l.clients[c.counted]--
		} else {
			delete(l.clients, c.counted) // if it was counted
		}
		l.mu.Unlock()
		l.open.Add(-1)
		l.Dismiss()
	}
	return err
}

// NetConn returns the connection that counts.
func (c *Admitted) NetConn() net.Conn { return c.Conn }

// SyscallConn implements [syscall.Conn].
func (c *Admitted) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite is what net/http and crypto/tls use to end a connection gently.
func (c *Admitted) CloseWrite() error { return netutil.CloseWrite(c.Conn) }

// ClientOf returns the client that the connections from that address are counted for: an IPv4
// address, or the /64 network of an IPv6 one.
func ClientOf(remote string) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	client := at.Addr().Unmap()
	if client.Is6() {
		if network, err := client.Prefix(64); err == nil {
			client = network.Addr()
		}
	}
	return client
}

// Idle is a connection on which no request is under way.
type Idle interface {
	// Client returns the client that the connection counts for; the zero Addr if none.
	Client() netip.Addr
	// IdleFor returns for how many ticks that has been so, 0 if it is not so.
	IdleFor(now int64) int64
	// EndUnused ends the connection, but no request that has come.
	EndUnused()
}

// EndLongestIdle ends those of the connections that have been without a request for longest: one,
// and a thirty-second of all that have for spareTicks. It returns how many these were.
func EndLongestIdle(conns []Idle, now int64) (ended int) {
	type spare struct {
		Idle
		ticks int64
	}
	var spares []spare
	for _, c := range conns {
		if ticks := c.IdleFor(now); ticks >= spareTicks {
			spares = append(spares, spare{c, ticks})
		}
	}
	slices.SortFunc(spares, func(a, b spare) int { return cmp.Compare(b.ticks, a.ticks) })
	spares = spares[:min(1+len(spares)/32, len(spares))]
	for _, c := range spares {
		c.EndUnused()
	}
	return len(spares)
}

// Served knows which connections of an [http.Server] are idle.
type Served struct {
	mu   sync.Mutex
	idle map[net.Conn]int64 // tick since when each has been without a request; guarded by mu
}

// Note takes down the new state of a connection.
func (s *Served) Note(conn net.Conn, state http.ConnState, now int64) {
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

// List returns the idle connections.
func (s *Served) List() []Idle {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Idle, 0, len(s.idle))
	for conn, since := range s.idle {
		list = append(list, idleServed{s, conn, since})
	}
	return list
}

// idleServed is an idle connection of an [http.Server].
type idleServed struct {
	of    *Served
	conn  net.Conn
	since int64 // tick
}

func (c idleServed) Client() netip.Addr      { return ClientOf(c.conn.RemoteAddr().String()) }
func (c idleServed) IdleFor(now int64) int64 { return now - c.since }

func (c idleServed) EndUnused() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if since, ok := c.of.idle[c.conn]; !ok || since != c.since {
		return
	}
	netutil.CloseNow(c.conn)
}

// Tick is the interval of a server's clock. Timeouts are this coarse, and the end of a client is
// noticed after that time.
const Tick = 200 * time.Millisecond

var began = time.Now()

// Ticks returns the ticks since the start of the process.
func Ticks() int64 { return int64(time.Since(began) / Tick) }
