package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/ring"
)

// throughSmallLinks is throughLink with a worker that takes streams requests at
// once on a link, and a router that makes at most links of those.
func throughSmallLinks(t *testing.T, streams, links int, app http.HandlerFunc) (rt *gateway.Router, w *testWorker) {
	t.Helper()
	c := newTestCluster(t, 16)
	w = c.startReady(func(cfg *gateway.WorkerConfig) { cfg.StreamsPerLink = streams })
	addr := w.listen(t, w.Handler(app))
	if err := w.member.Announce(func(self *ring.Member) { self.Addr = addr }); err != nil {
		t.Fatal(err)
	}
	members := must(c.hub.Join(ring.Member{Name: "router", Role: ring.RoleRouter, State: ring.StateActive}))
	rt = must(gateway.NewRouter(gateway.RouterConfig{Members: members, Keys: sources(t, "header:X-Key"), LinksPerWorker: links, Hold: time.Second}))
	t.Cleanup(func() { rt.Close() })
	return rt, w
}

// crowd is requests that have not been answered yet.
type crowd struct {
	t  *testing.T
	s  *site
	wg sync.WaitGroup

	mu     sync.Mutex
	status map[int]int // answers, by status
}

// send sends a request that may take long.
func (c *crowd) send(path, key string) {
	c.wg.Go(func() {
		req, _ := http.NewRequestWithContext(c.t.Context(), "GET", c.s.URL+path, nil)
		req.Header.Set("X-Key", key)
		res, err := c.s.Client().Do(req)
		if err != nil {
			c.t.Error(err)
			return
		}
		res.Body.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.status == nil {
			c.status = make(map[int]int)
		}
		c.status[res.StatusCode]++
		if res.StatusCode != http.StatusOK && res.Header.Get("Retry-After") == "" {
			c.t.Errorf("%d without Retry-After", res.StatusCode)
		}
	})
}

// answered returns how many were answered so.
func (c *crowd) answered(status int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status[status]
}

// Requests that wait for a few keys leave room for those of all others.
func TestTrapWaitersLeaveRoomForOtherKeys(t *testing.T) { bothWays(t, testWaitersLeaveRoom) }

func testWaitersLeaveRoom(t *testing.T, front way) {
	const keys, streams, links = 5, 32, 2
	release := make(chan struct{})
	var begun atomic.Int64
	rt, w := throughSmallLinks(t, streams, links, func(rw http.ResponseWriter, r *http.Request) {
		begun.Add(1)
		if r.URL.Path == "/slow" {
			<-release
		}
		fmt.Fprint(rw, "ok")
	})
	c := &crowd{t: t, s: front(t, rt)}
	defer c.wg.Wait()
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	const all = 2 * streams * links
	for i := range all {
		c.send("/slow", fmt.Sprint("hot", i%keys))
	}
	waiting := func() (n int) {
		for i := range keys {
			n += w.Queued(fmt.Sprint("hot", i))
		}
		return n
	}
	eventually(t, "all wait or have been refused", func() bool {
		return waiting()+c.answered(http.StatusTooManyRequests)+c.answered(http.StatusServiceUnavailable) == all-keys
	})
	if n := waiting(); n > streams*links/2 || n < streams/2 {
		t.Errorf("%d requests wait", n)
	}
	before := waiting()
	for i := range 20 {
		if res, body := get(t, c.s, fmt.Sprint("other", i)); res.StatusCode != 200 || body != "ok" {
			t.Fatalf("another key: %d %q", res.StatusCode, body)
		}
	}
	if begun.Load() != keys+20 || waiting() != before {
		t.Errorf("%d have begun, %d wait of %d", begun.Load(), waiting(), before)
	}
	free()
	c.wg.Wait()
	if n := c.answered(http.StatusOK); n != before+keys {
		t.Errorf("%d of those who waited were answered, want %d", n, before+keys)
	}
}

