package router_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/certs"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

// overTLS makes a router in front of a sidecar of an app, with TLS between them, and
// clients of the same worker.
func overTLS(t *testing.T, app http.HandlerFunc, atRouter, atWorker *gateway.PeerTLS) (rt *router.Router, newClient func() *client.Client) {
	t.Helper()
	c := site.NewWith(t, ring.Settings{Ring: ring.Config{Partitions: 16}, PeerTLS: true})
	w := c.StartReady(func(cfg *worker.Config) { cfg.PeerTLS = atWorker })
	s := httptest.NewServer(app)
	t.Cleanup(s.Close)
	w.Listen(t, kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(s.URL)))))
	members := c.Join("router")
	keys := kit.KeySources(t, "header:X-Key")
	rt = kit.Must(router.New(router.Config{Members: members, Keys: keys, PeerTLS: atRouter, Limits: gateway.Limits{NoHold: true}}))
	t.Cleanup(func() { rt.Close() })
	return rt, func() *client.Client {
		c := kit.Must(client.New(client.Config{Members: members, Keys: keys, PeerTLS: atRouter, Limits: gateway.Limits{NoHold: true}}))
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// Requests, streams both ways, large bodies and changes of protocol go through as they
// do without TLS.
func TestPeerTLSCarriesHTTP(t *testing.T) { eachWay(t, testPeerTLSCarriesHTTP) }

func testPeerTLSCarriesHTTP(t *testing.T, front way) {
	peers := kit.PeerTLS(t, kit.Must(certs.NewCA(t.TempDir(), "ours")), nil)
	step := make(chan struct{})
	rt, client := overTLS(t, func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Upgrade") != "":
			conn, in, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			io.Copy(conn, in)
		case r.URL.Path == "/stream":
			for i := range 3 {
				fmt.Fprintf(rw, "line %d\n", i)
				http.NewResponseController(rw).Flush()
				<-step
			}
		default:
			io.Copy(rw, r.Body)
		}
	}, peers, peers)
	s := front(t, rt)
	body := strings.Repeat("x", 1<<20)
	for name, via := range map[string]*http.Client{"router": s.HTTP, "client": {Transport: client()}} {
		base := map[string]string{"router": s.URL, "client": "http://app"}[name]
		for range 2 {
			req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", base+"/", strings.NewReader(body)))
			req.Header.Set("X-Key", "k")
			if res, got := kit.Do(t, via, req); res.StatusCode != 200 || got != body {
				t.Errorf("%s: %d, %d bytes", name, res.StatusCode, len(got))
			}
		}
		req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", base+"/stream", nil))
		req.Header.Set("X-Key", "k")
		res := kit.Must(via.Do(req))
		lines := bufio.NewReader(res.Body)
		for i := range 3 {
			if line, err := lines.ReadString('\n'); line != fmt.Sprintf("line %d\n", i) || err != nil {
				t.Errorf("%s: %q, %v", name, line, err)
			}
			step <- struct{}{}
		}
		res.Body.Close()
	}
	if s.HTTP2 {
		return
	}
	for range 2 {
		conn := kit.Dial(t, s.URL)
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		in := bufio.NewReader(conn)
		if res := kit.Must(http.ReadResponse(in, nil)); res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(res.Status)
		}
		io.WriteString(conn, "hello\n")
		if line, err := in.ReadString('\n'); line != "hello\n" || err != nil {
			t.Errorf("%q, %v", line, err)
		}
		conn.Close()
	}
}

// A worker whose certificate is none of a member gets no request, and none goes to it
// without TLS instead: nor over plain HTTP, where it is not known to take the link.
func TestTrapPeerTLSIsNotGivenUp(t *testing.T) {
	dir := t.TempDir()
	ours := kit.PeerTLS(t, kit.Must(certs.NewCA(dir, "ours")), nil)
	theirs := kit.PeerTLS(t, kit.Must(certs.NewCA(dir, "theirs")), nil)
	var ran atomic.Int64
	app := func(http.ResponseWriter, *http.Request) { ran.Add(1) }
	plain := site.NewFake(t, "plain", app)
	for name, addr := range map[string]string{"another CA": "", "a worker without TLS": plain.Addr} {
		t.Run(name, func(t *testing.T) {
			c := site.NewWith(t, ring.Settings{PeerTLS: true})
			w := c.StartReady(func(cfg *worker.Config) { cfg.PeerTLS = theirs })
			if own := w.Listen(t, w.Handler(http.HandlerFunc(app))); addr == "" {
				addr = own
			}
			for _, link := range []bool{true, false} {
				if err := w.Member.Announce(func(self *ring.Member) { self.Addr, self.Link = addr, link }); err != nil {
					t.Fatal(err)
				}
				rt := c.NewRouter(router.Config{PeerTLS: ours, Limits: gateway.Limits{NoHold: true}})
				defer rt.Close()
				s := site.ThroughServer(t, rt)
				if res, text := site.Get(t, s, "k"); res.StatusCode != 503 || ran.Load() != 0 {
					t.Errorf("link %v: %d %q, ran %d times", link, res.StatusCode, text, ran.Load())
				}
			}
		})
	}
}

