package link

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// Handler answers requests. ServeLink may refuse one instead (see
// ResponseWriter.Refuse); once it returns, the answer is complete. r may be
// kept, w and r.Body may not be used any more. A panic resets the stream.
type Handler interface {
	ServeLink(w *ResponseWriter, r *ServerRequest)
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(w *ResponseWriter, r *ServerRequest)

// ServeLink calls f.
func (f HandlerFunc) ServeLink(w *ResponseWriter, r *ServerRequest) { f(w, r) }

// Server is a worker's end of links. Its fields must not change after the first use. It serves
// until Shutdown or Close sets ended; mu guards that and the lists of listeners and connections.
type Server struct {
	Handler Handler
	Config  Config

	// MaxConns bounds the connections at one time; 0 means 4096. Beyond it, a new connection
	// replaces the oldest connection without a hello, or is closed if all have said hello.
	MaxConns int

	// Plain gets the connections of members that switch to HTTP/1.1 (Client.DialPlain), each as a
	// *[Plain]. nil: they are refused.
	Plain *netutil.Listener

	setup sync.Once
	cfg   Config

	mu        sync.Mutex
	listeners []net.Listener // that Serve was called with
	conns     map[*serverConn]struct{}
	greeting  list.List            // of *serverConn without a hello, the longest awaited first
	ended     bool                 // Shutdown or Close was called
	told      map[string]time.Time // by what failed in a handshake: when it was last logged
	wg        sync.WaitGroup       // connections, handlers included
}

func (s *Server) init() {
	s.setup.Do(func() {
		s.cfg = s.Config.withDefaults()
		s.conns = make(map[*serverConn]struct{})
		s.told = make(map[string]time.Time)
		s.MaxConns = cmp.Or(s.MaxConns, 4096)
	})
}

// Serve takes connections from ln until it is closed, which Shutdown and
// Close do. It always returns an error: after these two, ErrClosed.
func (s *Server) Serve(ln net.Listener) error {
	s.init()
	defer ln.Close()
	s.mu.Lock()
	s.listeners = append(s.listeners, ln)
	s.mu.Unlock()
	for !s.shut() {
		nc, err := netutil.Accept(ln, s.cfg.Logger)
		switch {
		case err == nil:
			go s.ServeConn(nc)
		case !s.shut():
			return err
		}
	}
	return ErrClosed
}

func (s *Server) shut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// errCrowded ends a connection when there are too many and it has not said hello.
var errCrowded = errors.New("link: too many connections")

// ServeConn serves one connection, closes it, and returns why it ended, nil
// for a regular end, when all of its handlers have returned. One for HTTP/1.1 it
// hands to Plain.
func (s *Server) ServeConn(nc net.Conn) error {
	s.init()
	sc := &serverConn{srv: s, remote: nc.RemoteAddr().String(), streams: make(map[uint64]*serverStream)}
	sc.init(nc, &s.cfg)
	sc.unread = sc.unreadAnswer
	if err := s.addConn(sc); err != nil {
		netutil.CloseNow(nc)
		return err
	}
	defer s.removeConn(sc)
	err := sc.run()
	if err != nil && !errors.Is(err, ErrClosed) && (sc.ended() || s.tells(err)) { // only a handshake fails without an end
		s.cfg.Logger.Warn("link: connection ended", "peer", nc.RemoteAddr(), "error", err)
	}
	return err
}

// addConn registers a connection, if there is room for it.
func (s *Server) addConn(sc *serverConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return ErrClosed
	}
	if len(s.conns) >= s.MaxConns {
		oldest := s.greeting.Front()
		if oldest == nil {
			s.cfg.Logger.Warn("link: a connection was refused: there are too many", "bound", s.MaxConns, "peer", sc.remote)
			return errCrowded
		}
		late := oldest.Value.(*serverConn)
		s.forgetLocked(late)
		late.fail(errCrowded)
	}
	s.conns[sc] = struct{}{}
	sc.greeting = s.greeting.PushBack(sc)
	s.wg.Add(1)
	return nil
}

func (s *Server) greeted(sc *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.greeting.Remove(sc.greeting)
}

func (s *Server) removeConn(sc *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(sc)
	s.wg.Done()
}

func (s *Server) forgetLocked(sc *serverConn) {
	delete(s.conns, sc)
	s.greeting.Remove(sc.greeting)
}

// tells reports whether to log the error of a handshake. Each cause is logged once a minute: clients
// retry all the time, and strangers can cause failures too.
func (s *Server) tells(err error) bool {
	what := "" // the protocol
	if mismatch, ok := errors.AsType[*MismatchError](err); ok {
		what = mismatch.What
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.told[what]; ok && time.Since(last) < time.Minute {
		return false
	}
	s.told[what] = time.Now()
	return true
}

// Renew makes all connected clients connect again; no request fails by it. Within
// a second the clients learn that no further request will start on their connection.
func (s *Server) Renew() {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	for sc := range s.conns {
		sc.outdated.Store(true)
	}
}

// Shutdown stops listening, tells every peer that no further request will
// start, and waits for the requests that have started. When ctx ends first,
// it closes what is left and returns ctx's cause.
func (s *Server) Shutdown(ctx context.Context) error {
	s.end((*serverConn).drain)
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.Close()
		return context.Cause(ctx)
	}
}

// Close ends all listeners and connections at once and cancels the requests
// under way. It does not wait for their handlers.
func (s *Server) Close() error {
	s.end(func(sc *serverConn) { sc.fail(ErrClosed) })
	return nil
}

// end takes no more connections, and ends all that there are by each.
func (s *Server) end(each func(*serverConn)) {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, ln := range s.listeners {
		ln.Close()
	}
	for sc := range s.conns {
		each(sc)
	}
}
