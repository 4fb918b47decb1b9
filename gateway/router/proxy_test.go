package router_test

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// route starts a router in front of one worker.
func route(t testing.TB, front way, h http.HandlerFunc, change ...func(*router.Config)) (*site.Front, *router.Router, *site.Fake) {
	w := site.NewFake(t, "a", h)
	cfg := router.Config{Members: hub.Of(w.Member)}
	for _, c := range change {
		c(&cfg)
	}
	rt := site.NewRouter(t, cfg)
	return front(t, rt), rt, w
}

// takesGRPC configures the one worker of route for gRPC.
func takesGRPC(t testing.TB) func(*router.Config) {
	return func(cfg *router.Config) {
		c := cfg.Members.(*hub.Handle)
		m := c.View().Members[0]
		m.GRPC = true
		c.Set(m)
	}
}

func TestTheRequestArrivesAsItWasSent(t *testing.T) {
	eachWay(t, testTheRequestArrivesAsItWasSent)
}

func testTheRequestArrivesAsItWasSent(t *testing.T, front way) {
	var got *http.Request
	var body []byte
	s, _, _ := route(t, front, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(t.Context())
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("X-App", "1")
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "gone")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "tea")
	}, func(c *router.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	req, _ := http.NewRequestWithContext(t.Context(), "REPORT", s.URL+"/a%2Fb//c/..?q=1;x&p=%zz&q=2", strings.NewReader("hello"))
	req.Host = "shop.example:8080"
	for name, value := range map[string]string{
		"X-Key": "%C3%BC/1", "Keyway-Token": "9", "keyway-epoch": "9", "Keyway-Other": "9",
		"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https", "Forwarded": "for=192.0.2.7",
		"Connection": "X-Secret", "X-Secret": "1", "Keep-Alive": "5", "Proxy-Authorization": "x", "Te": "trailers, gzip",
		"Baggage": "keyway-held=1", "User-Agent": "", "Expect": "100-continue",
	} {
		req.Header.Set(name, value)
	}
	if s.HTTP2 {
		req.Header.Del("Connection") // HTTP/2 has none
		req.Header.Del("X-Secret")
		req.Header.Set("Te", "trailers")
	}
	res, text := kit.Do(t, s.HTTP, req)
	if res.StatusCode != http.StatusTeapot || text != "tea" || res.Header.Get("X-App") != "1" || res.Header.Get("X-Hop") != "" {
		t.Errorf("answer: %d %q %v", res.StatusCode, text, res.Header)
	}
	if got.Method != "REPORT" || got.RequestURI != "/a%2Fb//c/..?q=1;x&p=%zz&q=2" || got.Host != "shop.example:8080" || string(body) != "hello" || got.ContentLength != 5 {
		t.Errorf("request: %s %s %s %q %d", got.Method, got.RequestURI, got.Host, body, got.ContentLength)
	}
	scheme, _, _ := strings.Cut(s.URL, ":")
	want := http.Header{
		"X-Key": {"%C3%BC/1"}, "Keyway-Key": {"%C3%BC%2F1"}, "Baggage": {"keyway-held=1"}, "Te": {"trailers"}, "Content-Length": {"5"}, "Accept-Encoding": {"gzip"},
		"X-Forwarded-For": {"192.0.2.7, 127.0.0.1"}, "X-Forwarded-Proto": {"https, " + scheme}, "X-Forwarded-Host": {"shop.example:8080"},
		"Forwarded":     {`for=192.0.2.7, for=127.0.0.1;host="shop.example:8080";proto=` + scheme},
		"Keyway-Client": {strconv.FormatUint(hop.ClientID("192.0.2.7"), 10)},
	}
	for name := range got.Header {
		if !slices.Equal(got.Header[name], want[name]) {
			t.Errorf("the worker sees %s: %q, want %q", name, got.Header[name], want[name])
		}
	}
	for name := range want {
		if got.Header[name] == nil {
			t.Errorf("the worker does not see %s", name)
		}
	}
}

func TestBadRequests(t *testing.T) { eachWay(t, testBadRequests) }