// While one CA takes the place of another, with all files read again one after the
// other, no request fails, whichever connections are made.
func TestPeerTLSRollsOver(t *testing.T) {
	dir := t.TempDir()
	old, young := kit.Must(certs.NewCA(dir, "old")), kit.Must(certs.NewCA(dir, "young"))
	atRouter, atWorker := kit.NewPeerTLSFiles(t, old), kit.NewPeerTLSFiles(t, old)
	rt, client := overTLS(t, func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "ran") }, atRouter.PeerTLS, atWorker.PeerTLS)
	s := site.ThroughServer(t, rt)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var sent atomic.Int64
	for i := range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if res, text := site.Get(t, s, fmt.Sprint(i)); res.StatusCode != 200 || text != "ran" {
					t.Errorf("%d %q", res.StatusCode, text)
					return
				}
				sent.Add(1)
			}
		})
	}
	defer wg.Wait()
	defer stop()
	afresh := func() { // connections are made, beside those that are there
		t.Helper()
		req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", "http://app/", nil))
		req.Header.Set("X-Key", "k")
		for _, upgrade := range []string{"", "websocket"} {
			if upgrade != "" {
				req.Header.Set("Connection", "Upgrade")
				req.Header.Set("Upgrade", upgrade)
			}
			if res, text := kit.Do(t, &http.Client{Transport: client()}, req); res.StatusCode != 200 || text != "ran" {
				t.Errorf("%s: %d %q", upgrade, res.StatusCode, text)
			}
		}
		before := sent.Load()
		kit.Eventually(t, "requests go on", func() bool { return sent.Load() > before })
	}
	for _, step := range []struct {
		at  *kit.PeerTLSFiles
		cas []*certs.CA
	}{
		{atRouter, []*certs.CA{old, young}}, {atWorker, []*certs.CA{old, young}},
		{atWorker, []*certs.CA{young, old}}, {atRouter, []*certs.CA{young, old}},
		{atRouter, []*certs.CA{young}}, {atWorker, []*certs.CA{young}},
	} {
		step.at.Use(t, step.cas...)
		afresh()
	}
}

// When a CA goes at either end, connections with its certificates end, after the requests
// that they carry.
func TestTrapPeerTLSConnectionsEndWithTheirCA(t *testing.T) {
	dir := t.TempDir()
	old, young := kit.Must(certs.NewCA(dir, "old")), kit.Must(certs.NewCA(dir, "young"))
	for _, end := range []string{"router", "worker"} {
		t.Run(end, func(t *testing.T) {
			atRouter, atWorker := kit.NewPeerTLSFiles(t, old), kit.NewPeerTLSFiles(t, old)
			begun, finish := make(chan struct{}), make(chan struct{})
			rt, _ := overTLS(t, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					close(begun)
					<-finish
				}
				io.WriteString(rw, "ran")
			}, atRouter.PeerTLS, atWorker.PeerTLS)
			s := site.ThroughServer(t, rt)
			slow := make(chan string, 1)
			go func() {
				req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", s.URL+"/slow", nil))
				req.Header.Set("X-Key", "slow")
				res, text := kit.Do(t, s.HTTP, req)
				slow <- fmt.Sprint(res.StatusCode, " ", text)
			}()
			<-begun
			map[string]*kit.PeerTLSFiles{"router": atRouter, "worker": atWorker}[end].Use(t, young)
			kit.Eventually(t, "no request comes through any more", func() bool {
				res, _ := site.Get(t, s, "k")
				return res.StatusCode == http.StatusServiceUnavailable
			})
			close(finish)
			if got := <-slow; got != "200 ran" {
				t.Errorf("the request that was under way: %s", got)
			}
		})
	}
}

// Where TLS is optional, a worker that announces it is reached with it only, and another
// one without.
func TestTrapOptionalPeerTLS(t *testing.T) {
	dir := t.TempDir()
	ca := kit.Must(certs.NewCA(dir, "ours"))
	cert, key, err := ca.Issue(dir, "member", nil)
	if err != nil {
		t.Fatal(err)
	}
	optional := kit.Must(gateway.LoadPeerTLS(gateway.PeerTLSConfig{CertFile: cert, KeyFile: key, CAFile: ca.File, Optional: true}))
	for _, announced := range []bool{false, true} {
		c := site.NewWith(t, ring.Settings{Ring: ring.Config{Partitions: 16}, PeerTLS: true, PeerTLSOptional: true})
		w := c.StartReady(func(cfg *worker.Config) { cfg.PeerTLS = optional })
		addr := w.Listen(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "ran") })))
		if err := w.Member.Announce(func(self *ring.Member) { self.Addr, self.TLS = addr, announced }); err != nil {
			t.Fatal(err)
		}
		members := c.Join("router")
		var secure atomic.Bool
		rt := site.NewRouter(t, router.Config{Members: members, PeerTLS: optional, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &firstByte{Conn: conn, is: func(b byte) { secure.Store(b == 22) }}, err // of a handshake of TLS
		}})
		if res, text := site.Get(t, site.ThroughServer(t, rt), "k"); res.StatusCode != 200 || secure.Load() != announced {
			t.Errorf("announced %v: %d %s, over TLS %v", announced, res.StatusCode, text, secure.Load())
		}
	}
}

// firstByte tells of the first byte that is sent.
type firstByte struct {
	net.Conn
	once sync.Once
	is   func(byte)
}

func (c *firstByte) Write(p []byte) (int, error) {
	c.once.Do(func() { c.is(p[0]) })
	return c.Conn.Write(p)
}
