package link

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
)

// TestEndProvesNothingUnderTLS: where somebody in between may be an enemy, an end of the
// connection is no proof that what waited has not begun; what the server says is.
func TestEndProvesNothingUnderTLS(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	for name, tc := range map[string]struct {
		end  func(nc net.Conn, peer *fakePeer)
		want error
	}{
		"the end of the stream":  {func(nc net.Conn, _ *fakePeer) { nc.(*tls.Conn).NetConn().Close() }, ErrLost},
		"close_notify before it": {func(nc net.Conn, _ *fakePeer) { nc.Close() }, ErrLost},
		"a refusal":              {func(_ net.Conn, peer *fakePeer) { peer.write(t, serverFrame('r')) }, ErrNotStarted},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			c := &Client{Addr: l.Addr().String(), TLS: &tls.Config{InsecureSkipVerify: true}, Config: logless()}
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				nc, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				l.Close()
				nc = tls.Server(nc, &tls.Config{Certificates: cert.TLS.Certificates, NextProtos: []string{ALPN}})
				defer nc.Close()
				peer := newFakePeer(nc)
				peer.handshake(t)
				peer.frame(t)
				peer.write(t, serverFrame('w'))
				tc.end(nc, peer)
				_, _ = io.Copy(io.Discard, nc)
			})
			_, err = c.Do(t.Context(), &Request{Method: "GET", Target: "/", Host: "h"})
			c.Close()
			want(t, err, tc.want)
			if tc.want == ErrLost {
				wantNot(t, err, ErrNotStarted)
			}
		})
	}
}

// A handshake that the other side gives up says why, also to who has sent something
// since.
func TestTLSRefusalIsHeard(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	links, others := Split(ln, SplitConfig{TLS: &tls.Config{
		Certificates: cert.TLS.Certificates, NextProtos: []string{ALPN}, ClientAuth: tls.RequireAnyClientCert,
	}})
	defer others.Close()
	defer links.Close()
	for range 50 {
		c := &Client{Addr: ln.Addr().String(), TLS: &tls.Config{InsecureSkipVerify: true}, Config: logless()}
		_, err := c.Do(context.Background(), post(""))
		if alert, ok := errors.AsType[*net.OpError](err); !ok || alert.Op != "remote error" {
			t.Errorf("%v", err)
		}
		c.Close()
	}
}
