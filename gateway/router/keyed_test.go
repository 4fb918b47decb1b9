package router_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
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
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

func echoKey(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %d %v", r.Header.Get(gateway.HeaderKey), len(body), err)
}

// Keys of every kind reach the worker, and so does the body in which one stands.
func TestKeysOfEveryKind(t *testing.T) { eachWay(t, testKeysOfEveryKind) }

func testKeysOfEveryKind(t *testing.T, front way) {
	w := site.NewFake(t, "w", echoKey)
	members := hub.Of(w.Member)
	padded := `{"order": {"id": 42}}` + strings.Repeat(" ", 50_000)
	for _, tt := range []struct {
		spec, path, body string
		header           []string
		want             string
	}{
		{"json:/order/id", "/", padded, nil, fmt.Sprint("42 ", len(padded), " <nil>")},
		{"json:/order/id", "/", padded + strings.Repeat(" ", 20_000), nil, "400"},
		{"json:/order/id", "/", "{}", nil, "400"},
		{"json:/order/id", "/", "", nil, "400"},
		{"grpc:order-bin", "/", "", []string{"Order-Bin", "NDI="}, "42 0 <nil>"},
		{"client", "/", "", []string{"X-Forwarded-For", "192.0.2.1"}, "127.0.0.1 0 <nil>"},
		{"path:/o/{id}", "/o/42/", "", nil, "42 0 <nil>"},
		{"path:/o/{id}", "/o//42/", "", nil, "400"},
	} {
		s := front(t, site.NewRouter(t, router.Config{Members: members, Keys: kit.KeySources(t, tt.spec)}))
		for _, chunked := range []bool{false, true} {
			req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL+tt.path, strings.NewReader(tt.body)))
			if req.Header.Set("Content-Type", "application/json"); chunked && tt.body != "" {
				req.ContentLength = -1
			}
			for i := 0; i < len(tt.header); i += 2 {
				req.Header.Set(tt.header[i], tt.header[i+1])
			}
			res, got := kit.Do(t, s.HTTP, req)
			if res.StatusCode != 200 {
				got = fmt.Sprint(res.StatusCode)
			}
			if got != tt.want {
				t.Errorf("%s, chunked %v: %.100q, want %q", tt.spec, chunked, got, tt.want)
			}
		}
	}
}

func TestTheKeyOfAClientBehindAProxy(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		w := site.NewFake(t, "w", echoKey)
		s := front(t, site.NewRouter(t, router.Config{
			Members: hub.Of(w.Member), Keys: kit.KeySources(t, "client"),
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")},
		}))
		for want, all := range map[string][]string{
			"192.0.2.8":   {"192.0.2.7, 192.0.2.8, 10.0.0.1", "192.0.2.7:1, 192.0.2.8:2, 10.0.0.1:3", "192.0.2.8:4", "::ffff:192.0.2.8, ::FFFF:10.0.0.1"},
			"2001:db8::8": {"2001:DB8:0::8", "[2001:db8::8]:4", "192.0.2.7, [2001:db8::8], [::ffff:10.0.0.1]"},
		} {
			for _, forwarded := range all {
				req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", s.URL, nil))
				req.Header.Set("X-Forwarded-For", forwarded)
				if _, got := kit.Do(t, s.HTTP, req); got != want+" 0 <nil>" {
					t.Errorf("%s: got %q", forwarded, got)
				}
			}
		}
	})
}

// A body that holds a key and is longer than any may be is refused, also where there is no memory for all of it.
func TestABodyWithAKeyThatIsTooLong(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		w := site.NewFake(t, "w", echoKey)
		s := front(t, site.NewRouter(t, router.Config{
			Members: hub.Of(w.Member), Keys: kit.KeySources(t, "json:/id"),
			Limits: gateway.Limits{ReplayBytes: 8 << 10, MaxBody: 10_000, BodyDir: t.TempDir()},
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		req := kit.Must(http.NewRequestWithContext(ctx, "POST", s.URL, strings.NewReader(`{"id": 1}`+strings.Repeat(" ", 50_000))))
		req.Header.Set("Content-Type", "application/json")
		if res, text := kit.Do(t, s.HTTP, req); res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%d %s", res.StatusCode, text)
		}
	})
}

// A client that does not send the body in which its key stands is not waited for
// longer than for any body.
func TestABodyWithAKeyThatDoesNotCome(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		w := site.NewFake(t, "w", echoKey)
		rt := site.NewRouter(t, router.Config{Members: hub.Of(w.Member), Keys: kit.KeySources(t, "json:/id"), ClientTimeout: 100 * time.Millisecond})
		s := front(t, rt)
		body, write := io.Pipe()
		defer write.Close()
		go io.WriteString(write, `{"id":`)
		req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, body))
		req.Header.Set("Content-Type", "application/json")
		if res, err := s.HTTP.Do(req); err == nil {
			defer res.Body.Close()
			if res.StatusCode != http.StatusRequestTimeout {
				t.Errorf("status %d", res.StatusCode)
			}
		} else if !s.HTTP2 {
			t.Error(err)
		}
		if w.Hits.Load() != 0 {
			t.Error("the request reached a worker")
		}
	})
}

