package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/internal/process"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/internal/wire/netutil"
	"github.com/keyway-go/keyway/ring"
)

// Server takes a worker's requests on one listener: from members of the cluster (docs/link.md), and
// with Config.Direct from others over HTTP/1.1 or HTTP/2 without TLS. Make one with
// [Worker.NewServer]. It serves until Shutdown or Close; link, http and limit have their own locks.
type Server struct {
	worker  *Worker
	link    *link.Server
	http    *http.Server
	share   int           // connections that may wait for their first bytes, or to be accepted
	limit   *conns.Limit  // of those that the http.Server serves
	served  conns.Served  // of the http.Server
	members sync.Map      // of the http.Server's connections, those just accepted that are members'; to *membership
	reloads atomic.Int64  // of Config.PeerTLS, from 1
	serves  chan struct{} // closed when it takes connections
}

// linkShare returns how many of the connections are reserved for routers' links. As many others may
// be open before it is known whether they are links.
func linkShare(connections int) int { return max(connections/8, 1) }

// NewServer returns a server for a handler that [Worker.Handler] or sidecar.New returned.
func (w *Worker) NewServer(h http.Handler) *Server {
	share := linkShare(w.cfg.MaxConnections)
	s := &Server{
		worker: w,
		link:   w.newLinkServer(h),
		share:  share,
		serves: make(chan struct{}),
		http:   process.NewServer(w.guard(h), slog.New(slog.DiscardHandler)),
	}
	s.reloads.Store(1)
	s.limit = conns.NewLimit(max(w.cfg.MaxConnections-2*share, 1), w.log, func() { conns.EndLongestIdle(s.served.List(), conns.Ticks()) })
	s.http.ConnContext, s.http.ConnState = s.markMembers, s.noteState
	conns.LetGoOfHijacked(s.http)
	return s
}

// newLinkServer returns a server for the link alone.
func (w *Worker) newLinkServer(h http.Handler) *link.Server {
	config := hop.LinkConfig(w.cfg.Members, hop.MaxHeaderBytes, w.log)
	config.MaxStreams = w.cfg.StreamsPerLink
	return &link.Server{Handler: w.linkHandler(h), Config: config, MaxConns: linkShare(w.cfg.MaxConnections)}
}

func (s *Server) noteState(conn net.Conn, state http.ConnState) {
	s.served.Note(conn, state, conns.Ticks())
	if state == http.StateClosed && isH2OverTLS(conn) {
		s.limit.Dismiss()
	}
}

// Serve accepts requests from l until it fails or the server is shut down; then it returns
// [http.ErrServerClosed].
func (s *Server) Serve(l net.Listener) error {
	if err := s.worker.cfg.Members.Announce(func(self *ring.Member) { self.Link, self.GRPC = true, s.worker.cfg.GRPC }); err != nil {
		return err
	}
	s.worker.warnIfOpen(l.Addr())
	links, others := link.Split(l, link.SplitConfig{Timeout: hop.ReadHeaderTimeout, TLS: s.worker.serverTLS(), Plain: s.worker.takesPlain(), Pending: s.share, Logger: s.worker.log})
	s.link.Plain = others
	close(s.serves)
	if s.worker.cfg.PeerTLS != nil {
		defer s.worker.cfg.PeerTLS.OnReload(func() {
			s.reloads.Add(1)
			s.link.Renew()
		})()
	}
	failed := make(chan error, 2)
	go func() { failed <- s.link.Serve(links) }()
	go func() { failed <- s.http.Serve(plainListener{s.limit.Listen(others), s}) }()
	err := <-failed
	if errors.Is(err, link.ErrClosed) {
		return http.ErrServerClosed
	}
	return err
}

// Dial connects a router of this process to the server, in memory, for router.Config.Own. The
// connection is a member's like any other. It waits until the server serves.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	select {
	case <-s.serves:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return dialInMemory(s.link), nil
}

func dialInMemory(s *link.Server) net.Conn {
	near, far := netutil.Pipe()
	go func() { _ = s.ServeConn(far) }() // it logs why it ends
	return near
}

// Shutdown takes no more requests and waits for running ones until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	return errors.Join(s.link.Shutdown(ctx), s.http.Shutdown(ctx))
}

// Close ends all connections at once.
func (s *Server) Close() error {
	return errors.Join(s.link.Close(), s.http.Close())
}

// plainListener is where a worker's server takes connections of clients that do
// not speak the link, as [conns.Limit.Listen] admits them.
type plainListener struct {
	net.Listener
	server *Server // knows those that are members'
}

