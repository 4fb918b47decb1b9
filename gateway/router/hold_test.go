package router_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

// inBubble runs a test with a router over a network in memory.
func inBubble(t *testing.T, cfg router.Config, test func(t *testing.T, rt *router.Router, c *hub.Handle, n *site.Network)) {
	synctest.Test(t, func(t *testing.T) {
		c, n := hub.Of(), new(site.Network)
		cfg.Members, cfg.Dial = c, n.Dial
		test(t, site.NewRouter(t, cfg), c, n)
	})
}

// send sends a request for a key straight into the router.
func send(ctx context.Context, rt *router.Router, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	r.Header.Set("X-Key", key)
	w := httptest.NewRecorder()
	rt.ServeHTTP(w, r)
	return w
}

func TestHoldEndsAtTheDeadline(t *testing.T) {
	inBubble(t, router.Config{}, func(t *testing.T, rt *router.Router, _ *hub.Handle, _ *site.Network) {
		start := time.Now()
		w := send(t.Context(), rt, "k")
		if took := time.Since(start); took != 15*time.Second {
			t.Errorf("took %v", took)
		}
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "no worker takes requests for the key") {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		if s := rt.Stats(); s.Held != 1 || s.Holding != 0 || s.Unreachable != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestHeldRequestWakesWhenAWorkerJoins(t *testing.T) {
	inBubble(t, router.Config{}, func(t *testing.T, rt *router.Router, c *hub.Handle, n *site.Network) {
		n.Serve(t, "a:1", site.Answer("a"))
		start := time.Now()
		time.AfterFunc(3*time.Second, func() { c.Set(site.Member("a", "a:1")) })
		w := send(t.Context(), rt, "k")
		if w.Code != 200 || time.Since(start) != 3*time.Second {
			t.Errorf("%d after %v", w.Code, time.Since(start))
		}
	})
}

func TestHeldRequestWakesWhenAWorkerListens(t *testing.T) {
	inBubble(t, router.Config{}, func(t *testing.T, rt *router.Router, c *hub.Handle, n *site.Network) {
		c.Set(site.Member("a", "a:1"))
		const crowd = 20
		start := time.Now()
		var wg sync.WaitGroup
		for key := range crowd {
			wg.Go(func() {
				w := send(t.Context(), rt, fmt.Sprint(key))
				if took := time.Since(start); w.Code != 200 || took > 6200*time.Millisecond {
					t.Errorf("%d after %v", w.Code, took)
				}
			})
		}
		time.Sleep(5 * time.Second)
		if d := n.Dials.Load(); d > crowd+15 {
			t.Errorf("%d dials of a worker that is down", d)
		}
		n.Serve(t, "a:1", site.Answer("a"))
		wg.Wait()
	})
}

func TestHeldRequestsAreBounded(t *testing.T) {
	inBubble(t, router.Config{Limits: gateway.Limits{MaxHeld: 3}}, func(t *testing.T, rt *router.Router, _ *hub.Handle, _ *site.Network) {
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() { send(t.Context(), rt, fmt.Sprint(i)) })
		}
		synctest.Wait()
		start := time.Now()
		w := send(t.Context(), rt, "k")
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || time.Since(start) != 0 {
			t.Errorf("%d %v after %v", w.Code, w.Header(), time.Since(start))
		}
		if s := rt.Stats(); s.HoldFull != 1 || s.Holding != 3 {
			t.Errorf("%+v", s)
		}
		wg.Wait()
	})
}

// A client that sends less than 60 KiB in a minute, or at the lowest rate less
// than 60 bytes, is given up.
func TestSlowBodies(t *testing.T) {
	testSlowBodies(t, 0, 1, 5*time.Second, 7*time.Second)
	testSlowBodies(t, 1, 60, 50*time.Second, 70*time.Second)
}

func testSlowBodies(t *testing.T, rate int, piece int64, goes, stalls time.Duration) {
	t.Helper()
	inBubble(t, router.Config{MinBodyRate: rate}, func(t *testing.T, rt *router.Router, c *hub.Handle, n *site.Network) {
		n.Serve(t, "a:1", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
		n.Serve(t, "front:1", rt.ServeHTTP)
		c.Set(site.Member("a", "a:1"))
		client := &http.Transport{DialContext: n.Dial}
		defer client.CloseIdleConnections()
		for _, tt := range []struct {
			pause  time.Duration
			length int64
			status int
		}{
			{goes, 10 * piece, 200},
			{stalls, 10 * piece, 408},
			{goes, -1, 200},
			{stalls, -1, 408},
		} {
			body, w := io.Pipe()
			stop := make(chan struct{})
			go func() {
				for i := range 10 {
					select {
					case <-time.After(tt.pause):
					case <-stop:
					}
					if _, err := io.WriteString(w, strings.Repeat(strconv.Itoa(i), int(piece))); err != nil {
						return
					}
				}
				w.Close()
			}()
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://front:1/", body)
			req.ContentLength = tt.length
			req.Header.Set("X-Key", "k")
			res, err := client.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(res.Body)
			res.Body.Close()
			body.Close()
			close(stop)
			if res.StatusCode != tt.status || tt.status == 200 && (int64(len(text)) != 10*piece || text[piece] != '1') {
				t.Errorf("%d bytes in %v, length %d: %d %q, want %d", piece, tt.pause, tt.length, res.StatusCode, text, tt.status)
			}
		}
	})
}

// A request whose body turns out to be empty may have an answer that takes its time.
func TestALongAnswerToAnEmptyBody(t *testing.T) {
	for _, source := range []string{"header:X-Key", "json:/id, header:X-Key"} {
		inBubble(t, router.Config{Keys: kit.KeySources(t, strings.Split(source, ", ")...)}, func(t *testing.T, rt *router.Router, c *hub.Handle, n *site.Network) {
			n.Serve(t, "a:1", func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "begins ")
				http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Second)
				fmt.Fprint(w, r.Context().Err())
			})
			n.Serve(t, "front:1", rt.ServeHTTP)
			c.Set(site.Member("a", "a:1"))
			client := &http.Transport{DialContext: n.Dial}
			defer client.CloseIdleConnections()
			body, w := io.Pipe()
			w.Close()
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://front:1/", body)
			req.Header = http.Header{"X-Key": {"k"}, "Content-Type": {"application/json"}}
			res, err := client.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if text, err := io.ReadAll(res.Body); string(text) != "begins <nil>" || err != nil {
				t.Errorf("%s: %d %q %v", source, res.StatusCode, text, err)
			}
		})
	}
}

