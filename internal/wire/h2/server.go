package h2

import (
	"errors"
	"sync"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// Errors of streams.
var (
	errClosed = errors.New("h2: the connection has ended")
	errReset  = errors.New("h2: the client has given the request up")
	errBroken = errors.New("h2: the client has broken the protocol on the stream")
	errEnded  = errors.New("h2: the answer has ended already")
)

// Server has the settings of connections and runs their handlers. Its fields must not change once
// it has a connection.
type Server struct {
	MaxStreams     int // requests at once on a connection
	MaxHeaderBytes int // of a list of fields, as SETTINGS_MAX_HEADER_LIST_SIZE counts them

	// Times, in calls of Conn.Check.
	HeadTicks   int // for the head of a request, and for what a client has to say first
	IdleTicks   int // without a request, until the connection is closed
	PingTicks   int // without a sign of a client that has requests under way, until it is asked for one; and for that. 0 for no bound
	ClientTicks int // for each wait for a client, to send more and to take more; 0 for no bound

	ClientBytes int64 // of a body that have to come within ClientTicks of waiting for them; 0 for one byte

	setup    sync.Once
	handlers netutil.Workers[*Stream]
}

// maxIdle is how many goroutines wait for their next stream.
const maxIdle = 256

func (s *Server) beginStream(st *Stream) {
	s.setup.Do(func() { s.handlers.Run, s.handlers.Keep = (*Stream).handle, maxIdle })
	s.handlers.Go(st)
}

// Close ends the goroutines that wait for a stream. It does not end
// connections. It may be called more than once.
func (s *Server) Close() { s.handlers.Close() }
