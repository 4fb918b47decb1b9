package h2

import (
	"errors"
	"sync"
)

// Errors of streams.
var (
	errClosed = errors.New("h2: the connection has ended")
	errReset  = errors.New("h2: the client has given the request up")
	errBroken = errors.New("h2: the client has broken the protocol on the stream")
	errEnded  = errors.New("h2: the answer has ended already")
)

// Server is what connections have in common. Its fields must not change once it
// has one.
type Server struct {
	MaxStreams     int // requests at once on a connection
	MaxHeaderBytes int // of a list of fields, as SETTINGS_MAX_HEADER_LIST_SIZE counts them

	// Times, in calls of Conn.Check.
	HeadTicks   int // for the head of a request, and for what a client has to say first
	IdleTicks   int // without a request, until the connection is closed
	ClientTicks int // for each wait for a client, to send more and to take more; 0 for no bound

	ClientBytes int64 // of a body that have to come within ClientTicks of waiting for them; 0 for one byte

	mu     sync.Mutex // guards what follows
	idle   []chan *Stream
	closed bool
}

// maxIdle is how many goroutines wait for their next stream. They are kept
// because their stacks have grown.
const maxIdle = 256

// begin runs the handler of a stream.
func (s *Server) begin(st *Stream) {
	s.mu.Lock()
	n := len(s.idle)
	if n == 0 {
		s.mu.Unlock()
		go s.work(st)
		return
	}
	next := s.idle[n-1]
	s.idle = s.idle[:n-1]
	s.mu.Unlock()
	next <- st
}

// work runs handlers one after the other, until the server is closed or there
// are enough goroutines that do.
func (s *Server) work(st *Stream) {
	next := make(chan *Stream, 1)
	for st != nil {
		handle(st)
		s.mu.Lock()
		enough := s.closed || len(s.idle) >= maxIdle
		if !enough {
			s.idle = append(s.idle, next)
		}
		s.mu.Unlock()
		if enough {
			return
		}
		st = <-next
	}
}

func handle(st *Stream) {
	defer st.finish()
	st.conn.handler(st)
}

// Close ends the goroutines that wait for a stream. It does not end
// connections. It may be called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, next := range s.idle {
		close(next)
	}
	s.idle = nil
}