func testBadRequests(t *testing.T, front way) {
	s, rt, w := route(t, front, site.Answer("a"))
	for name, lines := range map[string]string{
		"no key":           "",
		"empty key":        "X-Key: \r\n",
		"two keys":         "X-Key: 1\r\nX-Key: 2\r\n",
		"control":          "X-Key: a%00b\r\n",
		"raw control":      "X-Key: a\x01b\r\n",
		"not UTF-8":        "X-Key: %ff\r\n",
		"raw not UTF-8":    "X-Key: \xff\xfe\r\n",
		"64 KiB":           "X-Key: " + strings.Repeat("k", 64<<10) + "\r\n",
		"over 4 KiB":       "X-Key: " + strings.Repeat("k", 4097) + "\r\n",
		"only Keyway's":    "Keyway-Key: 1\r\n",
		"CONNECT-like TE":  "X-Key: 1\r\nTransfer-Encoding: gzip\r\n",
		"bad content size": "X-Key: 1\r\nContent-Length: -5\r\n",
	} {
		status := rawStatus(t, s, "POST / HTTP/1.1\r\nHost: x\r\n"+lines+"\r\n")
		if status < 400 || status > 499 && status != 501 {
			t.Errorf("%s: %d", name, status)
		}
	}
	if _, body := site.Get(t, s, ""); !strings.Contains(body, "header:X-Key") {
		t.Errorf("the answer does not name the source: %q", body)
	}
	if res, _ := site.Get(t, s, strings.Repeat("k", 4096)); res.StatusCode != 200 {
		t.Errorf("a key of 4 KiB: %d", res.StatusCode)
	}
	if w.Hits.Load() != 1 || rt.Stats().BadRequests == 0 {
		t.Errorf("%d requests reached the worker, %+v", w.Hits.Load(), rt.Stats())
	}
	if status := rawStatus(t, s, "CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n"); status != 501 {
		t.Errorf("CONNECT: %d", status)
	}
}

// rawStatus sends bytes and returns the status of the answer.
func rawStatus(t *testing.T, s *site.Front, request string) int {
	t.Helper()
	c, err := kit.Connect(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go io.WriteString(c, request)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

func TestAnswersStream(t *testing.T) { eachWay(t, testAnswersStream) }

func testAnswersStream(t *testing.T, front way) {
	next := make(chan string)
	s, _, _ := route(t, front, func(w http.ResponseWriter, _ *http.Request) {
		for text := range next {
			io.WriteString(w, text)
			w.(http.Flusher).Flush()
		}
	})
	req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL, nil)
	req.Header.Set("X-Key", "k")
	go func() { next <- "first" }()
	res, err := s.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	buf := make([]byte, 100)
	for _, want := range []string{"first", "second", "third"} {
		if want != "first" {
			next <- want
		}
		n, err := res.Body.Read(buf)
		if err != nil || string(buf[:n]) != want {
			t.Fatalf("%q, %v; want %q while the handler runs", buf[:n], err, want)
		}
	}
	close(next)
	if n, err := res.Body.Read(buf); n != 0 || err != io.EOF {
		t.Errorf("end: %d, %v", n, err)
	}
}

// A body of gRPC goes to the app as it comes: the two sides of a call may talk.
func TestBodiesStream(t *testing.T) { eachWay(t, testBodiesStream) }

func testBodiesStream(t *testing.T, front way) {
	got := make(chan string)
	s, _, _ := route(t, front, func(_ http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 100)
		for {
			n, err := r.Body.Read(buf)
			if n > 0 {
				got <- string(buf[:n])
			}
			if err != nil {
				return
			}
		}
	}, takesGRPC(t))
	body, w := io.Pipe()
	req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL, body)
	req.Header.Set("X-Key", "k")
	req.Header.Set("Content-Type", "application/grpc+proto")
	answered, client := make(chan int, 1), kit.Client(t, "HTTP/2")
	go func() {
		res, err := client.Do(req)
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		res.Body.Close()
		answered <- res.StatusCode
	}()
	for _, text := range []string{"first", "second"} {
		io.WriteString(w, text)
		if g := <-got; g != text {
			t.Errorf("got %q, want %q before the body ends", g, text)
		}
	}
	w.Close()
	if status := <-answered; status != 200 {
		t.Errorf("answered %d", status)
	}
}

