package lockservice

import (
	"context"
	"net"
	"net/http"

	"github.com/keyway-go/keyway/gateway/internal/conns"
)

// Server is an HTTP server for a [Service], with at most Config.MaxConnections connections. Beyond
// that, new connections wait to be accepted, and the longest idle ones are closed. Make one with
// [Service.NewServer].
type Server struct {
	service *Service
	http    *http.Server
	limit   *conns.Limit
	served  conns.Served
}

// NewServer returns a server for the lock service with the settings of general, whose Handler it
// sets.
func (s *Service) NewServer(general *http.Server) *Server {
	srv := &Server{service: s, http: general}
	srv.limit = conns.NewLimit(s.cfg.MaxConnections, s.log, func() { conns.EndLongestIdle(srv.served.List(), conns.Ticks()) })
	general.Handler = s
	general.ConnState = func(conn net.Conn, state http.ConnState) { srv.served.Note(conn, state, conns.Ticks()) }
	return srv
}

// Serve accepts requests from l until it fails or the server is shut down; then it returns
// [http.ErrServerClosed]. It serves TLS if the server's settings have a TLSConfig.
func (s *Server) Serve(l net.Listener) error {
	if l = s.limit.Listen(l); s.http.TLSConfig != nil {
		return s.http.ServeTLS(l, "", "")
	}
	return s.http.Serve(l)
}

// Shutdown accepts no more requests, answers those that wait for keys with 503, and waits for
// running ones until ctx ends, as [http.Server.Shutdown] does.
func (s *Server) Shutdown(ctx context.Context) error {
	s.service.Leave()
	return s.http.Shutdown(ctx)
}

// Close ends all connections at once. It may be called more than once.
func (s *Server) Close() error {
	s.service.Leave()
	return s.http.Close()
}
