package worker

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// memberKey is the key of a context whose requests a member of the cluster sends.
type memberKey struct{}

// markMembers is for [http.Server.ConnContext].
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

// takesPlain reports whether a server of the worker takes connections without TLS.
func (w *Worker) takesPlain() bool { return w.cfg.PeerTLS == nil || w.cfg.PeerTLS.Optional() }

// guard returns h for requests over HTTP: those of members, and with Config.Direct
// those of others, of whose fields of Keyway's own none is believed but a key that
// is not to be found elsewhere.
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