// Accept implements [net.Listener]. A connection counts until it is closed. HTTP/2 over TLS, which
// net/http wants unwrapped, counts until [Server.noteState] sees its end.
func (l plainListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if bare := conn.(*conns.Admitted).Conn; isH2OverTLS(bare) {
		return bare, nil
	}
	followed := conns.Follow(conn, nil)
	if p, ok := conn.(*conns.Admitted).Conn.(*link.Plain); ok {
		l.server.members.Store(followed, l.server.membership(p))
	}
	return followed, nil
}

func isH2OverTLS(conn net.Conn) bool {
	t, ok := conn.(*tls.Conn)
	return ok && t.ConnectionState().NegotiatedProtocol == "h2"
}

// linkHandler returns the handler of requests over the link: h, except for calls between members,
// which the worker serves itself.
func (w *Worker) linkHandler(h http.Handler) link.Handler {
	own, ok := h.(link.Handler)
	if !ok {
		own = link.HTTPHandler(h)
	}
	return link.HandlerFunc(func(rw *link.ResponseWriter, r *link.ServerRequest) {
		if link.IsCall(r.Method) {
			w.serveCall(rw, r)
			return
		}
		own.ServeLink(rw, r)
	})
}

// memberKey is the key of a context whose requests a member of the cluster sends.
type memberKey struct{}

func (s *Server) markMembers(ctx context.Context, conn net.Conn) context.Context {
	if m, ok := s.members.LoadAndDelete(conn); ok {
		return context.WithValue(ctx, memberKey{}, m)
	}
	return ctx
}

// membership is that of the other end of a connection for HTTP.
type membership struct {
	server  *Server
	tls     *tls.ConnectionState // nil for none
	checked atomic.Int64         // after which of the server's reloads; 0 for none
}

func (s *Server) membership(p *link.Plain) *membership {
	m := &membership{server: s}
	if t, ok := p.Conn.(*tls.Conn); ok {
		state := t.ConnectionState()
		m.tls = &state
	}
	return m
}

// lasts reports whether the certificate shown is still one of a member.
func (m *membership) lasts() bool {
	reloads := m.server.reloads.Load()
	if m.tls == nil || m.checked.Load() == reloads {
		return true
	}
	if m.server.worker.cfg.PeerTLS.ServerConfig().VerifyConnection(*m.tls) != nil {
		return false
	}
	m.checked.Store(reloads)
	return true
}

// serverTLS returns the TLS configuration of a server of the worker, nil for no TLS. A client of
// the link must show a member's certificate; without Config.Direct, so must any other client.
func (w *Worker) serverTLS() *tls.Config {
	if w.cfg.PeerTLS == nil {
		return nil
	}
	members := w.cfg.PeerTLS.ServerConfig()
	others := members.Clone()
	members.NextProtos, others.NextProtos = []string{link.ALPN}, []string{"h2", "http/1.1"}
	if w.cfg.Direct {
		others.ClientAuth, others.VerifyConnection = tls.NoClientCert, nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.SupportedProtos, link.ALPN) {
			return members, nil
		}
		return others, nil
	}}
}

func (w *Worker) takesPlain() bool { return w.cfg.PeerTLS == nil || w.cfg.PeerTLS.Optional() }

// guard returns h for requests over HTTP: those of members, and with Config.Direct those of others,
// of whose fields of Keyway's own none is believed but a key that is not to be found elsewhere.
func (w *Worker) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		m, member := r.Context().Value(memberKey{}).(*membership)
		switch {
		case member && !m.lasts():
			rw.Header().Set("Connection", "close")
			hop.WriteRefusal(rw.Header(), &link.RefusedError{Reason: link.Unavailable})
			problem.Of(problem.Unavailable).ServeHTTP(rw, r)
			return
		case !member && !w.cfg.Direct:
			// A router that has not learned yet that the worker takes links sends again.
			hop.WriteRefusal(rw.Header(), &link.RefusedError{Reason: link.Unavailable})
			rw.Header().Del("Retry-After")
			w.counts.own(problem.NotDirect).ServeHTTP(rw, r)
			return
		case !member:
			key := r.Header[gateway.HeaderKey]
			fields.StripKeyway(r.Header)
			if len(w.cfg.Keys) == 0 && key != nil {
				r.Header[gateway.HeaderKey] = key
			}
		}
		h.ServeHTTP(rw, r)
	})
}

// warnIfOpen warns if any process that reaches an address passes for a member there.
func (w *Worker) warnIfOpen(addr net.Addr) {
	tcp, ok := addr.(*net.TCPAddr)
	if ok && !tcp.IP.IsLoopback() && w.takesPlain() && len(hop.LinkConfig(w.cfg.Members, 0, w.log).Secrets) == 0 {
		w.cfg.Logger.Warn("anyone who reaches this address can send requests as a member; set --gossip-key, or --peer-cert, on all members", "addr", addr)
	}
}
