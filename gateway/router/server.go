package router

import (
	"bytes"
	"context"
	"crypto/tls"
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

// Server is an HTTP server for a [Router]; make one with [NewServer]. It serves simple HTTP/1.1
// requests, and HTTP/2 by prior knowledge, at a fraction of net/http's cost. When anything else
// arrives on an HTTP/1.1 connection (an upgrade, a chunked or large body, anything unusual or
// wrong), an [http.Server] takes the connection over with the bytes read so far. Both ways have the
// same effect.
//
// A Server goes through the phases below, which Leave, Shutdown, Close and the end of the last
// connection change under mu. mu also guards the listeners and connections.
type Server struct {
	router  *Router
	general *http.Server      // for the connections that are handed over
	others  *netutil.Listener // where general gets them
	served  conns.Served      // of general
	limit   *conns.Limit
	h2      *h2.Server
	tls     *tls.Config
	date    http1.Date

	now  atomic.Int64 // ticks since the start
	wall atomic.Int64 // seconds since 1970, at the last tick
	stop chan struct{}
	done sync.WaitGroup // of the clock and general

	phase atomic.Int32 // a phase; changes with mu held

	mu        sync.Mutex // guards what follows
	begun     bool
	listeners map[*listening]struct{}
	accepting int // goroutines that take connections
	conns     map[servedConn]struct{}
	trimmed   int64         // tick of the last look at the connections of a client that has too many
	empty     chan struct{} // closed in phase ended
}

// phase is a part of the life of a server. Each follows on the one before.
type phase int32

const (
	serving phase = iota
	leaving       // connections are taken; clients are told to use no connection again
	closing       // none are taken, but for those that were on their way, and idle ones end
	ended         // there are none left of those that are served here
)

// servedConn is a connection that is served without net/http.
type servedConn interface {
	// check is called at each tick. From the phase leaving on the connection ends with
	// its requests, and in closing when it has none.
	check(now int64, p phase)
	// close ends the connection at once.
	close()
	conns.Idle
}

// Timeouts of connections, in ticks.
const (
	headTicks = int64(hop.ReadHeaderTimeout / conns.Tick)
	idleTicks = int64(hop.IdleTimeout / conns.Tick)

	// In the phase closing, how long a connection has to have been without a request to be
	// ended, since one may be on its way, and how long listeners take connections that are.
	quietTicks = int64(time.Second / conns.Tick)
	lastCall   = conns.Tick
)

// NewServer returns a server for the router; it starts with the first call of Serve or ServeTLS.
// general serves the connections that are handed over to it; its Handler is set to the router.
// Config.MaxConnections bounds all connections together.
func NewServer(rt *Router, general *http.Server) *Server {
	conns.LetGoOfHijacked(general)
	s := &Server{
		router: rt, general: general, others: netutil.NewListener(&net.TCPAddr{}), tls: tlsConfig(general), stop: make(chan struct{}),
		listeners: make(map[*listening]struct{}), conns: make(map[servedConn]struct{}), empty: make(chan struct{}),
	}
	general.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { rt.serveNetHTTP(s, w, r) })
	s.limit = conns.NewLimit(rt.cfg.MaxConnections, rt.log, s.makeRoom)
	changed := general.ConnState
	general.ConnState = func(conn net.Conn, state http.ConnState) {
		s.served.Note(conn, state, s.now.Load())
		if changed != nil {
			changed(conn, state)
		}
	}
	s.h2 = &h2.Server{
		MaxStreams:     maxH2Streams,
		MaxHeaderBytes: hop.MaxHeaderBytes,
		HeadTicks:      int(headTicks),
		IdleTicks:      int(idleTicks),
		PingTicks:      int(ticks(pingAfter)),
		ClientTicks:    int(ticks(rt.cfg.ClientTimeout)),
		ClientBytes:    rt.cfg.bodyBytes(),
	}
	rt.servers.Store(s, nil)
	return s
}

// Serve accepts connections from l and closes l at its end. It returns when Accept fails for good,
// or with [http.ErrServerClosed] when the server is shut down. It may be called for several
// listeners.
func (s *Server) Serve(l net.Listener) error {
	return s.serve(l, protocol{func(conn net.Conn, read []byte) { serveHTTP1(s, conn, read) }, tooMany})
}

// protocol is how the connections of a listener are served.
type protocol struct {
	start   func(conn net.Conn, read []byte) // serves conn, of which read has been read, and does not wait
	refusal string                           // what a client reads who has too many
}

func (s *Server) serve(l net.Listener, p protocol) error {
	to := s.listening(l, p)
	defer to.Close()
	if !s.track(to) {
		return http.ErrServerClosed
	}
	err := s.accept(to)
	if s.is(closing) {
		return http.ErrServerClosed
	}
	return err
}

// listening is a listener that the server accepts connections from.
type listening struct {
	net.Listener // counts them
	socket       net.Listener
	protocol     protocol
}

func (s *Server) listening(l net.Listener, p protocol) *listening {
	return &listening{s.limit.Listen(l), l, p}
}

