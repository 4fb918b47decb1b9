package router_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// slowApp is an app that works on requests for /slow until it is released, also
// when nobody waits for the answer.
type slowApp struct {
	release <-chan struct{}
	free    func() // releases them, and those that come
	running atomic.Int64
	most    atomic.Int64
}

func newSlowApp() *slowApp {
	release := make(chan struct{})
	return &slowApp{release: release, free: sync.OnceFunc(func() { close(release) })}
}

func (a *slowApp) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/slow") {
		n := a.running.Add(1)
		for most := a.most.Load(); n > most && !a.most.CompareAndSwap(most, n); most = a.most.Load() {
		}
		<-a.release
		a.running.Add(-1)
	}
	fmt.Fprint(rw, "ok")
}

// netHTTP makes a gateway of net/http in front of an app, the yardstick for what
// a router and a worker do. It has at most conns connections to the app, if that
// is not 0. under counts the requests that are under way at the gateway.
func netHTTP(t *testing.T, app http.Handler, conns int) (s *site.Front, under *atomic.Int64) {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(kit.Must(url.Parse(site.Serve(t, app).URL)))
	transport := &http.Transport{MaxConnsPerHost: conns}
	t.Cleanup(transport.CloseIdleConnections)
	proxy.Transport, proxy.ErrorLog = transport, log.New(io.Discard, "", 0)
	under = new(atomic.Int64)
	return behindNetHTTP(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		under.Add(1)
		defer under.Add(-1)
		proxy.ServeHTTP(rw, r)
	})), under
}

// Requests that a client of HTTP/2 has given up, and that the app still works
// on, count for its connection. A gateway of net/http lets all of them through,
// as a yardstick.
func TestTrapAbandonedRequestsCountForTheirConnection(t *testing.T) {
	const most = 2 * 250 // what a connection may have under way, twice
	theirs := newSlowApp()
	defer theirs.free()
	s, _ := netHTTP(t, theirs, 0)
	theirRefused := rapidReset(t, theirs, newRawH2(t, s.URL), 3*most)
	for name, more := range map[string][]string{"short way": nil, "net/http": {"expect", "100-continue"}} {
		t.Run(name, func(t *testing.T) {
			app := newSlowApp()
			defer app.free()
			s, _ := site.InFrontOf(t, site.Serve(t, app).URL)
			attacker := newRawH2(t, s.URL)
			refused := rapidReset(t, app, attacker, 3*most, more...)
			t.Logf("of %d requests %d were refused, net/http: %d; %d run at the app, net/http: %d", 3*most, refused, theirRefused, app.most.Load(), theirs.most.Load())
			if n := app.most.Load(); n > most || n > theirs.most.Load() || refused == 0 {
				t.Errorf("the app worked on %d abandoned requests of a connection, want at most %d, or %d as with net/http; %d were refused", n, most, theirs.most.Load(), refused)
			}
			for i := range 20 {
				if res, body := site.Get(t, s, fmt.Sprint("other", i)); res.StatusCode != 200 || body != "ok" {
					t.Fatalf("another client: %d %q", res.StatusCode, body)
				}
			}
			app.free()
			kit.Eventually(t, "the connection is free again", func() bool {
				id := attacker.open("after", "/", more...)
				kit.Eventually(t, "it is answered", func() bool { return attacker.refused(id) || attacker.answered(id) })
				return attacker.answered(id)
			})
		})
	}
}

// rapidReset sends requests for keys of their own and gives each up when the app
// works on it. It returns how many were refused.
func rapidReset(t *testing.T, app *slowApp, attacker *rawH2, requests int, more ...string) (refused int) {
	t.Helper()
	for i := range requests {
		before := app.running.Load()
		id := attacker.open(fmt.Sprint("key", i), "/slow", more...)
		kit.Eventually(t, "the app works on it, or it is refused", func() bool {
			return app.running.Load() > before || attacker.refused(id)
		})
		if attacker.refused(id) {
			refused++
			continue
		}
		attacker.reset(id)
	}
	return refused
}

// A share of a worker is spent on requests that were given up. Beyond it those
// who give up are refused, and nobody else. A gateway of net/http spends all on
// them, as a yardstick.
func TestTrapAbandonedRequestsHaveAShare(t *testing.T) {
	theirs := newSlowApp()
	defer theirs.free()
	s, under := netHTTP(t, theirs, 0)
	giveUp(t, theirs, s, "", func(int64) bool { return under.Load() == 0 })
	t.Run("addresses", func(t *testing.T) {
		other := http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}
		testAbandonedRequestsHaveAShare(t, nil, "", &http.Client{Transport: &other}, theirs.most.Load())
	})
	t.Run("behind a trusted proxy", func(t *testing.T) {
		testAbandonedRequestsHaveAShare(t, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, "X-Forwarded-For: 192.0.2.1\r\n", http.DefaultClient, theirs.most.Load())
	})
}

// An attack by those who give up: half as many requests as a link carries, some
// at a time.
const (
	abandonedRequests = 128
	abandonedAtOnce   = 4
	abandonedStreams  = abandonedRequests * 2
)