// A request whose key stands in its body needs nothing of net/http, in front of whichever worker,
// nor do those that follow on its connection. It is sent as it came, and again if it was refused.
func TestABodyWithAKeyGoesTheFastWay(t *testing.T) {
	overLink := func(t *testing.T, refusals int64) ring.Member {
		var asked atomic.Int64
		return site.LinkWorker(t, func(w *link.ResponseWriter, r *link.ServerRequest) {
			if asked.Add(1) <= refusals {
				w.Refuse(&link.RefusedError{Reason: link.Unavailable})
				return
			}
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %d %v", r.Key, len(body), err)
		})
	}
	for _, tt := range []struct {
		name   string
		worker func(*testing.T) ring.Member
		memory int
	}{
		{"HTTP/1.1", func(t *testing.T) ring.Member { return site.NewFake(t, "w", echoKey).Member }, 0},
		{"link", func(t *testing.T) ring.Member { return overLink(t, 0) }, 0},
		{"refused", func(t *testing.T) ring.Member { return overLink(t, 2) }, 0},
		{"no memory", func(t *testing.T) ring.Member { return overLink(t, 1) }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var handed atomic.Int64
			general := site.NetServer()
			general.ConnState = func(net.Conn, http.ConnState) { handed.Add(1) }
			rt := site.NewRouter(t, router.Config{Members: hub.Of(tt.worker(t)), Keys: kit.KeySources(t, "json:/id"), Limits: gateway.Limits{ReplayBytes: tt.memory}})
			s := router.NewServer(rt, general)
			l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
			go s.Serve(l)
			defer s.Close()
			for i, body := range []string{`{"id":"a"}`, `{"id":"b"}` + strings.Repeat(" ", 60_000), `{"id":"c"}`} {
				req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", "http://"+l.Addr().String(), strings.NewReader(body)))
				req.Header.Set("Content-Type", "application/json")
				want := fmt.Sprintf("%c %d <nil>", 'a'+i, len(body))
				if _, got := kit.Do(t, http.DefaultClient, req); got != want {
					t.Errorf("%.100q, want %q", got, want)
				}
			}
			if n := handed.Load(); n > 0 {
				t.Errorf("net/http was told %d times of connections", n)
			}
		})
	}
}

// A body that breaks off before its key is known is given up there and then, on a route that streams bodies too:
// what was read of it is not there for anybody else.
func TestABodyThatBreaksOffBeforeItsKey(t *testing.T) {
	var handed atomic.Int64
	general := site.NetServer()
	general.ConnState = func(net.Conn, http.ConnState) { handed.Add(1) }
	w := site.NewFake(t, "w", echoKey)
	rt := site.NewRouter(t, router.Config{Members: hub.Of(w.Member), Routes: site.Routes(t, `name: a, key: "json:/id", body: {buffer: false}`), ClientTimeout: 100 * time.Millisecond})
	s := router.NewServer(rt, general)
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	go s.Serve(l)
	defer s.Close()
	c := kit.Must(net.Dial("tcp", l.Addr().String()))
	defer c.Close()
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{\"id\":")
	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
		t.Errorf("%q, %v", answer, err)
	}
	if handed.Load() > 0 || w.Hits.Load() > 0 {
		t.Errorf("net/http was told %d times of the connection, the worker has %d requests", handed.Load(), w.Hits.Load())
	}
}

// A body in which a key is looked for counts as any that is kept: slow clients take no more memory than their share,
// what exceeds it is in files, and what has no room is refused.
func TestTrapBodiesWithKeysAreCharged(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		const clients, come, share = 20, 60_000, 128 << 10
		w := site.NewFake(t, "w", echoKey)
		start := func(limits gateway.Limits) (*router.Router, *site.Front) {
			rt := site.NewRouter(t, router.Config{Members: hub.Of(w.Member), Keys: kit.KeySources(t, "json:/id"), Limits: limits})
			return rt, front(t, rt)
		}
		for _, known := range []bool{true, false} {
			request := func(s *site.Front, body io.Reader, length int64) *http.Request {
				req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, body))
				req.Header.Set("Content-Type", "application/json")
				if req.ContentLength = length; !known {
					req.ContentLength = -1
				}
				return req
			}
			rt, s := start(gateway.Limits{ReplayBytes: 4 * share})
			begin, spaces := `{"id":"k"`, strings.Repeat(" ", come)
			var answered sync.WaitGroup
			rest := make(chan struct{})
			end := sync.OnceFunc(func() {
				close(rest)
				answered.Wait()
			})
			defer end()
			for range clients {
				r, w := io.Pipe()
				go func() {
					io.WriteString(w, begin+spaces)
					<-rest
					io.WriteString(w, "}")
					w.Close()
				}()
				answered.Go(func() {
					if res, got := kit.Do(t, s.HTTP, request(s, r, int64(len(begin)+come+1))); got != fmt.Sprint("k ", len(begin)+come+1, " <nil>") {
						t.Errorf("a body that came slowly, of known length %v: %s %.100q", known, res.Status, got)
					}
				})
			}
			kit.Eventually(t, "all that has come is counted", func() bool {
				return rt.Stats().BodyBytes > share/2 && rt.Stats().BodyBytes+rt.Stats().BodyFiles >= clients*come
			})
			if used := rt.Stats().BodyBytes; used > share {
				t.Errorf("of known length %v: %d bytes are in memory, of which one client may use %d", known, used, share)
			}
			end()
			kit.Eventually(t, "nothing is kept", func() bool { return rt.Stats().BodyBytes+rt.Stats().BodyFiles == 0 })

			hits := w.Hits.Load()
			rt, s = start(gateway.Limits{ReplayBytes: 1, BodyFiles: 1})
			res, _ := kit.Do(t, s.HTTP, request(s, strings.NewReader(begin+spaces+"}"), int64(len(begin)+come+1)))
			if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || w.Hits.Load() != hits {
				t.Errorf("without room for a body of known length %v: %d %v", known, res.StatusCode, res.Header)
			}
			kit.Eventually(t, "nothing is kept of it", func() bool { return rt.Stats().BodyBytes+rt.Stats().BodyFiles == 0 })
		}
	})
}