// accept takes connections until that fails for good. It ends what accepting counts.
func (s *Server) accept(l *listening) error {
	defer s.change(func() { s.accepting-- })
	for {
		conn, err := netutil.Accept(l, s.router.cfg.Logger)
		if err != nil {
			return err
		}
		s.welcome(conn.(*conns.Admitted), l.protocol)
	}
}

// track begins the server's knowledge of a listener, unless it is closing. With
// the first one the server starts.
func (s *Server) track(l *listening) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.is(closing) {
		return false
	}
	if !s.begun {
		s.begun = true
		s.wall.Store(time.Now().Unix())
		s.done.Go(s.clock)
		s.done.Go(func() { _ = s.general.Serve(s.others) })
	}
	s.listeners[l] = struct{}{}
	s.accepting++
	return true
}

func (s *Server) is(p phase) bool { return phase(s.phase.Load()) >= p }

// keep begins the server's knowledge of a connection, unless it has ended.
func (s *Server) keep(c servedConn) bool { return s.replace(nil, c) }

// replace is keep for a connection that was known as another one, if old is not nil.
func (s *Server) replace(old, c servedConn) (kept bool) {
	s.change(func() {
		delete(s.conns, old)
		if kept = !s.is(ended); kept {
			s.conns[c] = struct{}{}
		}
	})
	return kept
}

func (s *Server) forget(c servedConn) { s.change(func() { delete(s.conns, c) }) }

// change changes what the server knows of its connections and listeners. A server that
// is closing ends with the last of them.
func (s *Server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	if phase(s.phase.Load()) == closing && len(s.conns) == 0 && s.accepting == 0 {
		s.phase.Store(int32(ended))
		close(s.empty)
	}
}

func (s *Server) dateText() string { return s.date.Text(time.Unix(s.wall.Load(), 0)) }

// clock goes through the connections at each tick.
func (s *Server) clock() {
	t := time.NewTicker(conns.Tick)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case at := <-t.C:
			s.wall.Store(at.Unix())
		}
		now := s.now.Add(1)
		s.mu.Lock()
		for c := range s.conns {
			c.check(now, phase(s.phase.Load()))
		}
		s.mu.Unlock()
	}
}

func (s *Server) makeRoom() {
	s.mu.Lock()
	defer s.mu.Unlock()
	conns.EndLongestIdle(s.allLocked(), s.now.Load())
}

// allLocked returns all connections, including those of net/http.
func (s *Server) allLocked() []conns.Idle {
	all := s.served.List()
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// Leave asks clients not to use their connections for further requests: by a header in answers over
// HTTP/1.1, and by GOAWAY over HTTP/2. The server still takes connections and requests until
// Shutdown, so load balancers have time to notice that it will end.
func (s *Server) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.is(leaving) {
		s.phase.Store(int32(leaving))
	}
}

// Shutdown takes no new connections except those already on their way, closes idle ones, and waits
// for running requests. Tunnels end at once. If ctx ends first, the error wraps its cause, and the
// caller should call Close.
func (s *Server) Shutdown(ctx context.Context) error {
	s.change(func() {
		if s.is(closing) {
			return
		}
		s.phase.Store(int32(closing))
		for l := range s.listeners {
			if rest := netutil.CloseForNew(l.socket); rest != nil {
				to := s.listening(rest, l.protocol)
				s.accepting++
				s.done.Go(func() { _ = s.accept(to) })
				time.AfterFunc(lastCall, func() { to.Close() })
			}
			l.Close()
		}
		for c := range s.conns {
			c.check(s.now.Load(), closing)
		}
	})
	select {
	case <-s.empty:
		return s.general.Shutdown(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends all connections at once. It may be called more than once.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.is(ended) {
		s.phase.Store(int32(ended))
		close(s.empty)
	}
	for l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		c.close()
	}
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.mu.Unlock()
	err := s.general.Close()
	s.others.Close()
	s.h2.Close()
	s.done.Wait()
	s.router.servers.Delete(s)
	return err
}

func (s *Server) handOver(conn net.Conn, read []byte) {
	if conn = conns.Follow(conn, read); !s.others.Put(conn, nil, nil) {
		conn.Close()
	}
}

// maxH2Streams is how many requests a client may have under way at once on one
// connection, and how many that it has given up may be worked on when another
// one is taken.
const maxH2Streams = 250

// pingAfter is how long a client that speaks HTTP/2 and has requests under way may
// be silent before it is asked whether it is there, and how long it has to say so.
const pingAfter = 15 * time.Second

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

func ticks(d time.Duration) int64 { return max(int64(d/conns.Tick), 1) }

// h2Preface is how a connection begins on which the client knows that HTTP/2 is
// spoken.
const h2Preface = "PRI * HTTP/2.0\r\n"

// speaksH2 reports whether a connection that begins so is one for serveH2.
func (s *Server) speaksH2(read []byte) bool {
	return bytes.HasPrefix(read, []byte(h2Preface)) && s.general.Protocols != nil && s.general.Protocols.UnencryptedHTTP2()
}