// A worker that is full says so at once, and a further link is made before.
func TestFullWorkerIsSaidAtOnce(t *testing.T) {
	const streams, links = 8, 3
	release := make(chan struct{})
	var begun atomic.Int64
	rt, _ := throughSmallLinks(t, streams, links, func(rw http.ResponseWriter, r *http.Request) {
		begun.Add(1)
		<-release
	})
	c := &crowd{t: t, s: throughFront(t, rt)}
	defer c.wg.Wait()
	defer close(release)
	for i := range streams * links {
		c.send("/", fmt.Sprint("key", i))
		eventually(t, "it has begun", func() bool { return begun.Load() == int64(i+1) })
	}
	res, body := get(t, c.s, "one more")
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" || !strings.Contains(body, "full") {
		t.Errorf("%d %q, Retry-After %q", res.StatusCode, body, res.Header.Get("Retry-After"))
	}
	if s := rt.Stats(); s.Held != 0 {
		t.Errorf("%d requests were held", s.Held)
	}
}

// Answers that nobody reads leave room for other requests.
func TestTrapUnreadAnswersLeaveRoom(t *testing.T) {
	const streams = 8
	var begun atomic.Int64
	rt, _ := throughSmallLinks(t, streams, 1, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/large" {
			fmt.Fprint(rw, "ok")
			return
		}
		begun.Add(1)
		piece := make([]byte, 1<<20)
		for range 64 {
			if _, err := rw.Write(piece); err != nil {
				return
			}
		}
	})
	s := throughFront(t, rt)
	var refused atomic.Int64 // that came before others were stuck
	sent := int64(0)
	send := func() {
		sent++
		conn := must(net.Dial("tcp", s.Listener.Addr().String()))
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "GET /large HTTP/1.1\r\nHost: h\r\nX-Key: key%d\r\n\r\n", sent)
		go func() {
			var status [12]byte
			if _, err := io.ReadFull(conn, status[:]); err == nil && string(status[9:]) != "200" {
				refused.Add(1)
			}
		}()
	}
	for i := range int64(4 * streams) {
		eventually(t, fmt.Sprint("request ", i, " is taken"), func() bool {
			if begun.Load()+refused.Load() == sent && begun.Load() <= i {
				send()
			}
			return begun.Load() > i
		})
	}
	for i := range 2 * streams {
		eventually(t, "another client is served", func() bool {
			res, body := get(t, s, fmt.Sprint("other", i))
			return res.StatusCode == 200 && body == "ok"
		})
	}
}

// slowApp is an app that works on requests for /slow until it is released, also
// when nobody waits for the answer.
type slowApp struct {
	release chan struct{}
	running atomic.Int64
	most    atomic.Int64
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

// Requests that a client of HTTP/2 has given up, and that the app still works
// on, count for its connection.
func TestTrapAbandonedRequestsCountForTheirConnection(t *testing.T) {
	for name, more := range map[string][]string{"short way": nil, "net/http": {"expect", "100-continue"}} {
		t.Run(name, func(t *testing.T) {
			const most = 2 * 250 // what a connection may have under way, twice
			app := &slowApp{release: make(chan struct{})}
			free := sync.OnceFunc(func() { close(app.release) })
			defer free()
			s, _ := inFrontOf(t, serve(t, app).URL)
			attacker := newRawH2(t, s.URL)
			refused := 0
			for i := range 3 * most {
				before := app.running.Load()
				id := attacker.open(fmt.Sprint("key", i), "/slow", more...)
				eventually(t, "the app works on it, or it is refused", func() bool {
					return app.running.Load() > before || attacker.refused(id)
				})
				if attacker.refused(id) {
					refused++
					continue
				}
				attacker.reset(id)
			}
			if n := app.most.Load(); n > most || refused == 0 {
				t.Errorf("the app worked on %d abandoned requests of a connection, want at most %d; %d were refused", n, most, refused)
			}
			for i := range 20 {
				if res, body := get(t, s, fmt.Sprint("other", i)); res.StatusCode != 200 || body != "ok" {
					t.Fatalf("another client: %d %q", res.StatusCode, body)
				}
			}
			free()
			eventually(t, "the connection is free again", func() bool {
				id := attacker.open("after", "/", more...)
				eventually(t, "it is answered", func() bool { return attacker.refused(id) || attacker.answered(id) })
				return attacker.answered(id)
			})
		})
	}
}

// A share of a worker is spent on requests that were given up. Beyond it those
// who give up are refused, and nobody else.
func TestTrapAbandonedRequestsHaveAShare(t *testing.T) {
	t.Run("addresses", func(t *testing.T) {
		other := http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}
		testAbandonedRequestsHaveAShare(t, nil, "", &http.Client{Transport: &other})
	})
	t.Run("behind a trusted proxy", func(t *testing.T) {
		testAbandonedRequestsHaveAShare(t, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, "X-Forwarded-For: 192.0.2.1\r\n", http.DefaultClient)
	})
}

