package router_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// workerKinds returns a router for an app behind a worker that takes the link,
// and one for a worker that takes plain HTTP.
func workerKinds(t *testing.T, app http.HandlerFunc, change func(*router.Config)) map[string]*router.Router {
	linked, _ := throughLink(t, app, change)
	cfg := router.Config{Members: hub.Of(site.NewFake(t, "a", app).Member)}
	change(&cfg)
	return map[string]*router.Router{"link": linked, "plain": site.NewRouter(t, cfg)}
}

// slowBody sends a request whose body never comes to its end.
func slowBody(t *testing.T, s *site.Front, announced int, body string) net.Conn {
	t.Helper()
	c := kit.Must(kit.Connect(s.URL))
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: h\r\nX-Key: slow\r\nContent-Length: %d\r\n\r\n%s", announced, body)
	return c
}

// slowBodies sends as many of them as go on one connection of HTTP/2.
func slowBodies(t *testing.T, s *site.Front, requests, announced int, body string) {
	t.Helper()
	head := h2Head(false, ":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/", "x-key", "slow", "content-length", fmt.Sprint(announced))[9:]
	c := kit.Must(kit.Connect(s.URL))
	t.Cleanup(func() { c.Close() })
	go io.Copy(io.Discard, c)
	var frames strings.Builder
	frames.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + kit.H2Frame(4, 0, 0, ""))
	for i := range requests {
		id := uint32(2*i + 1)
		frames.WriteString(kit.H2Frame(1, 4, id, head))
		for rest := body; len(rest) > 0; {
			n := min(len(rest), 16<<10)
			frames.WriteString(kit.H2Frame(0, 0, id, rest[:n]))
			rest = rest[n:]
		}
	}
	go io.WriteString(c, frames.String())
}

// Bodies that are announced take no memory before they come, and what comes of
// them never so much that those of others do not get through.
func TestBodiesOfOthersGetThrough(t *testing.T) { eachWay(t, testBodiesOfOthersGetThrough) }

func testBodiesOfOthersGetThrough(t *testing.T, front way) {
	const clients, announced = 40, 64 << 10
	for sent, body := range map[string]string{"nothing": "", "almost all": strings.Repeat("x", announced-1)} {
		kinds := workerKinds(t, func(rw http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(rw, n, err)
		}, func(c *router.Config) { c.ReplayBytes = 1 << 20 })
		for kind, rt := range kinds {
			t.Run(kind+" "+sent, func(t *testing.T) {
				s := front(t, rt)
				if s.HTTP2 {
					for range 4 { // as many as the window of a connection takes
						slowBodies(t, s, clients/4, announced, body)
					}
				} else {
					for range clients {
						slowBody(t, s, announced, body)
					}
				}
				kit.Eventually(t, "the attack is going on", func() bool { return rt.Stats().Requests == clients })
				if body == "" && rt.Stats().BodyBytes != 0 {
					t.Errorf("%d bytes are accounted for, and nothing has come", rt.Stats().BodyBytes)
				}
				for i := range 20 {
					for _, size := range []int{10, 10_000, 64 << 10} {
						req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, strings.NewReader(strings.Repeat("x", size))))
						req.Header.Set("X-Key", fmt.Sprint(i))
						if res, got := kit.Do(t, s.HTTP, req); res.StatusCode != 200 || got != fmt.Sprint(size, nil) {
							t.Fatalf("another client's POST of %d bytes: %d %q", size, res.StatusCode, got)
						}
					}
				}
				if used := rt.Stats().BodyBytes; used > 1<<20 {
					t.Errorf("%d bytes are in memory", used)
				}
			})
		}
	}
}

// One client uses no more than its share of the memory for bodies: those of
// others can still be sent once more.
func TestOneClientHasAShareOfTheBudget(t *testing.T) {
	const announced = 64 << 10
	refusals := make(chan struct{}, 1)
	a := site.NewFake(t, "a", func(rw http.ResponseWriter, r *http.Request) {
		select {
		case <-refusals:
			io.Copy(io.Discard, r.Body)
			site.Refuse("unavailable", 503)(rw, r)
		default:
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(rw, n, err)
		}
	})
	rt := site.NewRouter(t, router.Config{Members: hub.Of(a.Member), Limits: gateway.Limits{ReplayBytes: 1 << 20}})
	s := site.ThroughServer(t, rt)
	for range 40 {
		slowBody(t, s, announced, strings.Repeat("x", announced-1))
	}
	kit.Eventually(t, "the attack is going on", func() bool { return rt.Stats().Requests == 40 && rt.Stats().BodyBytes >= 256<<10-announced })
	if used := rt.Stats().BodyBytes; used > 256<<10 {
		t.Errorf("one client has %d bytes of 1 MiB", used)
	}
	refusals <- struct{}{}
	other := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}
	defer other.CloseIdleConnections()
	req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, strings.NewReader(strings.Repeat("x", announced))))
	req.Header.Set("X-Key", "k")
	if res, got := kit.Do(t, &http.Client{Transport: other}, req); res.StatusCode != 200 || got != fmt.Sprint(announced, nil) {
		t.Errorf("another client's POST, once refused by the worker: %d %q", res.StatusCode, got)
	}
}

