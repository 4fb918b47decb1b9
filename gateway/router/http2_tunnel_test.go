package router_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/routertest"
	"github.com/keyway-go/keyway/internal/wire/websocket"
)

// socketApp takes WebSocket connections by HTTP/1.1 and sends back what comes of
// them, until they end.
func socketApp(t *testing.T, accept func(key string) string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != "GET" || r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-WebSocket-Version") != "13" || r.Header.Get("Origin") != "https://shop.example" {
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		if status := r.URL.Query().Get("status"); status != "" {
			var code int
			fmt.Sscan(status, &code)
			rw.WriteHeader(code)
			return
		}
		conn, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: chat\r\nKeyway-Token: 1\r\n\r\n", accept(r.Header.Get("Sec-WebSocket-Key")))
		io.Copy(conn, buf)
	}
}

// h2Socket is a client's stream 1 that asks for WebSocket (RFC 8441).
type h2Socket struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	dec  *hpack.Decoder
	head []string
}

func openH2Socket(t *testing.T, base string, change ...string) *h2Socket {
	t.Helper()
	s := &h2Socket{t: t, conn: kit.Dial(t, base)}
	s.in = bufio.NewReader(s.conn)
	s.dec = hpack.NewDecoder(4096, func(f hpack.HeaderField) { s.head = append(s.head, f.Name+": "+f.Value) })
	fields := []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/", ":authority", "shop.example", "x-key", "k", "sec-websocket-version", "13", "origin", "https://shop.example"}
	for i := 0; i < len(change); i += 2 {
		for j := 0; j < len(fields); j += 2 {
			if fields[j] == change[i] {
				fields[j+1] = change[i+1]
			}
		}
	}
	io.WriteString(s.conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+kit.H2Frame(4, 0, 0, "")+kit.H2Frame(4, 1, 0, "")+h2Head(false, fields...))
	return s
}

