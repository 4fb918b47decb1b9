package router_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// throughSmallLink is throughLink with a worker that takes streams requests at once on a link.
func throughSmallLink(t *testing.T, streams int, app http.HandlerFunc) (rt *router.Router, w *site.Worker) {
	t.Helper()
	c := site.New(t, 16)
	w = c.StartReady(func(cfg *worker.Config) { cfg.StreamsPerLink = streams })
	w.Listen(t, w.Handler(app))
	rt = c.NewRouter(router.Config{Limits: gateway.Limits{Hold: time.Second}})
	t.Cleanup(func() { rt.Close() })
	return rt, w
}

// crowd is requests that have not been answered yet.
type crowd struct {
	t  *testing.T
	s  *site.Front
	wg sync.WaitGroup

	mu     sync.Mutex
	status map[int]int // answers, by status
}

// send sends a request that may take long.
func (c *crowd) send(path, key string) {
	c.wg.Go(func() {
		req, _ := http.NewRequestWithContext(c.t.Context(), "GET", c.s.URL+path, nil)
		req.Header.Set("X-Key", key)
		res, err := c.s.HTTP.Do(req)
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

// Requests that wait for a few keys leave room for those of all others. net/http
// is the yardstick: a gateway with as many connections to its app has none left,
// and one without a bound leaves all that wait to the app.
func TestTrapWaitersLeaveRoomForOtherKeys(t *testing.T) {
	eachWay(t, testWaitersLeaveRoom)
	t.Run("yardstick", testYardstickOfWaiters)
}

// An attack by waiters: more requests for a few busy keys than the worker takes
// at once, and then some for other keys.
const (
	crowdKeys                 = 5
	crowdStreams              = 64
	crowdWaiters, crowdOthers = 2 * crowdStreams, 20
)

// crowdOut makes the attack. Requests for the busy keys are settled when they
// run, wait or have been refused; those for others when they are answered, or
// stuck. It returns how many of those are answered while the busy keys are busy.
func crowdOut(t *testing.T, c *crowd, settled, stuck func() bool) (answered int) {
	t.Helper()
	for i := range crowdWaiters {
		c.send("/slow", fmt.Sprint("busy", i%crowdKeys))
	}
	kit.Eventually(t, "the requests for busy keys are settled", settled)
	for i := range crowdOthers {
		c.send("/", fmt.Sprint("other", i))
	}
	kit.Eventually(t, "those for other keys are settled", func() bool { return c.answered(http.StatusOK) == crowdOthers || stuck() })
	return c.answered(http.StatusOK)
}

func testWaitersLeaveRoom(t *testing.T, front way) {
	app := newSlowApp()
	rt, w := throughSmallLink(t, crowdStreams, app.ServeHTTP)
	c := &crowd{t: t, s: front(t, rt)}
	defer c.wg.Wait()
	defer app.free()
	waiting := func() (n int) {
		for i := range crowdKeys {
			n += w.Queued(fmt.Sprint("busy", i))
		}
		return n
	}
	refused := func() int {
		return c.answered(http.StatusTooManyRequests) + c.answered(http.StatusServiceUnavailable)
	}
	before := 0
	answered := crowdOut(t, c, func() bool {
		before = waiting()
		return before+refused() == crowdWaiters-crowdKeys
	}, func() bool { return refused() > crowdWaiters-crowdKeys-before })
	if answered != crowdOthers {
		t.Errorf("%d requests for other keys are answered, want %d", answered, crowdOthers)
	}
	if before != crowdStreams/2 {
		t.Errorf("%d requests wait", before)
	}
	if n := app.running.Load(); n != crowdKeys || waiting() != before {
		t.Errorf("%d run, %d wait of %d", n, waiting(), before)
	}
	app.free()
	c.wg.Wait()
	if n := c.answered(http.StatusOK); n != before+crowdKeys+crowdOthers {
		t.Errorf("%d were answered, want %d of those who waited and %d", n, before+crowdKeys, crowdOthers)
	}
}

func testYardstickOfWaiters(t *testing.T) {
	for name, tt := range map[string]struct {
		conns    int // to the app; 0 for no bound
		atApp    int // requests for busy keys, that run or wait for their key
		answered int // requests for other keys
	}{
		"as many connections": {crowdStreams, crowdStreams, 0},
		"no bound":            {0, crowdWaiters, crowdOthers},
	} {
		t.Run(name, func(t *testing.T) {
			app := newSlowApp()
			var waiting atomic.Int64
			keys := make(map[string]chan struct{})
			for i := range crowdKeys {
				keys[fmt.Sprint("busy", i)] = make(chan struct{}, 1)
			}
			s, under := netHTTP(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if key := keys[r.Header.Get("X-Key")]; key != nil {
					waiting.Add(1)
					key <- struct{}{}
					waiting.Add(-1)
					defer func() { <-key }()
				}
				app.ServeHTTP(rw, r)
			}), tt.conns)
			c := &crowd{t: t, s: s}
			defer c.wg.Wait()
			defer app.free()
			atApp := func() int { return int(waiting.Load() + app.running.Load()) }
			answered := crowdOut(t, c, func() bool { return atApp() == tt.atApp }, func() bool {
				return tt.conns > 0 && under.Load() == crowdWaiters+crowdOthers
			})
			if n := atApp(); answered != tt.answered || n != tt.atApp {
				t.Errorf("%d requests for other keys are answered and %d are at the app, want %d and %d", answered, n, tt.answered, tt.atApp)
			}
		})
	}
}

// A worker that is full says so at once.
func TestFullWorkerIsSaidAtOnce(t *testing.T) {
	const streams = 8
	release := make(chan struct{})
	var begun atomic.Int64
	rt, _ := throughSmallLink(t, streams, func(rw http.ResponseWriter, r *http.Request) {
		begun.Add(1)
		<-release
	})
	c := &crowd{t: t, s: site.ThroughServer(t, rt)}
	defer c.wg.Wait()
	defer close(release)
	for i := range streams {
		c.send("/", fmt.Sprint("key", i))
		kit.Eventually(t, "it has begun", func() bool { return begun.Load() == int64(i+1) })
	}
	held := rt.Stats().Held // on a busy machine, the first ones may have been
	res, body := site.Get(t, c.s, "one more")
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" || !strings.Contains(body, "full") {
		t.Errorf("%d %q, Retry-After %q", res.StatusCode, body, res.Header.Get("Retry-After"))
	}
	if n := rt.Stats().Held - held; n != 0 {
		t.Errorf("%d requests were held", n)
	}
}

// Answers that nobody reads leave room for other requests.
func TestTrapUnreadAnswersLeaveRoom(t *testing.T) {
	const streams = 8
	var begun atomic.Int64
	rt, _ := throughSmallLink(t, streams, func(rw http.ResponseWriter, r *http.Request) {
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
	s := site.ThroughServer(t, rt)
	var refused atomic.Int64 // that came before others were stuck
	sent := int64(0)
	send := func() {
		sent++
		conn := kit.Must(kit.Connect(s.URL))
		_ = netutil.Bare(conn).(*net.TCPConn).SetReadBuffer(4 << 10)
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
		kit.Eventually(t, fmt.Sprint("request ", i, " is taken"), func() bool {
			if begun.Load()+refused.Load() == sent && begun.Load() <= i {
				send()
			}
			return begun.Load() > i
		})
	}
	for i := range 2 * streams {
		kit.Eventually(t, "another client is served", func() bool {
			res, body := site.Get(t, s, fmt.Sprint("other", i))
			return res.StatusCode == 200 && body == "ok"
		})
	}
}
