package router_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// manyOnOne sends requests of the client at that address on one connection of HTTP/2, and returns
// how many were answered with which status. They go on until the connection is closed.
func manyOnOne(t *testing.T, s *site.Front, client string, requests int, fields ...string) (statuses map[string]int, conn net.Conn) {
	t.Helper()
	conn = kit.Dial(t, s.URL)
	var out strings.Builder
	fmt.Fprintf(&out, "PROXY TCP4 %s 192.0.2.99 1 2\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", client)
	out.WriteString(kit.H2Frame(4, 0, 0, "") + kit.H2Frame(4, 1, 0, ""))
	flags := byte(4)
	if fields[1] == "GET" {
		flags |= 1 // it has no body
	}
	for i := range requests {
		out.WriteString(kit.H2Frame(1, flags, uint32(2*i+1), h2Head(false, fields...)[9:]))
	}
	io.WriteString(conn, out.String())
	statuses = make(map[string]int)
	answered := 0
	dec := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			statuses[f.Value]++
			answered++
		}
	})
	in := bufio.NewReader(conn)
	for answered < requests {
		var head [9]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			t.Fatalf("%v: %v", statuses, err)
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(in, payload); err != nil {
			t.Fatal(err)
		}
		if head[3] == 1 {
			dec.Write(payload)
		}
	}
	return statuses, conn
}

// What needs a connection of its own behind the router is bounded, of all and of each client, though
// it all comes over few connections. What exceeds that is told so and logged, and others are served.
func TestTrapConnectionsOnwardAreBounded(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(rw)
		rc.EnableFullDuplex()
		rc.Flush() // and the body goes on
		io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(upstream.Close) // after that of the connections, whose requests it awaits
	upload := []string{":method", "POST", ":scheme", "http", ":path", "/", ":authority", "shop.example"}
	var log kit.Buffer
	w := site.NewFake(t, "a", site.Answer("served"))
	s := site.ThroughServer(t, site.NewRouter(t, router.Config{
		Members: hub.Of(w.Member), MaxConnections: 5, MaxConnectionsPerClient: 2, Limits: gateway.Limits{Hold: time.Second},
		Routes:        site.Routes(t, fmt.Sprintf(`name: a, key: "header:X-Key", without-key: %q`, upstream.URL)),
		ProxyProtocol: loopback, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}))
	var first net.Conn
	for i, want := range []string{"map[200:2 503:2]", "map[200:2 503:2]", "map[200:1 503:3]"} {
		statuses, conn := manyOnOne(t, s, fmt.Sprintf("192.0.2.%d", i+1), 4, upload...)
		if i == 0 {
			first = conn
		}
		if got := fmt.Sprint(statuses); got != want {
			t.Errorf("client %d: %s, want %s", i, got, want)
		}
	}
	if !strings.Contains(log.String(), "--max-connections-per-client") {
		t.Errorf("logged: %s", log.String())
	}
	statuses, conn := manyOnOne(t, s, "192.0.2.9", 1, ":method", "GET", ":scheme", "http", ":path", "/", ":authority", "h", "x-key", "k")
	conn.Close()
	if statuses["503"] > 0 {
		t.Errorf("a client with an ordinary request: %v", statuses)
	}
	first.Close()
	kit.Eventually(t, "there is room for another client", func() bool {
		statuses, conn := manyOnOne(t, s, "192.0.2.9", 1, upload...)
		conn.Close()
		return statuses["200"] == 1
	})
}

// Connections that lie idle after a request make room for those that other requests need.
func TestTrapIdleConnectionsOnwardMakeRoom(t *testing.T) {
	const most = 3
	var all sync.WaitGroup // requests that are together at the upstream
	all.Add(most)
	var open atomic.Int64
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		all.Done()
		all.Wait()
	}))
	upstream.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	upstream.Start()
	defer upstream.Close()
	app := newTunnelApp()
	w := site.NewFake(t, "a", app.ServeHTTP)
	s := site.ThroughServer(t, site.NewRouter(t, router.Config{
		Members: hub.Of(w.Member), MaxConnections: most,
		Routes:        site.Routes(t, fmt.Sprintf(`name: a, key: "header:X-Key", without-key: %q`, upstream.URL)),
		ProxyProtocol: loopback,
	}))
	statuses, conn := manyOnOne(t, s, "192.0.2.1", most, ":method", "GET", ":scheme", "http", ":path", "/", ":authority", "h")
	if statuses["200"] != most {
		t.Fatal(statuses)
	}
	conn.Close()
	for used := range most {
		if n := open.Load(); n != int64(most-used) {
			t.Errorf("%d connections to the upstream while %d are used to the worker", n, used)
		}
		conn := kit.Dial(t, s.URL)
		io.WriteString(conn, "PROXY TCP4 192.0.2.1 192.0.2.99 1 2\r\nGET / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		<-app.conns
		kit.Eventually(t, "an idle connection is closed", func() bool { return open.Load() <= int64(most-used-1) })
	}
}

// A request waits 5 s for a connection to a worker that takes no link, and has 503 then.
func TestTrapAWorkerWithoutRoomIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log kit.Buffer
		at, far := net.Pipe()
		defer far.Close()
		go func() { io.Copy(io.Discard, far) }() // the worker never answers
		rt := kit.Must(router.New(router.Config{
			Members: hub.Of(site.Member("a", "a:1")), Keys: kit.KeySources(t, "header:X-Key"), Limits: gateway.Limits{ConnsPerWorker: 1},
			Dial:   func(context.Context, string, string) (net.Conn, error) { return at, nil },
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}))
		defer rt.Close()
		get := func(ctx context.Context) (status int, took time.Duration) {
			req := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
			req.Header.Set("X-Key", "k")
			rec, began := httptest.NewRecorder(), time.Now()
			rt.ServeHTTP(rec, req)
			return rec.Code, time.Since(began)
		}
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			get(ctx)
		}()
		synctest.Wait()
		if status, took := get(t.Context()); status != http.StatusServiceUnavailable || took != 5*time.Second {
			t.Errorf("status %d after %v", status, took)
		}
		if !strings.Contains(log.String(), "the connections to a worker are full") {
			t.Errorf("logged: %s", log.String())
		}
		leave()
		<-left
	})
}