// A call of gRPC without a key may be silent both ways for as long as it likes, while its client
// is there. Other bodies have their least rate, also if they are streamed: they hold a key.
func TestStreamsHaveALeastRate(t *testing.T) {
	for _, tt := range []struct {
		kind, key string
		call      bool // the worker is configured for gRPC
		want      string
	}{
		{"application/grpc", "", true, "200 ab"},
		{"application/grpc+proto", "", true, "200 ab"},
		{"application/grpc", "k", true, "408"},
		{"application/grpc", "", false, "408"},
		{"application/octet-stream", "k", true, "408"},
	} {
		name := fmt.Sprint(tt.kind, " ", tt.key, " ", tt.call)
		t.Run("net/http "+name, func(t *testing.T) { testSilentBody(t, false, tt.call, tt.kind, tt.key, tt.want) })
		t.Run("server "+name, func(t *testing.T) { testSilentBody(t, true, tt.call, tt.kind, tt.key, tt.want) })
	}
}

func testSilentBody(t *testing.T, server, call bool, kind, key, want string) {
	cfg := router.Config{Routes: site.Routes(t, `name: a, key: "header:X-Key", without-key: any, body: {buffer: false}`)}
	inBubble(t, cfg, func(t *testing.T, rt *router.Router, c *hub.Handle, n *site.Network) {
		const addr = "127.0.0.1:1"
		client := &http.Transport{DialContext: n.Dial, Protocols: new(http.Protocols)}
		defer client.CloseIdleConnections()
		url := "http://" + addr
		if server {
			cert, key, trusted := kit.Certificate(t)
			settings := site.NetServer()
			settings.Protocols.SetHTTP2(true)
			f := router.NewServer(rt, settings)
			go f.ServeTLS(n.Listen(addr), cert, key)
			defer f.Close()
			client.Protocols.SetHTTP2(true)
			client.TLSClientConfig = &tls.Config{RootCAs: trusted}
			url = "https://" + addr
		} else {
			client.Protocols.SetUnencryptedHTTP2(true)
			n.Serve(t, addr, rt.ServeHTTP)
		}
		n.Serve(t, "a:1", func(rw http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(rw)
			rc.EnableFullDuplex()
			if want != "408" {
				io.CopyN(rw, r.Body, 1)
				rc.Flush()
			}
			io.Copy(rw, r.Body)
		})
		m := site.Member("a", "a:1")
		m.GRPC = call
		c.Set(m)
		body, w := io.Pipe()
		defer body.Close()
		answered := make(chan struct{})
		defer close(answered)
		go func() {
			io.WriteString(w, "a")
			select {
			case <-time.After(10 * time.Minute):
			case <-answered:
			}
			io.WriteString(w, "b")
			w.Close()
		}()
		req, _ := http.NewRequestWithContext(t.Context(), "POST", url, body)
		if req.Header = (http.Header{"Content-Type": {kind}}); key != "" {
			req.Header.Set("X-Key", key)
		}
		res, err := client.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if got := fmt.Sprintf("%d %s", res.StatusCode, text); !strings.HasPrefix(got, want) || err != nil {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	})
}

func TestReady(t *testing.T) {
	c := hub.Of(ring.Member{Name: "r", Role: ring.RoleRouter, State: ring.StateActive})
	rt := site.NewRouter(t, router.Config{Members: c})
	if rt.Ready() == nil {
		t.Error("ready without a worker")
	}
	c.Set(site.Member("a", "a:1"))
	if err := rt.Ready(); err != nil {
		t.Error(err)
	}
}

// A router is not ready while all active workers use another store, and says
// which. One whose store is not known counts as of any.
func TestReadyNeedsWorkersOfTheStore(t *testing.T) {
	of := func(name string, store ring.StoreID) ring.Member {
		m := site.Member(name, name+":1")
		m.StoreID = store
		return m
	}
	c := hub.New(ring.Settings{}).Join(ring.Member{Name: "router", Role: ring.RoleRouter, StoreID: 7})
	rt := site.NewRouter(t, router.Config{Members: c})
	for _, tt := range []struct {
		workers []ring.Member
		ready   bool
	}{
		{[]ring.Member{of("a", 8)}, false},
		{[]ring.Member{of("a", 8), of("b", 7)}, true},
		{[]ring.Member{of("a", 8), of("b", 0)}, true},
		{[]ring.Member{of("a", 6), of("b", 8)}, false},
	} {
		c.Set(tt.workers...)
		err := rt.Ready()
		if tt.ready != (err == nil) {
			t.Errorf("with %v: %v", tt.workers, err)
		}
		if err == nil {
			continue
		}
		for _, want := range []string{ring.StoreID(7).String(), tt.workers[0].StoreID.String(), `"a"`, "--redis"} {
			if !errors.Is(err, ring.ErrSettings) || !strings.Contains(err.Error(), want) {
				t.Errorf("with %v: %v, want ErrSettings and %s", tt.workers, err, want)
			}
		}
	}
	c.Set(site.Leaving(of("a", 8)))
	if err := rt.Ready(); err == nil || errors.Is(err, ring.ErrSettings) {
		t.Errorf("with nobody active: %v", err)
	}
}
