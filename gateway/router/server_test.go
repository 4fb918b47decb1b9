package router_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// frontOf serves the router that throughLink started through a [router.Server], too.
func frontOf(t testing.TB, rt *router.Router) (base string, f *router.Server) {
	s := site.ThroughServer(t, rt)
	return s.URL, s.Server
}

// secureFrontOf is frontOf with TLS.
func secureFrontOf(t testing.TB, rt *router.Router) (base string, f *router.Server) {
	s := throughTLS(t, rt)
	return s.URL, s.Server
}

type frontWay func(testing.TB, *router.Router) (base string, f *router.Server)

// eachFront runs a test with a [router.Server] with and without TLS.
func eachFront(t *testing.T, test func(t *testing.T, frontOf frontWay)) {
	t.Run("HTTP", func(t *testing.T) { test(t, frontOf) })
	t.Run("TLS", func(t *testing.T) { test(t, secureFrontOf) })
}

// The fast way and net/http mean the same: raw requests get equal answers.
func TestFrontAnswersAsServerDoes(t *testing.T) { eachFront(t, testFrontAnswersAsServerDoes) }

func testFrontAnswersAsServerDoes(t *testing.T, frontOf frontWay) {
	rt, _ := throughLink(t, echo)
	fast, _ := frontOf(t, rt)
	server := httptest.NewUnstartedServer(rt)
	server.Config.MaxHeaderBytes = site.NetServer().MaxHeaderBytes
	if strings.HasPrefix(fast, "https") {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	slow := server.URL
	head := func(lines ...string) string {
		return strings.Join(append(lines, "", ""), "\r\n")
	}
	requests := map[string]string{
		"plain":               head("GET /a?x=1 HTTP/1.1", "Host: shop.example", "X-Key: k"),
		"HEAD":                head("HEAD /a HTTP/1.1", "Host: h", "X-Key: k"),
		"OPTIONS":             head("OPTIONS /a HTTP/1.1", "Host: h", "X-Key: k"),
		"escapes":             head("GET /a%20b/%2F?q=%zz HTTP/1.1", "Host: h", "X-Key: k"),
		"odd path":            head(`GET /a"b^c|d HTTP/1.1`, "Host: h", "X-Key: k"),
		"body":                head("POST / HTTP/1.1", "Host: h", "X-Key: k", "Content-Length: 4") + "body",
		"empty body":          head("POST / HTTP/1.1", "Host: h", "X-Key: k", "Content-Length: 0"),
		"large body":          head("PUT / HTTP/1.1", "Host: h", "X-Key: k", "Content-Length: 100000") + strings.Repeat("x", 100_000),
		"chunked body":        head("POST / HTTP/1.1", "Host: h", "X-Key: k", "Transfer-Encoding: chunked") + "4\r\nbody\r\n0\r\n\r\n",
		"expect":              head("POST / HTTP/1.1", "Host: h", "X-Key: k", "Content-Length: 4", "Expect: 100-continue") + "body",
		"lower case":          head("GET / HTTP/1.1", "host: h", "x-key: k", "accept: */*"),
		"no key":              head("GET / HTTP/1.1", "Host: h"),
		"bad key":             head("GET / HTTP/1.1", "Host: h", "X-Key: %ff"),
		"two keys":            head("GET / HTTP/1.1", "Host: h", "X-Key: a", "X-Key: b"),
		"forged":              head("GET / HTTP/1.1", "Host: h", "X-Key: k", "Keyway-Token: 1", "keyway-key: other"),
		"forwarded":           head("GET / HTTP/1.1", "Host: h", "X-Key: k", "X-Forwarded-For: 192.0.2.1", "x-forwarded-for: 192.0.2.2", "Forwarded: for=192.0.2.1"),
		"hop by hop":          head("GET / HTTP/1.1", "Host: h", "X-Key: k", "Connection: X-Hop", "X-Hop: 1", "Proxy-Authorization: x", "TE: trailers"),
		"two cookies":         head("GET / HTTP/1.1", "Host: h", "X-Key: k", "Cookie: a=1", "Cookie: b=2"),
		"no host":             head("GET / HTTP/1.1", "X-Key: k"),
		"bad length":          head("POST / HTTP/1.1", "Host: h", "X-Key: k", "Content-Length: +4") + "body",
		"two lengths":         head("POST / HTTP/1.1", "Host: h", "X-Key: k", "Content-Length: 4", "Content-Length: 5") + "body",
		"HTTP/1.0":            head("GET / HTTP/1.0", "X-Key: k"),
		"absolute":            head("GET http://other/x HTTP/1.1", "Host: h", "X-Key: k"),
		"CONNECT":             head("CONNECT h:1 HTTP/1.1", "Host: h:1", "X-Key: k"),
		"unknown method":      head("BREW / HTTP/1.1", "Host: h", "X-Key: k"),
		"garbage":             "\x00\x01\x02\r\n\r\n",
		"large header":        head("GET / HTTP/1.1", "Host: h", "X-Key: k", "X-Big: "+strings.Repeat("x", 80<<10)),
		"long key":            head("GET / HTTP/1.1", "Host: h", "X-Key: "+strings.Repeat("k", 4096)),
		"too long key":        head("GET / HTTP/1.1", "Host: h", "X-Key: "+strings.Repeat("k", 4097)),
		"status without body": head("GET /?status=204 HTTP/1.1", "Host: h", "X-Key: k"),
		"not modified":        head("GET /?status=304 HTTP/1.1", "Host: h", "X-Key: k"),
		"app's 421":           head("GET /?status=421 HTTP/1.1", "Host: h", "X-Key: k"),
		"stream":              head("GET /?stream=5 HTTP/1.1", "Host: h", "X-Key: k"),
		"trailer":             head("GET /?trailer=1 HTTP/1.1", "Host: h", "X-Key: k"),
		"large answer":        head("GET /?size=1000000 HTTP/1.1", "Host: h", "X-Key: k"),
		"keep-alive":          head("GET / HTTP/1.1", "Host: h", "X-Key: k", "Connection: keep-alive"),
	}
	for name, request := range requests {
		t.Run(name, func(t *testing.T) {
			want, got := sendRaw(t, slow, request), sendRaw(t, fast, request)
			if got != want {
				t.Errorf("the fast way answers\n%.600s\nthe server\n%.600s", got, want)
			}
		})
	}
}

// echo answers with what it was asked.
func echo(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	h, q := rw.Header(), r.URL.Query()
	h.Set("Date", "Fri, 20 Nov 2026 00:00:00 GMT")
	switch {
	case q.Has("status"):
		var status int
		fmt.Sscan(q.Get("status"), &status)
		h.Set("Keyway-Refused", "not-owner")
		rw.WriteHeader(status)
		return
	case q.Has("stream"):
		for i := range 5 {
			fmt.Fprintf(rw, "line %d\n", i)
			http.NewResponseController(rw).Flush()
		}
		return
	case q.Has("trailer"):
		h.Set("Trailer", "X-Sum")
		fmt.Fprint(rw, "sum follows")
		h.Set("X-Sum", "1")
		return
	case q.Has("size"):
		var size int
		fmt.Sscan(q.Get("size"), &size)
		rw.Write(make([]byte, size))
		return
	}
	r.Header.Del(gateway.HeaderToken)
	fmt.Fprintf(rw, "%s %s %s %d %q %v", r.Method, r.Host, r.RequestURI, len(body), body[:min(len(body), 10)], err)
	for _, name := range []string{"Accept", "Cookie", "Connection", "X-Hop", "Te", "Proxy-Authorization", "X-Key", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", gateway.HeaderKey, "Content-Length"} {
		fmt.Fprintf(rw, "\n%s: %q", name, r.Header.Values(name))
	}
}

// sendRaw sends a request and returns the answer in a form that can be
// compared: status, header in order of names, body, trailers.
func sendRaw(t *testing.T, base, request string) string {
	t.Helper()
	conn := kit.Must(kit.Connect(base))
	defer conn.Close()
	go io.WriteString(conn, request)
	method, _, _ := strings.Cut(request, " ")
	in := bufio.NewReader(conn)
	for {
		res, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return fmt.Sprintf("no answer: %v", err != nil)
		}
		if res.StatusCode == http.StatusContinue {
			continue
		}
		body, err := io.ReadAll(res.Body)
		if res.Header.Get("Date") != "" {
			res.Header.Set("Date", "-")
		}
		if len(body) > 0 { // whether a short stream gets a length is a matter of time
			res.Header.Del("Content-Length")
			res.TransferEncoding = nil
		}
		return fmt.Sprintf("%s %v close=%v\n%v\n%d bytes %.800q %v\n%v", res.Status, res.TransferEncoding, res.Close, res.Header, len(body), body, err, res.Trailer)
	}
}