// testAbandonedRequestsHaveAShare attacks with a further header field.
func testAbandonedRequestsHaveAShare(t *testing.T, trusted []netip.Prefix, field string, other *http.Client) {
	const streams, share, batch = 64, 64 / 4, 4
	app := &slowApp{release: make(chan struct{})}
	free := sync.OnceFunc(func() { close(app.release) })
	defer free()
	c := newTestCluster(t, 16)
	w := c.startReady(func(cfg *gateway.WorkerConfig) { cfg.StreamsPerLink = streams })
	addr := w.listen(t, must(w.Sidecar(must(url.Parse(serve(t, app).URL)))))
	if err := w.member.Announce(func(self *ring.Member) { self.Addr = addr }); err != nil {
		t.Fatal(err)
	}
	members := must(c.hub.Join(ring.Member{Name: "router", Role: ring.RoleRouter, State: ring.StateActive}))
	rt := newRouter(t, gateway.RouterConfig{Members: members, TrustedProxies: trusted})
	s := throughFront(t, rt)

	var readers sync.WaitGroup
	defer readers.Wait()
	key, gone := 0, int64(0)
	for range 2 * streams / batch {
		var conns []net.Conn
		var refused atomic.Int64
		before := app.running.Load()
		for range batch {
			key++
			conn := must(net.Dial("tcp", s.Listener.Addr().String()))
			fmt.Fprintf(conn, "GET /slow HTTP/1.1\r\nHost: h\r\nX-Key: key%d\r\n%s\r\n", key, field)
			conns = append(conns, conn)
			readers.Go(func() {
				if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil && res.StatusCode == http.StatusTooManyRequests {
					refused.Add(1)
				}
			})
		}
		eventually(t, "the app works on what was not refused", func() bool { return app.running.Load()+refused.Load() == before+batch })
		gone += batch - refused.Load()
		for _, conn := range conns {
			conn.Close()
		}
		eventually(t, "the router knows that they have left", func() bool { return rt.Stats().ClientGone == gone })
	}
	if n := app.most.Load(); n < share || n > share+batch {
		t.Errorf("the app worked on %d abandoned requests, want %d or some more", n, share)
	}
	again := func() *http.Response {
		req := must(http.NewRequestWithContext(t.Context(), "GET", s.URL, nil))
		req.Header.Set("X-Key", "of the one who gave up")
		if name, value, ok := strings.Cut(strings.TrimSpace(field), ": "); ok {
			req.Header.Set(name, value)
		}
		res, _ := do(t, s.Client(), req)
		return res
	}
	if res := again(); res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" {
		t.Errorf("who gave up is answered %d, Retry-After %q", res.StatusCode, res.Header.Get("Retry-After"))
	}
	defer other.CloseIdleConnections()
	others := &site{URL: s.URL, client: other}
	for i := range 2 * streams {
		if res, body := get(t, others, fmt.Sprint("other", i)); res.StatusCode != 200 || body != "ok" {
			t.Fatalf("another client: %d %q", res.StatusCode, body)
		}
	}
	free()
	eventually(t, "who gave up is served again", func() bool { return again().StatusCode == 200 })
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
	c := &rawH2{t: t, conn: must(dialHTTP(base)), next: 1, last: make(map[uint32]byte)}
	c.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2Frame(4, 0, 0, "") + h2Frame(4, 1, 0, ""))
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
	c.send(h2Frame(1, 4|1, id, block.String()))
	return id
}

// reset gives a request up.
func (c *rawH2) reset(id uint32) { c.send(h2Frame(3, 0, id, "\x00\x00\x00\x08")) }

func (c *rawH2) refused(id uint32) bool { return c.frame(id) == 3 }

func (c *rawH2) answered(id uint32) bool { return c.frame(id) == 1 }

func (c *rawH2) frame(id uint32) byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[id]
}
