package router

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/internal/wire/h2"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// Server is an HTTP server for a [Router]. Simple HTTP/1.1 requests, and
// HTTP/2 by prior knowledge, go a way of their own, which costs a fraction of
// net/http's. An HTTP/1.1 connection on which anything else comes (an upgrade, a
// chunked or large body, whatever is odd or wrong) is handed with what has been
// read of it to an [http.Server], and such requests over HTTP/2 to the router as
// an [http.Handler], so both ways mean the same. Make one with [NewServer].
type Server struct {
	router *Router
	server *http.Server      // for the connections that are handed over
	others *netutil.Listener // where the server gets them
	served conns.Served      // of the server
	limit  *conns.Limit
	h2     *h2.Server
	tls    *tls.Config
	date   http1.Date

	now  atomic.Int64 // ticks since the start
	wall atomic.Int64 // seconds since 1970, at the last tick
	stop chan struct{}
	done sync.WaitGroup // of the clock and the server

	mu        sync.Mutex // guards what follows
	listeners map[net.Listener]struct{}
	conns     map[servedConn]struct{}
	closing   bool
	empty     chan struct{} // closed when closing and conns is empty
}

// servedConn is a connection that is served on a way of the front's own.
type servedConn interface {
	// check is called at each tick, and with closing when no more requests are
	// to be taken.
	check(now int64, closing bool)
	// close ends the connection at once.
	close()
	conns.Idle
}

// Timeouts of connections, in ticks.
const (
	headTicks = int64(hop.ReadHeaderTimeout / conns.Tick)
	idleTicks = int64(hop.IdleTimeout / conns.Tick)
)

// NewServer returns a front for the router, which starts with the first call of
// Serve or ServeTLS. The server's Handler is set to the router; its other fields
// hold for the connections that are handed over. All connections together are
// bounded by Config.MaxConnections.
func NewServer(rt *Router, server *http.Server) *Server {
	server.Handler = rt
	conns.LetGoOfHijacked(server)
	f := &Server{
		router: rt, server: server, others: netutil.NewListener(&net.TCPAddr{}), tls: tlsConfig(server), stop: make(chan struct{}),
		listeners: make(map[net.Listener]struct{}), conns: make(map[servedConn]struct{}), empty: make(chan struct{}),
	}
	f.limit = conns.NewLimit(rt.cfg.MaxConnections, rt.log, f.makeRoom)
	changed := server.ConnState
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		f.served.Note(conn, state, f.now.Load())
		if changed != nil {
			changed(conn, state)
		}
	}
	f.h2 = newH2Server(f)
	return f
}

// Serve takes connections from l, which it closes in the end, until Accept fails
// for good, or the front is shut down: then it returns [http.ErrServerClosed]. It
// may be called for several listeners.
func (f *Server) Serve(l net.Listener) error {
	return f.serve(l, func(conn net.Conn) { serveHTTP1(f, conn) })
}

func (f *Server) serve(l net.Listener, start func(net.Conn)) error {
	l = f.limit.Listen(l)
	if !f.track(l) {
		l.Close()
		return http.ErrServerClosed
	}
	defer l.Close()
	for {
		conn, err := netutil.Accept(l, f.router.cfg.Logger)
		switch {
		case err == nil:
			start(conn)
		case f.isClosing():
			return http.ErrServerClosed
		default:
			return err
		}
	}
}

// track begins the front's knowledge of a listener, unless it is closing. With
// the first one the front starts.
func (f *Server) track(l net.Listener) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return false
	}
	if len(f.listeners) == 0 {
		f.wall.Store(time.Now().Unix())
		f.done.Go(f.clock)
		f.done.Go(func() { _ = f.server.Serve(f.others) })
	}
	f.listeners[l] = struct{}{}
	return true
}

func (f *Server) isClosing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closing
}

// keep begins the front's knowledge of a connection, unless it is closing.
func (f *Server) keep(c servedConn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closing {
		f.conns[c] = struct{}{}
	}
	return !f.closing
}

// forget ends the front's knowledge of a connection.
func (f *Server) forget(c servedConn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
	if f.closing && len(f.conns) == 0 {
		f.closeEmpty()
	}
}

func (f *Server) closeEmpty() {
	select {
	case <-f.empty:
	default:
		close(f.empty)
	}
}

