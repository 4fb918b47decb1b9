package router_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/routertest"
	"github.com/keyway-go/keyway/internal/wire/websocket"
)

// manyOnOne sends requests of the client at that address on one connection of HTTP/2, and returns
// how many were answered with which status. They go on until the connection is closed.
func manyOnOne(t *testing.T, s *routertest.Site, client string, requests int, fields ...string) (statuses map[string]int, conn net.Conn) {
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
	defer upstream.Close()
	socket := []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/", ":authority", "shop.example", "x-key", "k", "sec-websocket-version", "13", "origin", "https://shop.example"}
	upload := []string{":method", "POST", ":scheme", "http", ":path", "/", ":authority", "shop.example"}
	for name, fields := range map[string][]string{"tunnels": socket, "requests without a key": upload} {
		t.Run(name, func(t *testing.T) {
			var log kit.Buffer
			w := routertest.NewWorker(t, "a", socketApp(t, websocket.Accept))
			s := routertest.ThroughServer(t, routertest.New(t, router.Config{
				Members: routertest.NewCluster(t, w.Member), MaxConnections: 5, MaxConnectionsPerClient: 2, Hold: time.Second,
				Routes:        routertest.Routes(t, fmt.Sprintf(`name: a, key: "header:X-Key", without-key: %q`, upstream.URL)),
				ProxyProtocol: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}))
			var first net.Conn
			for i, want := range []string{"map[200:2 503:2]", "map[200:2 503:2]", "map[200:1 503:3]"} {
				statuses, conn := manyOnOne(t, s, fmt.Sprintf("192.0.2.%d", i+1), 4, fields...)
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
			statuses, conn := manyOnOne(t, s, "192.0.2.9", 1, ":method", "GET", ":scheme", "http", ":path", "/?status=418", ":authority", "h", "x-key", "k", "sec-websocket-version", "13")
			conn.Close()
			if statuses["503"] > 0 {
				t.Errorf("a client with an ordinary request: %v", statuses)
			}
			first.Close()
			kit.Eventually(t, "there is room for another client", func() bool {
				statuses, conn := manyOnOne(t, s, "192.0.2.9", 1, fields...)
				conn.Close()
				return statuses["200"] == 1
			})
		})
	}
}
