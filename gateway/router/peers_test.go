package router_test

import (
	"bufio"
	"context"
	"errors"
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
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// rawWorker is a worker of which the test holds the connections.
func rawWorker(t *testing.T, serve func(n int64, c net.Conn, r *bufio.Reader)) (addr string, requests *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int64)
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					if req.Header.Get("Expect") != "" {
						io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
					}
					io.Copy(io.Discard, req.Body)
					n := requests.Add(1)
					if n == 1 {
						io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
						continue
					}
					serve(n, c, r)
					return
				}
			})
		}
	})
	return l.Addr().String(), requests
}

// A connection that was in use before dies under the request, which
// http.Transport would send once more if it is a GET or has an Idempotency-Key.
func TestARequestThatMayHaveStartedIsNotRepeated(t *testing.T) {
	eachWay(t, testARequestThatMayHaveStartedIsNotRepeated)
}

func testARequestThatMayHaveStartedIsNotRepeated(t *testing.T, front way) {
	endings := map[string]func(net.Conn){
		"closed":       func(net.Conn) {},
		"reset":        func(c net.Conn) { c.(*net.TCPConn).SetLinger(0) },
		"half a head":  func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-") },
		"not HTTP":     func(c net.Conn) { io.WriteString(c, "hello\r\n\r\n") },
		"interim only": func(c net.Conn) { io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n") },
	}
	for name, end := range endings {
		for _, method := range []string{"GET", "HEAD", "DELETE", "OPTIONS", "PUT", "POST", "QUERY"} {
			t.Run(name+" "+method, func(t *testing.T) {
				addr, requests := rawWorker(t, func(_ int64, c net.Conn, _ *bufio.Reader) { end(c) })
				rt := site.NewRouter(t, router.Config{Members: hub.Of(site.Member("a", addr))})
				s := front(t, rt)
				for i, want := range []int{200, 502} {
					req, _ := http.NewRequestWithContext(t.Context(), method, s.URL, nil)
					req.Header.Set("X-Key", "k")
					req.Header.Set("Idempotency-Key", "1")
					if res, body := kit.Do(t, s.HTTP, req); res.StatusCode != want {
						t.Errorf("request %d: %d %q, want %d", i, res.StatusCode, body, want)
					}
				}
				if n := requests.Load(); n != 2 {
					t.Errorf("the worker got %d requests, want 2", n)
				}
				if st := rt.Stats(); st.Broken != 1 || st.Held != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

func TestABodySentIsNotRepeated(t *testing.T) { eachWay(t, testABodySentIsNotRepeated) }

func testABodySentIsNotRepeated(t *testing.T, front way) {
	for _, size := range []int{10, 1 << 20} {
		addr, requests := rawWorker(t, func(int64, net.Conn, *bufio.Reader) {})
		s := front(t, site.NewRouter(t, router.Config{Members: hub.Of(site.Member("a", addr))}))
		for _, want := range []int{200, 502} {
			req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL, strings.NewReader(strings.Repeat("x", size)))
			req.Header.Set("X-Key", "k")
			if res, _ := kit.Do(t, s.HTTP, req); res.StatusCode != want {
				t.Errorf("%d bytes: %d, want %d", size, res.StatusCode, want)
			}
		}
		if requests.Load() != 2 {
			t.Errorf("%d bytes: %d requests, want 2", size, requests.Load())
		}
	}
}

// A worker that closes a connection which is idle is no reason to fail.
func TestIdleConnectionsThatEndAreReplaced(t *testing.T) {
	eachWay(t, testIdleConnectionsThatEndAreReplaced)
}

func testIdleConnectionsThatEndAreReplaced(t *testing.T, front way) {
	a := site.NewFake(t, "a", site.Answer("a"))
	s := front(t, site.NewRouter(t, router.Config{Members: hub.Of(a.Member)}))
	for range 20 {
		if res, _ := site.Get(t, s, "k"); res.StatusCode != 200 {
			t.Fatal(res.StatusCode)
		}
		a.CloseClientConnections()
	}
}

func TestARefusedDialIsRetriedAtTheOwnerByTheRing(t *testing.T) {
	eachWay(t, testARefusedDialIsRetriedAtTheOwnerByTheRing)
}

func testARefusedDialIsRetriedAtTheOwnerByTheRing(t *testing.T, front way) {
	a := site.NewFake(t, "a", nil)
	gone := site.Member("b", kit.FreeAddr(t))
	a.Set(site.NotOwner(gone, 7))
	rt := site.NewRouter(t, router.Config{Members: hub.Of(a.Member, site.Leaving(gone)), Limits: gateway.Limits{NoHold: true}})
	s := front(t, rt)
	if res, _ := site.Get(t, s, "k"); res.StatusCode != 503 {
		t.Errorf("%d", res.StatusCode)
	}
	a.Set(site.Answer("a"))
	if res, body := site.Get(t, s, "k"); res.StatusCode != 200 || body != "a" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

// The connection is made, but the first write fails: nothing has left, so the
// request is sent again.
func TestARequestThatWasNotWrittenIsSentAgain(t *testing.T) {
	eachWay(t, testARequestThatWasNotWrittenIsSentAgain)
}

func testARequestThatWasNotWrittenIsSentAgain(t *testing.T, front way) {
	a := site.NewFake(t, "a", site.Answer("a"))
	var dials atomic.Int64
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if dials.Add(1) == 1 && err == nil {
			return deadConn{c}, nil
		}
		return c, err
	}
	for _, method := range []string{"GET", "POST"} {
		dials.Store(0)
		s := front(t, site.NewRouter(t, router.Config{Members: hub.Of(a.Member), Dial: dial}))
		req, _ := http.NewRequestWithContext(t.Context(), method, s.URL, strings.NewReader("body"))
		req.Header.Set("X-Key", "k")
		if res, body := kit.Do(t, s.HTTP, req); res.StatusCode != 200 || body != "a" {
			t.Errorf("%s: %d %q", method, res.StatusCode, body)
		}
	}
}

type deadConn struct{ net.Conn }

func (c deadConn) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestConnectionsToMembersThatLeftAreClosed(t *testing.T) {
	eachWay(t, testConnectionsToMembersThatLeftAreClosed)
}

func testConnectionsToMembersThatLeftAreClosed(t *testing.T, front way) {
	a, b := site.NewFake(t, "a", site.Answer("a")), site.NewFake(t, "b", site.Answer("b"))
	var open atomic.Int64
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil && addr == a.Addr {
			open.Add(1)
			c = &closeCounter{Conn: c, open: &open}
		}
		return c, err
	}
	c := hub.Of(a.Member)
	s := front(t, site.NewRouter(t, router.Config{Members: c, Dial: dial}))
	site.Get(t, s, "k")
	if open.Load() != 1 {
		t.Fatalf("%d connections to a", open.Load())
	}
	c.Set(b.Member)
	site.Get(t, s, "k")
	kit.Eventually(t, "the connection to a closes", func() bool { return open.Load() == 0 })
}

type closeCounter struct {
	net.Conn
	once sync.Once
	open *atomic.Int64
}

func (c *closeCounter) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

func TestConnectionsToAWorkerAreBounded(t *testing.T) {
	eachWay(t, testConnectionsToAWorkerAreBounded)
}

func testConnectionsToAWorkerAreBounded(t *testing.T, front way) {
	var now, most atomic.Int64
	release := make(chan struct{})
	a := site.NewFake(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release
		now.Add(-1)
	})
	s := front(t, site.NewRouter(t, router.Config{Members: hub.Of(a.Member), Limits: gateway.Limits{ConnsPerWorker: 3}}))
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() { site.Get(t, s, fmt.Sprint(i)) })
	}
	kit.Eventually(t, "three requests run", func() bool { return now.Load() == 3 })
	close(release)
	wg.Wait()
	if most.Load() != 3 {
		t.Errorf("%d requests at one time", most.Load())
	}
}

func TestClientDisconnectCancelsTheRequest(t *testing.T) {
	eachWay(t, testClientDisconnectCancelsTheRequest)
}

func testClientDisconnectCancelsTheRequest(t *testing.T, front way) {
	kit.NoLeaks(t)
	for _, body := range []string{"", "small", strings.Repeat("x", 100<<10)} {
		started, cancelled := make(chan struct{}), make(chan struct{})
		a := site.NewFake(t, "a", func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			close(started)
			<-r.Context().Done()
			close(cancelled)
		})
		rt := site.NewRouter(t, router.Config{Members: hub.Of(a.Member)})
		s := front(t, rt)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, "POST", s.URL, strings.NewReader(body))
			req.Header.Set("X-Key", "k")
			if res, err := s.HTTP.Do(req); err == nil {
				res.Body.Close()
				t.Errorf("answered %d", res.StatusCode)
			}
		})
		<-started
		cancel()
		select {
		case <-cancelled:
		case <-time.After(time.Minute):
			t.Fatal("the worker's request goes on")
		}
		wg.Wait()
		kit.Eventually(t, "the router counts it", func() bool { return rt.Stats().ClientGone == 1 })
	}
}