// The heads of requests under way on HTTP/2, which a client can repeat by a few bytes each, take no more memory than the
// client's share, whichever way the requests go.
func TestTrapHeadsAreCharged(t *testing.T) {
	const requests, share = 100, 1 << 20
	for _, length := range []string{"10", ""} {
		rt := site.NewRouter(t, router.Config{Members: hub.Of(site.NewFake(t, "w", site.Answer("a")).Member), Limits: gateway.Limits{ReplayBytes: 4 * share}})
		s := site.ThroughServer(t, rt)
		c := kit.Must(kit.Connect(s.URL))
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		var block, frames strings.Builder
		enc, size := hpack.NewEncoder(&block), 0
		frames.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + kit.H2Frame(4, 0, 0, ""))
		for i := range requests {
			fields := []string{":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/", "x-key", "k"}
			if length != "" {
				fields = append(fields, "content-length", length)
			}
			for range 15 {
				fields = append(fields, "x-large", strings.Repeat("v", 4000))
			}
			block.Reset()
			size = 0
			for f := range slices.Chunk(fields, 2) {
				enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
				size += len(f[0]) + len(f[1]) + 32
			}
			frames.WriteString(kit.H2Frame(1, 4, uint32(2*i+1), block.String()))
		}
		go io.WriteString(c, frames.String())
		in, head := bufio.NewReader(c), make([]byte, 9)
		for refused := 0; refused < requests-share/size; {
			kit.Must(io.ReadFull(in, head))
			payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
			kit.Must(io.ReadFull(in, payload))
			if head[3] == 3 && payload[3] == 7 {
				refused++
			}
		}
		if used := rt.Stats().BodyBytes; used <= share/2 || used > share {
			t.Errorf("heads take %d bytes, the share of a client is %d", used, share)
		}
		small := kit.Must(http.NewRequestWithContext(t.Context(), "GET", s.URL, nil))
		small.Header.Set("X-Key", "k")
		if res, _ := kit.Do(t, kit.Client(t, "HTTP/2"), small); res.StatusCode != 200 {
			t.Errorf("a request of usual size: %d", res.StatusCode)
		}
		c.Close()
		kit.Eventually(t, "the memory is free", func() bool { return rt.Stats().BodyBytes == 0 })
	}
}

// A streamed body that was not kept is not sent once more, and its client told to.
func TestABodyThatWasNotKeptIsNotRepeated(t *testing.T) {
	var hits atomic.Int64
	m := site.LinkWorker(t, func(w *link.ResponseWriter, r *link.ServerRequest) {
		hits.Add(1)
		io.CopyN(io.Discard, r.Body, 20_000)
		w.Refuse(&link.RefusedError{Reason: link.Unavailable})
	})
	m.GRPC = true
	s := site.ThroughServer(t, site.NewRouter(t, router.Config{Members: hub.Of(m), Limits: gateway.Limits{ReplayBytes: 1, Hold: time.Second}}))
	body, w := io.Pipe()
	defer body.Close()
	go io.WriteString(w, strings.Repeat("x", 64<<10-1))
	req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, body))
	req.Header.Set("X-Key", "k")
	req.Header.Set("Content-Type", "application/grpc")
	res, text := kit.Do(t, kit.Client(t, "HTTP/2"), req)
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || !strings.Contains(text, "too many requests with bodies") || hits.Load() != 1 {
		t.Errorf("%d %v %q after %d requests", res.StatusCode, res.Header, text, hits.Load())
	}
}

// A client that sends its body byte by byte is given up, whatever the framing.
func TestSlowBodiesAreGivenUp(t *testing.T) { eachWay(t, testSlowBodiesAreGivenUp) }