// giveUp makes the attack, with a further header field. left reports whether the
// gateway knows that so many clients have left.
func giveUp(t *testing.T, app *slowApp, s *site.Front, field string, left func(clients int64) bool) {
	t.Helper()
	var readers sync.WaitGroup
	defer readers.Wait()
	key, gone := 0, int64(0)
	for range abandonedRequests / abandonedAtOnce {
		var conns []net.Conn
		var refused atomic.Int64
		before := app.running.Load()
		for range abandonedAtOnce {
			key++
			conn := kit.Must(kit.Connect(s.URL))
			defer conn.Close()
			fmt.Fprintf(conn, "GET /slow HTTP/1.1\r\nHost: h\r\nX-Key: key%d\r\n%s\r\n", key, field)
			conns = append(conns, conn)
			readers.Go(func() {
				if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil && res.StatusCode == http.StatusTooManyRequests {
					refused.Add(1)
				}
			})
		}
		kit.Eventually(t, "the app works on what was not refused", func() bool { return app.running.Load()+refused.Load() == before+abandonedAtOnce })
		gone += abandonedAtOnce - refused.Load()
		for _, conn := range conns {
			conn.Close()
		}
		kit.Eventually(t, "the gateway knows that they have left", func() bool { return left(gone) })
	}
}

// testAbandonedRequestsHaveAShare attacks with a further header field. With
// net/http the app worked on so many of the requests.
func testAbandonedRequestsHaveAShare(t *testing.T, trusted []netip.Prefix, field string, other *http.Client, theirs int64) {
	const share = abandonedStreams / 16
	app := newSlowApp()
	defer app.free()
	c := site.New(t, 16)
	w := c.StartReady(func(cfg *worker.Config) { cfg.StreamsPerLink = abandonedStreams })
	w.Listen(t, kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(site.Serve(t, app).URL)))))
	rt := c.NewRouter(router.Config{TrustedProxies: trusted})
	s := site.ThroughServer(t, rt)

	giveUp(t, app, s, field, func(clients int64) bool { return rt.Stats().ClientGone == clients })
	t.Logf("the app works on %d of %d requests that were given up, with net/http on %d", app.most.Load(), abandonedRequests, theirs)
	if n := app.most.Load(); n < share || n > share+abandonedAtOnce || n > theirs {
		t.Errorf("the app worked on %d abandoned requests, want %d or some more, and at most %d as with net/http", n, share, theirs)
	}
	again := func() *http.Response {
		req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", s.URL, nil))
		req.Header.Set("X-Key", "of the one who gave up")
		if name, value, ok := strings.Cut(strings.TrimSpace(field), ": "); ok {
			req.Header.Set(name, value)
		}
		res, _ := kit.Do(t, s.HTTP, req)
		return res
	}
	if res := again(); res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" {
		t.Errorf("who gave up is answered %d, Retry-After %q", res.StatusCode, res.Header.Get("Retry-After"))
	}
	defer other.CloseIdleConnections()
	others := &site.Front{URL: s.URL, HTTP: other}
	for i := range abandonedRequests {
		if res, body := site.Get(t, others, fmt.Sprint("other", i)); res.StatusCode != 200 || body != "ok" {
			t.Fatalf("another client: %d %q", res.StatusCode, body)
		}
	}
	app.free()
	kit.Eventually(t, "who gave up is served again", func() bool { return again().StatusCode == 200 })
}

// rawH2 is a client of HTTP/2 that opens streams and gives them up.
type rawH2 struct {
	t    *testing.T
	conn net.Conn
	next uint32

	mu   sync.Mutex
	last map[uint32]byte // kind of the last frame on a stream: HEADERS or RST_STREAM
}

func newRawH2(t *testing.T, base string) *rawH2 {
	c := &rawH2{t: t, conn: kit.Must(kit.Connect(base)), next: 1, last: make(map[uint32]byte)}
	c.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + kit.H2Frame(4, 0, 0, "") + kit.H2Frame(4, 1, 0, ""))
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.read()
	}()
	t.Cleanup(func() {
		c.conn.Close()
		<-done
	})
	return c
}

func (c *rawH2) send(frames string) {
	if _, err := io.WriteString(c.conn, frames); err != nil {
		c.t.Error(err)
	}
}

func (c *rawH2) read() {
	in := bufio.NewReader(c.conn)
	for {
		var head [9]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		if _, err := in.Discard(int(head[0])<<16 | int(head[1])<<8 | int(head[2])); err != nil {
			return
		}
		if kind := head[3]; kind == 1 || kind == 3 {
			c.mu.Lock()
			c.last[uint32(head[5])<<24|uint32(head[6])<<16|uint32(head[7])<<8|uint32(head[8])] = kind
			c.mu.Unlock()
		}
	}
}

// open sends a request for a key, with more fields, and returns its stream.
func (c *rawH2) open(key, path string, more ...string) uint32 {
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	fields := append([]string{":method", "GET", ":scheme", "http", ":authority", "h", ":path", path, "x-key", key}, more...)
	for i := 0; i < len(fields); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	id := c.next
	c.next += 2
	c.send(kit.H2Frame(1, 4|1, id, block.String()))
	return id
}

// reset gives a request up.
func (c *rawH2) reset(id uint32) { c.send(kit.H2Frame(3, 0, id, "\x00\x00\x00\x08")) }

func (c *rawH2) refused(id uint32) bool { return c.frame(id) == 3 }

func (c *rawH2) answered(id uint32) bool { return c.frame(id) == 1 }

func (c *rawH2) frame(id uint32) byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[id]
}