func TestFrontKeepsConnections(t *testing.T) { eachFront(t, testFrontKeepsConnections) }

func testFrontKeepsConnections(t *testing.T, frontOf frontWay) {
	rt, _ := throughLink(t, echo)
	base, _ := frontOf(t, rt)
	conn := kit.Must(kit.Connect(base))
	defer conn.Close()
	// Requests in one write, a body between them, and one that is handed over.
	go io.WriteString(conn, strings.Repeat("GET /1 HTTP/1.1\r\nHost: h\r\nX-Key: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: h\r\nX-Key: b\r\nContent-Length: 4\r\n\r\nbody", 3)+
		"POST /3 HTTP/1.1\r\nHost: h\r\nX-Key: c\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nmore\r\n0\r\n\r\nGET /4 HTTP/1.1\r\nHost: h\r\nX-Key: d\r\nConnection: close\r\n\r\n")
	in := bufio.NewReader(conn)
	for i, want := range []string{"/1", "/2", "/1", "/2", "/1", "/2", "/3", "/4"} {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		body, _ := io.ReadAll(res.Body)
		if !strings.Contains(string(body), " "+want+" ") {
			t.Errorf("answer %d: %.60s, want the one for %s", i, body, want)
		}
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("after close: %v", err)
	}
}

func TestFrontClientLeaves(t *testing.T) { eachFront(t, testFrontClientLeaves) }

