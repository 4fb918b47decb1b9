package router_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// FuzzFront sends bytes to a router, and compares what the worker's app gets to see
// with what net/http reads in them. The router may refuse what net/http takes, but
// it must not let a request through that is not there, or is another one.
func FuzzFront(f *testing.F) {
	for _, head := range []string{
		"GET /a?b HTTP/1.1\r\nHost: k\r\n", "get / HTTP/1.0\r\nHost: k\r\nConnection: keep-alive\r\n", "\r\nGET / HTTP/1.1\r\nHost: k\r\nX: y\r\nX: z\r\n",
		"GET http://b/x HTTP/1.1\r\nHost: k\r\n", "GET http://\"/ HTTP/1.0\r\n", "OPTIONS * HTTP/1.1\r\nHost: k\r\n", "GET /%C3%A9\xc3\xa9 HTTP/1.1\r\nHost: k:80\r\n", "GET / HTTP/1.1\nHost: k\n",
		"POST / HTTP/1.1\r\nHost: k\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: l\r\n", "PUT / HTTP/1.1\r\nHost: k\r\nContent-Length: 0\r\nContent-Length: 0\r\n",
		"POST / HTTP/1.1\r\nHost: k\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nT: u\r\n\r\nGET /2 HTTP/1.1\r\nHost: l\r\n",
		"POST / HTTP/1.1\r\nHost: k\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: l\r\n",
		"GET / HTTP/1.1\r\nHost: k\r\nConnection: x-hop, keyway-key\r\nX-Hop: 1\r\nKeyway_Token: 2\r\nX-Forwarded-For: 3\r\n",
		"GET / HTTP/1.1\r\nHost: k\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\nConnection: Upgrade\r\n", "GET / HTTP/1.1\r\nHost: k\r\nA: b\r\n c\r\n", "POST / HTTP/1.1\r\nHost: k\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nxGET / HTTP/1.1\r\nHost: k\r\n",
	} {
		f.Add([]byte(head))
	}
	seen := sightings{list: make(map[string][]string)}
	w := site.NewFake(f, "w1", seen.ServeHTTP)
	rt := site.NewRouter(f, router.Config{Members: hub.Of(w.Member), Keys: kit.KeySources(f, "host")})
	addr := site.ThroughServer(f, rt).Listener.Addr().String()
	f.Fuzz(func(t *testing.T, head []byte) {
		raw := append(bytes.Clone(head), "Connection: close\r\n\r\n"...)
		want, whole := reads(raw)
		if !whole || len(raw) > 8<<10 {
			return // the router would wait for more
		}
		client := seen.newClient()
		conn := kit.Must((&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}).Dial("tcp", addr))
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Write(raw); err != nil {
			return // it was refused before its end
		}
		answers, err := io.ReadAll(conn)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Fatalf("%q: the connection does not end; so far it says %q", raw, answers)
		}
		for _, got := range seen.of(client) {
			i := slices.Index(want, got)
			if i < 0 {
				t.Fatalf("%q:\nthe app saw %s\nnet/http reads %s", raw, got, want)
			}
			want = want[i+1:]
		}
	})
}

// reads returns what net/http reads in raw. whole is false if the last of its
// requests does not end the connection, or is not there as a whole.
func reads(raw []byte) (list []string, whole bool) {
	in := bufio.NewReader(bytes.NewReader(raw))
	for {
		for range 4 { // as its server does after a POST (RFC 9112, section 2.2)
			if b, err := in.Peek(1); err == nil && (b[0] == '\r' || b[0] == '\n') {
				_, _ = in.Discard(1)
			}
		}
		r, err := http.ReadRequest(in)
		if err != nil {
			return list, err != io.ErrUnexpectedEOF && err != io.EOF
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return list, err != io.ErrUnexpectedEOF
		}
		list = append(list, meaningOf(r, body))
		if r.Close { // net/http's server keeps one of HTTP/1.0 that asks for both
			return list, r.ProtoAtLeast(1, 1) || !fields.ConnectionNames(r.Header["Connection"])("keep-alive")
		}
	}
}

// meaningOf tells what a request means for an app: two that differ in this
// are two.
func meaningOf(r *http.Request, body []byte) string {
	var lines []string
	named := fields.ConnectionNames(r.Header["Connection"])
	for name, values := range r.Header {
		if fields.KindOf(name) == fields.EndToEnd && !named(name) && name != "Content-Length" && name != "Keep-Alive" && name != "Baggage" {
			lines = append(lines, fmt.Sprintf("%s: %q", name, values))
		}
	}
	slices.Sort(lines)
	return fmt.Sprintf("%s %s of %s {%s} %q", r.Method, r.URL.RequestURI(), r.Host, strings.Join(lines, ", "), body)
}

// sightings is an app that notes what it gets, by the client's address.
type sightings struct {
	mu      sync.Mutex
	clients int
	list    map[string][]string
}

func (s *sightings) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has not sent all of it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	client := r.Header.Get("X-Forwarded-For")
	s.list[client] = append(s.list[client], meaningOf(r, body))
}

// newClient returns another address of this machine.
func (s *sightings) newClient() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients++
	s.list = make(map[string][]string)
	n := s.clients
	return net.IPv4(127, byte(1+n>>16&127), byte(n>>8), byte(n)).String()
}

func (s *sightings) of(client string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list[client])
}
