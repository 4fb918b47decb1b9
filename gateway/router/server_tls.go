package router

import (
	"crypto/tls"
	"fmt"
	"net"

	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/router/internal/tickets"
	"github.com/keyway-go/keyway/internal/wire/sock"
)

// ServeTLS accepts HTTPS connections from l, as Serve accepts those of HTTP. certFile and keyFile
// hold the certificate chain and the private key in PEM. Both may be empty if the TLSConfig of the
// http.Server given to NewServer has certificates. Its TLSConfig applies, and its Protocols say which
// protocols are offered. With a gossip key all routers of the cluster take each other's session
// tickets of TLS 1.3, unless TLSConfig asks for clients' certificates or has a WrapSession.
func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {
	cfg := s.tls.Clone()
	if has := len(cfg.Certificates) > 0 || cfg.GetCertificate != nil; !has || certFile != "" || keyFile != "" {
		cert, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			l.Close()
			return fmt.Errorf("router: the certificate for HTTPS: %w", err)
		}
		cfg.Certificates = append([]tls.Certificate{cert}, cfg.Certificates...)
	}
	tickets.Share(cfg, s.router.cfg.Members.Secrets("keyway TLS tickets"))
	return s.serve(l, protocol{start: func(conn net.Conn, read []byte) {
		t := tls.Server(sock.BelowTLS(conn, read), cfg)
		c := arriving{t, conns.ClientOf(conn.RemoteAddr().String()), s.now.Load()}
		if !s.keep(c) {
			conn.Close()
			return
		}
		go s.shake(c, t)
	}})
}

func (s *Server) shake(c arriving, t *tls.Conn) {
	defer s.forget(c)
	switch err := t.Handshake(); { // which the server's clock bounds
	case err != nil:
		s.router.cfg.Logger.Debug("TLS handshake failed", "client", t.RemoteAddr(), "error", err)
		c.close()
	case t.ConnectionState().NegotiatedProtocol == "h2":
		serveH2(s, t, nil, c)
	default:
		serveHTTP1(s, t, nil)
	}
}