func testFrontClientLeaves(t *testing.T, frontOf frontWay) {
	entered, left := make(chan struct{}), make(chan struct{})
	rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	})
	base, _ := frontOf(t, rt)
	conn := kit.Must(kit.Connect(base))
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n\r\n")
	<-entered
	conn.Close()
	<-left
	kit.Eventually(t, "it is counted", func() bool { return rt.Stats().ClientGone == 1 })
}

func TestFrontShutdown(t *testing.T) { eachFront(t, testFrontShutdown) }

func testFrontShutdown(t *testing.T, frontOf frontWay) {
	entered, release := make(chan struct{}), make(chan struct{})
	rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		io.WriteString(rw, "done")
	})
	base, f := frontOf(t, rt)
	idle := kit.Must(kit.Connect(base))
	defer idle.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, body := kit.Fetch(t, base, "X-Key", "k"); body != "done" {
			t.Errorf("the running request got %q", body)
		}
	})
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown with a request that runs: %v", err)
	}
	if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the idle connection: %v", err)
	}
	close(release)
	if err := f.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if _, err := kit.Connect(base); err == nil {
		t.Error("it still takes connections")
	}
}

// Close ends what is done for clients, over HTTP/1.1 and HTTP/2, at workers with and
// without the link.
func TestFrontCloseEndsRequests(t *testing.T) { eachFront(t, testFrontCloseEndsRequests) }

func testFrontCloseEndsRequests(t *testing.T, frontOf frontWay) {
	for _, hop := range []string{"link", "HTTP"} {
		for _, proto := range []string{"HTTP/1.1", "HTTP/2"} {
			t.Run(hop+", "+proto, func(t *testing.T) {
				left := make(chan struct{})
				app := func(rw http.ResponseWriter, r *http.Request) {
					io.WriteString(rw, "part")
					http.NewResponseController(rw).Flush()
					select {
					case <-r.Context().Done():
						close(left)
					case <-t.Context().Done():
					}
				}
				var rt *router.Router
				if hop == "link" {
					rt, _ = throughLink(t, app)
				} else {
					rt = site.NewRouter(t, router.Config{Members: hub.Of(site.Member("w1", site.Serve(t, http.HandlerFunc(app)).URL))})
				}
				base, f := frontOf(t, rt)
				req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", base, nil))
				req.Header.Set("X-Key", "k")
				res := kit.Must(kit.Client(t, proto).Do(req))
				defer res.Body.Close()
				f.Close()
				select {
				case <-left:
				case <-time.After(time.Minute):
					t.Error("the app still works for a client that is cut off")
				}
			})
		}
	}
}

