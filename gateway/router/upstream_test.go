package router_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// throughLink makes a router in front of a worker that takes the link.
func throughLink(t *testing.T, app http.HandlerFunc, change ...func(*router.Config)) (rt *router.Router, w *site.Worker) {
	t.Helper()
	c := site.New(t, 16)
	w = c.StartReady()
	w.Listen(t, w.Handler(app))
	kit.Eventually(t, "the worker takes the link", func() bool { return w.Member.Self().Link })
	front := c.Join("router")
	cfg := router.Config{Members: front, Keys: kit.KeySources(t, "header:X-Key")}
	for _, f := range change {
		f(&cfg)
	}
	rt = kit.Must(router.New(cfg))
	t.Cleanup(func() { rt.Close() })
	return rt, w
}

func TestLinkCarriesHTTP(t *testing.T) { eachWay(t, testLinkCarriesHTTP) }

func testLinkCarriesHTTP(t *testing.T, front way) {
	rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := rw.Header()
		h.Set("Trailer", "X-Sum")
		h.Set("Connection", "X-Private")
		h.Set("Keyway-Token", "1")
		h.Add("X-Multi", "a")
		h.Add("X-Multi", "b")
		rw.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(rw, "%s %s %s %q %q", r.Method, r.Host, r.RequestURI, body, r.Trailer.Get("X-Check"))
		for _, name := range []string{"Connection", "X-Hop", "Keyway-Forged", "Proxy-Authorization", "Te"} {
			if v := r.Header.Get(name); v != "" && !(name == "Te" && v == "trailers") {
				fmt.Fprintf(rw, " %s=%s", name, v)
			}
		}
		if r.Header.Get("X-Forwarded-For") != "192.0.2.1, 127.0.0.1" || !strings.Contains(r.Header.Get("Forwarded"), "for=127.0.0.1") {
			fmt.Fprintf(rw, " forwarding: %v", r.Header)
		}
		h.Set("X-Sum", "42")
	}, func(cfg *router.Config) {
		cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	s := front(t, rt)
	req := kit.Must(http.NewRequestWithContext(t.Context(), "PUT", s.URL+"/a%20b?x=1&y=%2F", io.NopCloser(strings.NewReader("body"))))
	req.Host = "shop.example"
	req.Trailer = http.Header{"X-Check": {"sum"}}
	for name, v := range map[string]string{"X-Key": "k", "Keyway-Forged": "1", "Te": "trailers", "X-Forwarded-For": "192.0.2.1", "Proxy-Authorization": "x"} {
		req.Header.Set(name, v)
	}
	if !s.HTTP2 { // has no fields of a connection
		req.Header.Set("Connection", "X-Hop")
		req.Header.Set("X-Hop", "1")
		req.Header.Set("Te", "trailers, deflate")
	}
	res, body := kit.Do(t, s.HTTP, req)
	if want := `PUT shop.example /a%20b?x=1&y=%2F "body" "sum"`; res.StatusCode != http.StatusAccepted || body != want {
		t.Errorf("%d, %s\nwant %s", res.StatusCode, body, want)
	}
	if res.Trailer.Get("X-Sum") != "42" || res.Header.Get("Keyway-Token") != "" || len(res.Header["X-Multi"]) != 2 {
		t.Errorf("header %v, trailer %v", res.Header, res.Trailer)
	}
}

func TestLinkStreams(t *testing.T) { eachWay(t, testLinkStreams) }

func testLinkStreams(t *testing.T, front way) {
	step := make(chan struct{})
	rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
		http.NewResponseController(rw).Flush()
		for i := range 3 {
			<-step
			fmt.Fprintf(rw, "line %d\n", i)
			http.NewResponseController(rw).Flush()
		}
	})
	s := front(t, rt)
	req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", s.URL, nil))
	req.Header.Set("X-Key", "k")
	res, err := s.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for i := range 3 {
		step <- struct{}{}
		if line, err := lines.ReadString('\n'); line != fmt.Sprintf("line %d\n", i) || err != nil {
			t.Fatalf("line %d: %q, %v", i, line, err)
		}
	}
}

func TestLinkUploads(t *testing.T) { eachWay(t, testLinkUploads) }

func testLinkUploads(t *testing.T, front way) {
	rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(rw, n, err)
	})
	s := front(t, rt)
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 5 << 20} {
		for _, known := range []bool{true, false} {
			var body io.Reader = strings.NewReader(strings.Repeat("x", size))
			if !known {
				body = io.MultiReader(body)
			}
			req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, body))
			req.Header.Set("X-Key", "k")
			if res, got := kit.Do(t, s.HTTP, req); got != fmt.Sprint(size, nil) {
				t.Errorf("%d bytes, length known: %v: %d, the app got %q", size, known, res.StatusCode, got)
			}
		}
	}
	kit.Eventually(t, "no body is kept", func() bool { return rt.Stats().BodyBytes == 0 })
}

// A body that is larger than what the router may keep goes through it in little
// memory, however slowly the app reads.
func TestUploadsStreamInConstantMemory(t *testing.T) { eachWay(t, testUploadsStream) }

