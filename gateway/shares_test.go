package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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
	rt = must(gateway.NewRouter(gateway.RouterConfig{Members: members, Keys: sources(t, "header:X-Key"), Ring: c.cfg, LinksPerWorker: links}))
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