func testSlowBodiesAreGivenUp(t *testing.T, front way) {
	kinds := workerKinds(t, func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
	}, func(c *router.Config) { c.ClientTimeout, c.MinBodyRate = 400*time.Millisecond, 1<<20 })
	framings := map[string]string{"small": "Content-Length: 60000", "large": "Content-Length: 6000000", "chunked": "Transfer-Encoding: chunked"}
	for kind, rt := range kinds {
		s := front(t, rt)
		for framing, field := range framings {
			t.Run(kind+" "+framing, func(t *testing.T) {
				if s.HTTP2 {
					if status := dripH2(t, s, framing); status != 408 {
						t.Errorf("answered %d", status)
					}
					return
				}
				c := kit.Must(kit.Connect(s.URL))
				defer c.Close()
				c.SetDeadline(time.Now().Add(time.Minute))
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n%s\r\n\r\n", field)
				piece := "x"
				if framing == "chunked" {
					piece = "1\r\nx\r\n"
				}
				stop := drip(func() error { _, err := io.WriteString(c, piece); return err })
				defer stop()
				in := bufio.NewReader(c)
				res, err := http.ReadResponse(in, nil)
				if err != nil || res.StatusCode != 408 || !res.Close {
					t.Fatalf("%v, %v", res, err)
				}
				io.Copy(io.Discard, res.Body)
				if _, err := in.ReadByte(); err == nil || isTimeout(err) {
					t.Errorf("after the answer: %v", err)
				}
			})
		}
	}
}

// A refused request is answered, and its connection ends, though its body never comes.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	l.Close()
	rt := site.NewRouter(t, router.Config{Members: hub.Of(), Routes: site.Routes(t,
		fmt.Sprintf(`name: upstream, match: {path: /upstream}, without-key: "http://%s"`, l.Addr()), `name: a, key: "header:X-Key"`)})
	for _, front := range []way{throughNetHTTP, site.ThroughServer} {
		s := front(t, rt)
		for _, head := range []string{"POST / HTTP/1.1\r\nContent-Length: 10", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked", "TRACE / HTTP/1.1\r\nContent-Length: 10", "POST /upstream HTTP/1.1\r\nContent-Length: 10"} {
			c := kit.Must(kit.Connect(s.URL))
			defer c.Close()
			c.SetDeadline(time.Now().Add(30 * time.Second))
			fmt.Fprintf(c, "%s\r\nHost: h\r\n\r\n", head)
			if answer, err := io.ReadAll(c); !strings.HasPrefix(string(answer), "HTTP/1.1 ") || err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%q: %q, %v", head, answer, err)
			}
		}
	}
}