// dateText returns the value of the Date field.
func (f *Server) dateText() string { return f.date.Text(time.Unix(f.wall.Load(), 0)) }

// clock goes through the connections at each tick.
func (f *Server) clock() {
	t := time.NewTicker(conns.Tick)
	defer t.Stop()
	for {
		select {
		case <-f.stop:
			return
		case at := <-t.C:
			f.wall.Store(at.Unix())
		}
		now := f.now.Add(1)
		f.mu.Lock()
		for c := range f.conns {
			c.check(now, f.closing)
		}
		f.mu.Unlock()
	}
}

// makeRoom ends connections that have been without a request for longest.
func (f *Server) makeRoom() {
	f.mu.Lock()
	defer f.mu.Unlock()
	served := f.served.List()
	for c := range f.conns {
		served = append(served, c)
	}
	conns.EndLongestIdle(served, f.now.Load())
}

// leaveLocked ends taking connections.
func (f *Server) leaveLocked() {
	if f.closing {
		return
	}
	f.closing = true
	for l := range f.listeners {
		l.Close()
	}
}

// Shutdown takes no more connections, ends the idle ones, and waits for the
// requests that run. If ctx ends first, its error wraps the cause, and the caller
// should call Close.
func (f *Server) Shutdown(ctx context.Context) error {
	f.mu.Lock()
	f.leaveLocked()
	if len(f.conns) == 0 {
		f.closeEmpty()
	}
	for c := range f.conns {
		c.check(f.now.Load(), true)
	}
	f.mu.Unlock()
	err := f.server.Shutdown(ctx)
	select {
	case <-f.empty:
	case <-ctx.Done():
		err = errors.Join(err, context.Cause(ctx))
	}
	return err
}

// Close ends all connections at once. It may be called more than once.
func (f *Server) Close() error {
	f.mu.Lock()
	f.leaveLocked()
	for c := range f.conns {
		c.close()
	}
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.mu.Unlock()
	err := f.server.Close()
	f.others.Close()
	f.h2.Close()
	f.done.Wait()
	return err
}

// handOver lets the server go on with conn, of which read has been read.
func (f *Server) handOver(conn net.Conn, read []byte) {
	if conn = conns.Follow(conn, read); !f.others.Put(conn, nil, nil) {
		conn.Close()
	}
}

// maxH2Streams is how many requests a client may have under way at once on one
// connection, and how many that it has given up may be worked on when another
// one is taken.
const maxH2Streams = 250

// newH2Server returns what the connections of a front have in common.
func newH2Server(f *Server) *h2.Server {
	return &h2.Server{
		MaxStreams:     maxH2Streams,
		MaxHeaderBytes: hop.MaxHeaderBytes,
		HeadTicks:      int(headTicks),
		IdleTicks:      int(idleTicks),
		ClientTicks:    int(ticks(f.router.cfg.ClientTimeout)),
		ClientBytes:    f.router.cfg.bodyBytes(),
	}
}

// tlsConfig returns the server's TLSConfig, which the server itself changes when
// it starts, offering the server's Protocols.
func tlsConfig(s *http.Server) *tls.Config {
	cfg := new(tls.Config)
	if s.TLSConfig != nil {
		cfg = s.TLSConfig.Clone()
	}
	cfg.NextProtos = nil
	if s.Protocols == nil || s.Protocols.HTTP2() {
		cfg.NextProtos = append(cfg.NextProtos, "h2")
	}
	if s.Protocols == nil || s.Protocols.HTTP1() {
		cfg.NextProtos = append(cfg.NextProtos, "http/1.1")
	}
	return cfg
}

// ticks returns how many ticks of the clock d is.
func ticks(d time.Duration) int64 { return max(int64(d/conns.Tick), 1) }

// h2Preface is how a connection begins on which the client knows that HTTP/2 is
// spoken.
const h2Preface = "PRI * HTTP/2.0\r\n"

// speaksH2 reports whether a connection that begins so is one for serveH2.
func (f *Server) speaksH2(read []byte) bool {
	return bytes.HasPrefix(read, []byte(h2Preface)) && f.server.Protocols != nil && f.server.Protocols.UnencryptedHTTP2()
}