func testUploadsStream(t *testing.T, front way) {
	const size, bound = 16 << 20, 8 << 20
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	app := func(rw http.ResponseWriter, r *http.Request) {
		before, read, next := heap(), 0, 0
		for buf := make([]byte, 64<<10); ; {
			n, err := r.Body.Read(buf)
			read += n
			if read >= next {
				next += size / 8
				if grown := heap() - before; grown > bound {
					t.Errorf("the heap grew by %d MiB after %d MiB", grown>>20, read>>20)
				}
			}
			if err != nil {
				fmt.Fprint(rw, read, err)
				return
			}
		}
	}
	rt, _ := throughLink(t, app)
	plain, _, _ := route(t, front, app)
	for name, s := range map[string]*site.Front{"over the link": front(t, rt), "over HTTP/1.1": plain} {
		for _, known := range []bool{true, false} {
			req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, io.LimitReader(site.Zeros{}, size)))
			req.Header.Set("X-Key", "k")
			if known {
				req.ContentLength = size
			}
			if res, got := kit.Do(t, s.HTTP, req); got != fmt.Sprint(size, io.EOF) {
				t.Errorf("%s, length known: %v: %d, the app got %q", name, known, res.StatusCode, got)
			}
		}
	}
}

// An answer that breaks off must not look whole, whatever carries it, nor if the app is a proxy.
func TestBrokenAnswers(t *testing.T) { eachWay(t, testBrokenAnswers) }

func testBrokenAnswers(t *testing.T, front way) {
	app := func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		rw.Write(make([]byte, 100<<10))
		http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	}
	upstream := site.Serve(t, http.HandlerFunc(app)).URL
	proxy := httputil.NewSingleHostReverseProxy(kit.Must(url.Parse(upstream)))
	linked, _ := throughLink(t, app)
	proxied, _ := throughLink(t, proxy.ServeHTTP)
	plain := site.NewRouter(t, router.Config{
		Members: hub.Of(site.NewFake(t, "a", app).Member), Routes: site.Routes(t, fmt.Sprintf(`name: a, key: "header:X-Key", without-key: %q`, upstream)),
	})
	for name, tt := range map[string]struct {
		rt   *router.Router
		key  string
		body int
	}{
		"link":     {linked, "k", 0},
		"proxy":    {proxied, "k", 0},
		"HTTP/1.1": {plain, "k", 0},
		"relay":    {plain, "k", 100_000},
		"upstream": {plain, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := front(t, tt.rt)
			req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, strings.NewReader(strings.Repeat("x", tt.body))))
			req.Header.Set("X-Key", tt.key)
			res, err := s.HTTP.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if n, err := io.Copy(io.Discard, res.Body); err == nil {
				t.Errorf("%d bytes of it look like the whole", n)
			}
		})
	}
}

func TestLinkClientLeaves(t *testing.T) { eachWay(t, testLinkClientLeaves) }

func testLinkClientLeaves(t *testing.T, front way) {
	entered, left := make(chan struct{}), make(chan struct{})
	rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	})
	s := front(t, rt)
	ctx, leave := context.WithCancel(t.Context())
	req := kit.Must(http.NewRequestWithContext(ctx, "GET", s.URL, nil))
	req.Header.Set("X-Key", "k")
	go func() {
		<-entered
		leave()
	}()
	if res, err := s.HTTP.Do(req); err == nil {
		t.Errorf("answered %s", res.Status)
		res.Body.Close()
	}
	<-left
}

// Requests wait for a worker, and go on when it has come.
func TestCrossingHoldsWhileNobodyOwns(t *testing.T) {
	c := site.New(t, 16)
	rt := c.NewRouter(router.Config{})
	defer rt.Close()
	base := site.Serve(t, rt).URL
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", base, strings.NewReader("body")))
			req.Header.Set("X-Key", fmt.Sprint(i))
			if res, body := kit.Do(t, http.DefaultClient, req); res.StatusCode != 200 || body != "body" {
				t.Errorf("%d %q", res.StatusCode, body)
			}
		})
	}
	kit.Eventually(t, "all are held", func() bool { return rt.Stats().Holding == 20 })
	w := c.Start()
	w.Listen(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { io.Copy(rw, r.Body) })))
	wg.Wait()
}

func TestCrossingBusy(t *testing.T) {
	release := make(chan struct{})
	c := site.New(t, 16)
	w := c.StartReady(func(cfg *worker.Config) { cfg.QueuePerKey = 1 })
	w.Listen(t, w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release })))
	rt := c.NewRouter(router.Config{})
	defer rt.Close()
	base := site.Serve(t, rt).URL
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(release)
	for range 2 {
		wg.Go(func() { kit.Fetch(t, base, "X-Key", "k") })
	}
	kit.Eventually(t, "one waits", func() bool { return w.Queued("k") == 1 })
	res, _ := kit.Fetch(t, base, "X-Key", "k")
	if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" {
		t.Errorf("%d, %v", res.StatusCode, res.Header)
	}
}

// What a client has sent behind a body for which there is no room in memory is
// its next request.
func TestRequestBehindABodyThatWasNotKept(t *testing.T) {
	rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(rw, n, err)
	}, func(c *router.Config) { c.ReplayBytes = 1 })
	base, _ := frontOf(t, rt)
	conn := kit.Must(kit.Connect(base))
	defer conn.Close()
	const size = 5000
	first := "POST / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\nX-Large: " + strings.Repeat("x", 9000) + "\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n" + strings.Repeat("b", size)
	go io.WriteString(conn, first+"GET / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n\r\n")
	in := bufio.NewReader(conn)
	for _, want := range []string{"5000 <nil>", "0 <nil>"} {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); string(body) != want {
			t.Errorf("%d %s, %v; want %s", res.StatusCode, body, err, want)
		}
	}
}
