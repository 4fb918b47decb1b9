package lockservice

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/conns"
)

// Server is an HTTP server for a [Service]. It has at most Config.MaxConnections
// connections: further ones wait to be accepted, and those that have been without a request for
// longest are ended. Make one with [Service.NewServer].
type Server struct {
	service *Service
	http    *http.Server
	limit   *conns.Limit
	served  conns.Served
	began   time.Time
}

// NewServer returns a server for the lock service, with the settings of general, whose Handler is
// set.
func (s *Service) NewServer(general *http.Server) *Server {
	srv := &Server{service: s, http: general, began: time.Now()}
	srv.limit = conns.NewLimit(s.cfg.MaxConnections, s.log, func() { conns.EndLongestIdle(srv.served.List(), srv.now()) })
	general.Handler = s
	general.ConnState = func(conn net.Conn, state http.ConnState) { srv.served.Note(conn, state, srv.now()) }
	return srv
}

// now returns the ticks since the start.
func (s *Server) now() int64 { return int64(time.Since(s.began) / conns.Tick) }

// Serve takes requests from l until it fails or the server is shut down, when it returns
// [http.ErrServerClosed]. They come over TLS if the server's settings have a TLSConfig.
func (s *Server) Serve(l net.Listener) error {
	if l = s.limit.Listen(l); s.http.TLSConfig != nil {
		return s.http.ServeTLS(l, "", "")
	}
	return s.http.Serve(l)
}

// Shutdown takes no more requests, has those that wait for keys answered with 503, and waits for
// those that run until ctx ends, as [http.Server.Shutdown] does.
func (s *Server) Shutdown(ctx context.Context) error {
	s.service.Leave()
	return s.http.Shutdown(ctx)
}

// Close ends all connections at once. It may be called more than once.
func (s *Server) Close() error {
	s.service.Leave()
	s.service.flushLog()
	return s.http.Close()
}