// A client that sends its body in pieces reads a refusal that came before: what is left of the body is
// read, so that no piece resets the connection.
func TestARefusalIsNotLostWithTheBody(t *testing.T) {
	s := site.ThroughServer(t, site.NewRouter(t, router.Config{Members: hub.Of(), Limits: gateway.Limits{NoHold: true}}))
	for {
		began, c := time.Now(), kit.Must(kit.Connect(s.URL))
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\nContent-Length: 10\r\n\r\n")
		answer, err := io.ReadAll(c)
		if !strings.HasPrefix(string(answer), "HTTP/1.1 503 ") || err != nil {
			t.Fatalf("%q, %v", answer, err)
		}
		for range 10 {
			if err == nil {
				_, err = io.WriteString(c, "x")
			}
		}
		c.Close()
		if err == nil {
			return
		}
		if d := time.Since(began); d < 200*time.Millisecond { // later, a busy machine may have been too slow for the server
			t.Fatalf("after %v: %v", d, err)
		}
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// drip calls f every 20 ms until it fails or is stopped.
func drip(f func() error) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(20 * time.Millisecond)
		defer t.Stop()
		for f() == nil {
			select {
			case <-t.C:
			case <-done:
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// dripH2 is a POST over HTTP/2 whose body comes byte by byte.
func dripH2(t *testing.T, s *site.Front, framing string) (status int) {
	t.Helper()
	r, w := io.Pipe()
	stop := drip(func() error { _, err := io.WriteString(w, "x"); return err })
	req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, r))
	req.ContentLength = map[string]int64{"small": 60_000, "large": 6_000_000, "chunked": -1}[framing]
	req.Header.Set("X-Key", "k")
	res, _ := kit.Do(t, s.HTTP, req)
	r.Close()
	stop()
	return res.StatusCode
}

// A worker whose answer is longer than it says, or has a body where there is
// none, cannot make another answer of the rest; one whose answer is shorter
// leaves the client in no doubt.
func TestAnswersOfRogueWorkers(t *testing.T) {
	const body = "12345HTTP/1.1 200 OK\r\nX-Split: 1\r\n\r\n-----" // 41 bytes
	honest := "\xc8\x01\x2a"                                       // status 200 and length 41, as the link has them
	for name, tt := range map[string]struct {
		method, answered, plain string
		want                    string // of the body; short if it breaks off
		short                   bool
	}{
		"longer":        {method: "GET", answered: "\xc8\x01\x06", plain: "200 OK\r\nContent-Length: 5", want: "12345"},
		"shorter":       {method: "GET", answered: "\xc8\x01\x7f", plain: "200 OK\r\nContent-Length: 126", want: body, short: true},
		"HEAD":          {method: "HEAD", answered: honest, plain: "200 OK\r\nContent-Length: 41"},
		"no content":    {method: "GET", answered: "\xcc\x01\x2a", plain: "204 No Content"},
		"not modified":  {method: "GET", answered: "\xb0\x02\x2a", plain: "304 Not Modified"},
		"reset content": {method: "GET", answered: "\xcd\x01\x01", plain: "205 Reset Content\r\nContent-Length: 0"},
	} {
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &site.RogueConn{Conn: c, Asked: [2]string{"HEAD", "POST"}, Answered: [2]string{honest, tt.answered}}, err
		}
		linked, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Length", "41")
			io.WriteString(rw, body)
		}, func(c *router.Config) { c.Dial = dial })
		l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
		defer l.Close()
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				go func() {
					defer c.Close()
					if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
						io.WriteString(c, "HTTP/1.1 "+tt.plain+"\r\n\r\n"+body)
					}
				}()
			}
		}()
		plain := site.NewRouter(t, router.Config{Members: hub.Of(site.Member("a", l.Addr().String()))})
		for kind, rt := range map[string]*router.Router{"link": linked, "plain": plain} {
			if tt.short || name == "longer" && kind == "link" {
				t.Run(fmt.Sprint(name, " ", kind, " h2"), func(t *testing.T) {
					base, _ := frontOf(t, rt)
					get := h2Head(true, ":method", tt.method, ":scheme", "http", ":authority", "h", ":path", "/", "x-key", "k")
					if got := sendH2(t, base, get); got != "reset 2" {
						t.Errorf("%s, want INTERNAL_ERROR", got)
					}
				})
			}
			for over, front := range map[string]way{"server": throughNetHTTP, "front": site.ThroughServer} {
				t.Run(fmt.Sprint(name, " ", kind, " ", over), func(t *testing.T) {
					c := kit.Must(kit.Connect(front(t, rt).URL))
					defer c.Close()
					c.SetDeadline(time.Now().Add(time.Minute))
					request := tt.method + " / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n\r\n"
					io.WriteString(c, request+strings.Replace(request, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
					in := bufio.NewReader(c)
					res, err := http.ReadResponse(in, &http.Request{Method: tt.method})
					if err != nil {
						if over == "front" && (name == "longer" || tt.short) {
							t.Fatal(err)
						}
						return // net/http gives such an answer up
					}
					got, err := io.ReadAll(res.Body)
					if string(got) != tt.want && err == nil || tt.short != (err != nil) {
						t.Errorf("%d %q, %v", res.StatusCode, got, err)
					}
					switch next, err := http.ReadResponse(in, &http.Request{Method: tt.method}); {
					case err == nil && next.Header.Get("X-Split") != "":
						t.Error("the rest has become an answer")
					case err != nil && err != io.EOF && err != io.ErrUnexpectedEOF && !errors.Is(err, syscall.ECONNRESET):
						t.Errorf("then %v", err)
					}
				})
			}
		}
	}
}

// A client that sends more than its request and then leaves is noticed as one
// that leaves: its requests are not for anybody. net/http does not notice.
func TestClientLeavesAfterSendingMore(t *testing.T) {
	for _, more := range []string{"", "G", "GET / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n\r\n"} {
		for name, leave := range map[string]func(c *net.TCPConn){
			"closes":      func(c *net.TCPConn) { c.Close() },
			"half closes": func(c *net.TCPConn) { c.CloseWrite() },
			"resets":      func(c *net.TCPConn) { c.SetLinger(0); c.Close() },
		} {
			t.Run(fmt.Sprintf("%s after %d bytes", name, len(more)), func(t *testing.T) {
				entered, left := make(chan struct{}, 1), make(chan struct{}, 1)
				over := make(chan struct{})
				rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
					entered <- struct{}{}
					select {
					case <-r.Context().Done():
						left <- struct{}{}
					case <-over:
					}
				})
				base, _ := frontOf(t, rt)
				defer close(over)
				c := kit.Must(kit.Connect(base)).(*net.TCPConn)
				defer c.Close()
				io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n\r\n")
				<-entered
				io.WriteString(c, more)
				leave(c)
				select {
				case <-left:
				case <-time.After(time.Minute):
					t.Error("it runs on for nobody")
				}
			})
		}
	}
}

// A client that connects and says nothing is not kept for long.
func TestSilentConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	base, _ := frontOf(t, site.NewRouter(t, router.Config{Members: hub.Of()}))
	c := kit.Must(kit.Connect(base))
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("after a minute: %v", err)
	}
}
