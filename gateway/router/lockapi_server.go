package router

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/conns"
)

// LockServer is an HTTP server for a [LockService]. It has at most LocksConfig.MaxConnections
// connections: further ones wait to be accepted, and those that have been without a request for
// longest are ended. Make one with [LockService.NewServer].
type LockServer struct {
	service *LockService
	http    *http.Server
	limit   *conns.Limit
	served  conns.Served
	began   time.Time
}

// NewServer returns a server for the lock service, with the settings of general, whose Handler is
// set.
func (s *LockService) NewServer(general *http.Server) *LockServer {
	srv := &LockServer{service: s, http: general, began: time.Now()}
	srv.limit = conns.NewLimit(s.cfg.MaxConnections, s.log, func() { conns.EndLongestIdle(srv.served.List(), srv.now()) })
	general.Handler = s
	general.ConnState = func(conn net.Conn, state http.ConnState) { srv.served.Note(conn, state, srv.now()) }
	return srv
}

// now returns the ticks since the start.
func (s *LockServer) now() int64 { return int64(time.Since(s.began) / conns.Tick) }

// Serve takes requests from l until it fails or the server is shut down, when it returns
// [http.ErrServerClosed]. They come over TLS if the server's settings have a TLSConfig.
func (s *LockServer) Serve(l net.Listener) error {
	if l = s.limit.Listen(l); s.http.TLSConfig != nil {
		return s.http.ServeTLS(l, "", "")
	}
	return s.http.Serve(l)
}

// Shutdown takes no more requests, has those that wait for keys answered with 503, and waits for
// those that run until ctx ends, as [http.Server.Shutdown] does.
func (s *LockServer) Shutdown(ctx context.Context) error {
	s.service.Leave()
	return s.http.Shutdown(ctx)
}

// Close ends all connections at once. It may be called more than once.
func (s *LockServer) Close() error {
	s.service.Leave()
	s.service.flushLog()
	return s.http.Close()
}
