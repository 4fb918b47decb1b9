package router_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

func TestFrontServesTLS(t *testing.T) {
	kit.NoLeaks(t)
	rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		io.WriteString(rw, strings.Repeat(r.Header.Get("X-Forwarded-Proto"), int(n)))
	})
	server := site.NetServer()
	server.Protocols.SetHTTP2(true)
	f := router.NewServer(rt, server)
	cert, key, trusted := kit.Certificate(t)
	if err := f.ServeTLS(kit.Must(net.Listen("tcp", "127.0.0.1:0")), key, cert); err == nil {
		t.Error("a key is taken for a certificate")
	}
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	done := make(chan error, 1)
	go func() { done <- f.ServeTLS(l, cert, key) }()
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{RootCAs: trusted}}
		transport.Protocols.SetHTTP1(proto == "HTTP/1.1")
		transport.Protocols.SetHTTP2(proto == "HTTP/2.0")
		for _, size := range []int{1, 100_000} {
			req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", "https://"+l.Addr().String(), strings.NewReader(strings.Repeat("x", size))))
			req.Header.Set("X-Key", "k")
			res, body := kit.Do(t, &http.Client{Transport: transport}, req)
			if body != strings.Repeat("https", size) || res.Proto != proto {
				t.Errorf("%s: %d bytes, %.20q", res.Proto, len(body), body)
			}
		}
		transport.CloseIdleConnections()
	}
	// One that does not shake hands holds nothing up.
	silent := kit.Must(net.Dial("tcp", l.Addr().String()))
	defer silent.Close()
	conn := kit.Must(tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: trusted, NextProtos: []string{"h2"}}))
	defer conn.Close()
	io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+kit.H2Frame(4, 0, 0, ""))
	if _, err := io.ReadFull(conn, make([]byte, 9)); err != nil {
		t.Error(err)
	}
	if err := f.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("the idle connection: %v", err)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("the silent connection goes on")
	}
	f.Close()
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// Routers of a cluster with a gossip key share sessions.
func TestRoutersShareTickets(t *testing.T) {
	cache := tls.NewLRUClientSessionCache(1)
	for i := range 2 {
		members := hub.Of()
		members.Keys = [][]byte{[]byte(strings.Repeat("k", 32))}
		base, _ := secureFrontOf(t, site.NewRouter(t, router.Config{Members: members}))
		conn := kit.Must(tls.Dial("tcp", strings.TrimPrefix(base, "https://"), &tls.Config{ServerName: "h", InsecureSkipVerify: true, ClientSessionCache: cache}))
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		io.Copy(io.Discard, conn)
		if resumed := conn.ConnectionState().DidResume; resumed != (i > 0) {
			t.Errorf("connection %d has resumed a session: %v", i, resumed)
		}
		conn.Close()
	}
}