// next returns the next frame of stream 1, or settings.
func (s *h2Socket) next() (kind, flags byte, payload []byte) {
	s.t.Helper()
	for {
		var head [9]byte
		if _, err := io.ReadFull(s.in, head[:]); err != nil {
			s.t.Fatalf("the connection ends: %v", err)
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(s.in, payload); err != nil {
			s.t.Fatal(err)
		}
		if head[8] == 1 && head[3] != 8 || head[3] == 4 && head[4] == 0 {
			return head[3], head[4], payload
		}
	}
}

// status reads the head of the answer. The settings must have allowed the request.
func (s *h2Socket) status() string {
	s.t.Helper()
	for {
		switch kind, _, payload := s.next(); kind {
		case 4:
			if !bytes.Contains(payload, []byte("\x00\x08\x00\x00\x00\x01")) {
				s.t.Error("SETTINGS_ENABLE_CONNECT_PROTOCOL is not 1")
			}
		case 1:
			s.dec.Write(payload)
			return strings.TrimPrefix(s.head[0], ":status: ")
		default:
			return fmt.Sprintf("frame %d % x", kind, payload)
		}
	}
}

func (s *h2Socket) send(flags byte, payload string) {
	io.WriteString(s.conn, kit.H2Frame(0, flags, 1, payload))
}

// expect reads so much of what the app sends, and reports whether the stream has
// ended with it.
func (s *h2Socket) expect(want string) (end bool) {
	s.t.Helper()
	var got []byte
	for len(got) < len(want) || want == "" {
		kind, flags, payload := s.next()
		if kind != 0 {
			s.t.Fatalf("frame %d % x after %q", kind, payload, got)
		}
		got = append(got, payload...)
		if end = flags&1 != 0; end {
			break
		}
	}
	if string(got) != want {
		s.t.Fatalf("got %d bytes, %.40q, want %.40q", len(got), got, want)
	}
	return end
}

func TestWebSocketOverHTTP2(t *testing.T) {
	app := workertestURL(t, socketApp(t, websocket.Accept))
	site, _ := routertest.InFrontOf(t, app)
	s := openH2Socket(t, site.URL)
	if got := s.status(); got != "200" {
		t.Fatal(got)
	}
	head := fmt.Sprint(s.head)
	if !strings.Contains(head, "sec-websocket-protocol: chat") || strings.Contains(head, "accept") || strings.Contains(head, "upgrade") || strings.Contains(head, "keyway") {
		t.Errorf("%v", s.head)
	}
	large := "\x82\x7e\x40\x00" + strings.Repeat("x", 16<<10-4) // as large as a frame may be
	for range 3 {                                               // of the client's window of 64 KiB
		s.send(0, "\x81\x02hi")
		s.expect("\x81\x02hi")
		s.send(0, large[:1000])
		s.send(0, large[1000:])
		s.expect(large)
	}
	s.send(1, "")
	if !s.expect("") {
		t.Error("the app's end is no end of the stream")
	}
}

func workertestURL(t *testing.T, app http.HandlerFunc) string {
	return routertest.NewWorker(t, "app", app).URL
}

// What is no WebSocket does not look like one.
func TestWebSocketOverHTTP2IsRefused(t *testing.T) {
	rightApp := workertestURL(t, socketApp(t, websocket.Accept))
	wrongApp := workertestURL(t, socketApp(t, func(string) string { return "wrong" }))
	for name, tt := range map[string]struct {
		app    string
		change []string
		want   string
	}{
		"another protocol":    {rightApp, []string{":protocol", "connect-udp"}, "501"},
		"HTTP":                {rightApp, []string{":protocol", "h2c"}, "501"},
		"no accept":           {wrongApp, nil, "502"},
		"not switched":        {rightApp, []string{":path", "/?status=200"}, "502"},
		"no content":          {rightApp, []string{":path", "/?status=204"}, "502"},
		"refused":             {rightApp, []string{":path", "/?status=403"}, "403"},
		"no key":              {rightApp, []string{"x-key", ""}, "400"},
		"a GET":               {rightApp, []string{":method", "GET"}, "frame 3 00 00 00 01"},
		"another Origin":      {rightApp, []string{"origin", "https://other.example"}, "400"},
		"no path":             {rightApp, []string{":path", "x"}, "frame 3 00 00 00 01"},
		"a protocol's parts":  {rightApp, []string{":protocol", "websocket, h2c"}, "frame 3 00 00 00 01"},
		"in upper case, none": {rightApp, []string{":protocol", "WebSocket"}, "501"},
	} {
		t.Run(name, func(t *testing.T) {
			site, _ := routertest.InFrontOf(t, tt.app)
			if got := openH2Socket(t, site.URL, tt.change...).status(); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// Over HTTP/2, too, the operator says whether there is WebSocket.
func TestWebSocketOverHTTP2IsOfAllowedUpgrades(t *testing.T) {
	_, rt, _ := route(t, routertest.ThroughNetHTTP, routertest.Answer("no WebSocket"), func(c *router.Config) { c.Upgrades = []string{"chat"} })
	base, _ := frontOf(t, rt)
	if got := openH2Socket(t, base).status(); got != "501" {
		t.Error(got)
	}
}

// A client that gives a stream up ends the app's connection, and a server that is
// shut down says 1012 there, too.
func TestEndsOfWebSocketsOverHTTP2(t *testing.T) {
	ended := make(chan struct{}, 1)
	app := func(rw http.ResponseWriter, r *http.Request) {
		socketApp(t, websocket.Accept)(rw, r)
		ended <- struct{}{}
	}
	_, rt, _ := route(t, routertest.ThroughNetHTTP, app)
	base, f := frontOf(t, rt)
	s := openH2Socket(t, base)
	s.status()
	io.WriteString(s.conn, kit.H2Frame(3, 0, 1, "\x00\x00\x00\x08"))
	<-ended

	s = openH2Socket(t, base)
	s.status()
	s.send(0, "\x81\x02hi")
	s.expect("\x81\x02hi")
	done := make(chan error, 1)
	go func() { done <- f.Shutdown(context.Background()) }()
	s.expect(string(websocket.AppendClose(nil, 1012, "service restart")))
	s.send(1, "\x88\x82mask\x6e\x95")
	<-ended
	s.expect("")
	s.conn.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