// Every way of sending a body, to a worker that takes it at once, and to one
// that first refuses.
func TestBodiesArriveWhole(t *testing.T) { eachWay(t, testBodiesArriveWhole) }

func testBodiesArriveWhole(t *testing.T, front way) {
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 3 << 20} {
		for _, framing := range []string{"length", "chunked"} {
			for _, proto := range []string{"HTTP/1.1", "HTTP/2"} {
				for _, refusals := range []int64{0, 2} {
					t.Run(fmt.Sprint(size, framing, proto, refusals), func(t *testing.T) {
						testBody(t, front, size, framing, proto, refusals)
					})
				}
			}
		}
	}
}

func testBody(t *testing.T, front way, size int, framing, proto string, refusals int64) {
	var hits atomic.Int64
	s, rt, _ := route(t, front, func(w http.ResponseWriter, r *http.Request) {
		if hits.Add(1) <= refusals {
			site.Refuse("unavailable", 503)(w, r)
			return
		}
		h := site.Sum(r.Body)
		fmt.Fprint(w, h)
	})
	content := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
	var body io.Reader = bytes.NewReader(content)
	if framing == "chunked" {
		body = io.MultiReader(body)
	}
	req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL, body)
	req.Header.Set("X-Key", "k")
	res, text := kit.Do(t, kit.Client(t, proto), req)
	if want := site.Sum(bytes.NewReader(content)); res.StatusCode != 200 || text != want || !strings.HasPrefix(res.Proto, proto) {
		t.Errorf("%d %q over %s, want the body's hash %q", res.StatusCode, text, res.Proto, want)
	}
	kit.Eventually(t, "no bytes are kept", func() bool { return rt.Stats().BodyBytes == 0 })
}

// A request is sent again whatever its body's length is, also to workers that refuse
// after they have read of it. Only one that streams is not: the rest of its body alone
// must not go to anybody.
func TestARefusalAfterTheBodyHasBegun(t *testing.T) {
	eachWay(t, testARefusalAfterTheBodyHasBegun)
}

func testARefusalAfterTheBodyHasBegun(t *testing.T, front way) {
	for _, tt := range []struct {
		name   string
		size   int
		read   int64 // by a worker that then refuses
		kind   string
		client *http.Client // nil for that of the front
		hits   int64
		want   int
	}{
		{"small", 100, 10, "text/plain", nil, 3, 200},
		{"large", 1 << 20, 10, "text/plain", nil, 3, 200},
		{"large, gRPC by its name only", 1 << 20, 10, "application/grpcx", nil, 3, 200},
		{"large, streamed", 1 << 20, 128 << 10, "application/grpc", kit.Client(t, "HTTP/2"), 1, 502},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var hits atomic.Int64
			s, rt, _ := route(t, front, func(w http.ResponseWriter, r *http.Request) {
				if hits.Add(1) < 3 {
					io.CopyN(io.Discard, r.Body, tt.read)
					site.Refuse("unavailable", 503)(w, r)
					return
				}
				io.WriteString(w, site.Sum(r.Body))
			}, takesGRPC(t))
			body := strings.Repeat("x", tt.size)
			req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL, strings.NewReader(body))
			req.Header.Set("X-Key", "k")
			req.Header.Set("Content-Type", tt.kind)
			res, text := kit.Do(t, cmp.Or(tt.client, s.HTTP), req)
			if res.StatusCode != tt.want || hits.Load() != tt.hits {
				t.Errorf("%d after %d requests, want %d after %d", res.StatusCode, hits.Load(), tt.want, tt.hits)
			}
			if want := site.Sum(strings.NewReader(body)); tt.want == 200 && text != want {
				t.Errorf("the app got %s, want %s", text, want)
			}
			if tt.want == 502 && rt.Stats().Broken != 1 {
				t.Errorf("%d are counted as broken, want 1", rt.Stats().Broken)
			}
		})
	}
}

// What memory does not hold goes to files, and can still be sent elsewhere.
func TestBodiesBeyondTheBudgetGoToFiles(t *testing.T) {
	eachWay(t, testBodiesBeyondTheBudgetGoToFiles)
}