// Before the end requests are answered as ever, also those on connections that were
// idle, with the word that the connection is not to be used again.
func TestFrontLeaves(t *testing.T) { eachFront(t, testFrontLeaves) }

func testFrontLeaves(t *testing.T, frontOf frontWay) {
	rt, _ := throughLink(t, echo)
	base, f := frontOf(t, rt)
	const simple, other = "GET / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n\r\n", "POST / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	type client struct {
		net.Conn
		in *bufio.Reader
	}
	dial := func() client {
		conn := kit.Must(kit.Connect(base))
		t.Cleanup(func() { conn.Close() })
		return client{conn, bufio.NewReader(conn)}
	}
	ask := func(c client, request string, last bool) {
		t.Helper()
		io.WriteString(c, request)
		res, err := http.ReadResponse(c.in, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		if res.StatusCode != http.StatusOK || res.Close != last {
			t.Fatalf("%d, close %v, want %v", res.StatusCode, res.Close, last)
		}
	}
	fresh, used, general := dial(), dial(), dial()
	ask(used, simple, false)
	ask(general, other, false)
	f.Leave()
	for _, c := range []client{fresh, used, general, dial()} {
		ask(c, simple, true)
		if _, err := c.in.ReadByte(); err != io.EOF {
			t.Errorf("after the last answer: %v", err)
		}
	}
	ask(dial(), other, true)
}

// A request that comes while the connection is taken for idle is answered: when the
// server ends, and when room is made.
func TestTrapRequestsMeetTheEnd(t *testing.T) { eachFront(t, testRequestsMeetTheEnd) }

func testRequestsMeetTheEnd(t *testing.T, frontOf frontWay) {
	rt, _ := throughLink(t, echo)
	const clients = 8
	for range 20 {
		base, f := frontOf(t, rt)
		kit.Fetch(t, base, "X-Key", "k", "Connection", "close") // it has begun: else it refuses all
		var asking sync.WaitGroup
		for range clients {
			conn := kit.Must(kit.Connect(base))
			defer conn.Close()
			in := bufio.NewReader(conn)
			asking.Go(func() {
				for last := false; !last; {
					if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\nContent-Length: 4\r\n\r\nbody"); err != nil {
						t.Error(err)
						return
					}
					res, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Errorf("no answer: %v", err)
						return
					}
					io.Copy(io.Discard, res.Body)
					last = res.Close
				}
			})
		}
		if err := f.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		asking.Wait()
	}
}

// A front that has not served yet has started nothing, and ends at once.
func TestFrontEndsBeforeItServes(t *testing.T) {
	kit.NoLeaks(t)
	rt := site.NewRouter(t, router.Config{Members: hub.Of()})
	router.NewServer(rt, site.NetServer())
	for _, end := range []func(*router.Server) error{
		(*router.Server).Close,
		func(f *router.Server) error { return f.Shutdown(t.Context()) },
	} {
		f := router.NewServer(rt, site.NetServer())
		if err := errors.Join(end(f), end(f)); err != nil {
			t.Error(err)
		}
		if err := f.Serve(kit.Must(net.Listen("tcp", "127.0.0.1:0"))); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}
}

func TestFrontHolds(t *testing.T) {
	c := site.New(t, 16)
	rt := c.NewRouter(router.Config{Limits: gateway.Limits{Hold: 200 * time.Millisecond}})
	defer rt.Close()
	base, _ := frontOf(t, rt)
	res, body := kit.Fetch(t, base, "X-Key", "k")
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" || !strings.Contains(body, "try again") {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}