func testBodiesBeyondTheBudgetGoToFiles(t *testing.T, front way) {
	var hits atomic.Int64
	s, rt, _ := route(t, front, func(w http.ResponseWriter, r *http.Request) {
		if hits.Add(1) == 1 {
			site.Refuse("unavailable", 503)(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	}, func(c *router.Config) { c.ReplayBytes = 3 })
	body := strings.Repeat("four", 2000)
	req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL, strings.NewReader(body))
	req.Header.Set("X-Key", "k")
	if res, text := kit.Do(t, s.HTTP, req); res.StatusCode != 200 || text != body {
		t.Errorf("%d, %d bytes", res.StatusCode, len(text))
	}
	if b := rt.Stats().BodyBytes; b != 0 {
		t.Errorf("%d bytes", b)
	}
}

func TestUpgrades(t *testing.T) { eachWay(t, testUpgrades) }

func testUpgrades(t *testing.T, front way) {
	kit.NoLeaks(t)
	s, _, _ := route(t, front, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			http.Error(w, "no upgrade", 400)
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nKeyway-Token: 1\r\n\r\n")
		io.Copy(c, rw)
	})
	c, err := kit.Connect(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Key: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != 101 || res.Header.Get("Upgrade") != "websocket" || res.Header.Get("Keyway-Token") != "" {
		t.Fatalf("%v, %v", res, err)
	}
	for _, text := range []string{"ping", "pong"} {
		io.WriteString(c, text)
		buf := make([]byte, 4)
		if _, err := io.ReadFull(r, buf); err != nil || string(buf) != text {
			t.Fatalf("%q, %v", buf, err)
		}
	}
}

func TestABodyThatStopsHalfway(t *testing.T) { eachWay(t, testABodyThatStopsHalfway) }

func testABodyThatStopsHalfway(t *testing.T, front way) {
	kit.NoLeaks(t)
	tests := map[string]struct {
		head string
		half bool // the client closes its side only
	}{
		"small, closed":     {"Content-Length: 100\r\n\r\nhalf", false},
		"small, half-close": {"Content-Length: 100\r\n\r\nhalf", true},
		"large, half-close": {"Content-Length: 100000\r\n\r\nhalf", true},
		"chunked, half":     {"Transfer-Encoding: chunked\r\n\r\nff\r\nhalf", true},
		"chunked, garbage":  {"Transfer-Encoding: chunked\r\n\r\nzz\r\nhalf\r\n", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, rt, w := route(t, front, site.Answer("a"))
			c, err := kit.Connect(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nX-Key: k\r\n"+tt.head)
			if !tt.half {
				c.Close()
				kit.Eventually(t, "the router has seen it", func() bool { s := rt.Stats(); return s.BadRequests+s.ClientGone == 1 })
			} else {
				netutil.CloseWrite(c)
				res, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err == nil && res.StatusCode != 400 {
					t.Errorf("answered %d", res.StatusCode)
				}
			}
			if n := w.Hits.Load(); n != 0 {
				t.Errorf("%d requests reached the worker, want none", n)
			}
			kit.Eventually(t, "nothing of it is kept", func() bool { s := rt.Stats(); return s.BodyBytes+s.BodyFiles == 0 })
		})
	}
}

// A client that does not read must not hold the worker for ever.
func TestSlowReaders(t *testing.T) { eachWay(t, testSlowReaders) }

func testSlowReaders(t *testing.T, front way) {
	kit.NoLeaks(t)
	ended := make(chan struct{})
	s, _, _ := route(t, front, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		chunk := make([]byte, 1<<20)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}, func(c *router.Config) { c.ClientTimeout = 100 * time.Millisecond })
	c, err := kit.Connect(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Key: k\r\n\r\n")
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the worker's handler goes on")
	}
}

func TestAnAnswerThatBreaksOffBreaksOff(t *testing.T) {
	eachWay(t, testAnAnswerThatBreaksOffBreaksOff)
}

func testAnAnswerThatBreaksOffBreaksOff(t *testing.T, front way) {
	s, _, _ := route(t, front, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL, nil)
	req.Header.Set("X-Key", "k")
	res, err := s.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("%q looks whole", b)
	}
}
