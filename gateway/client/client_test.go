package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

func TestClientConfigIsChecked(t *testing.T) {
	if _, err := client.New(client.Config{}); err == nil || !strings.Contains(err.Error(), "client: Config.Members") {
		t.Error(err)
	}
	for field, limits := range map[string]gateway.Limits{
		"Hold is -1ns":         {Hold: -1},
		"MaxHeld is -1":        {MaxHeld: -1},
		"ReplayBytes is -1":    {ReplayBytes: -1},
		"ConnsPerWorker is -1": {ConnsPerWorker: -1},
		"DialTimeout is -1s":   {DialTimeout: -time.Second},
	} {
		if _, err := client.New(client.Config{Members: hub.Of(), Limits: limits}); err == nil || !strings.HasPrefix(err.Error(), "client: Limits."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	c := site.NewClient(t, client.Config{Members: hub.Of(site.Member("a", "a:1"))})
	if owner, err := c.Owner("k"); owner.Name != "a" || err != nil {
		t.Errorf("%+v, %v", owner, err)
	}
	if _, err := c.Owner(""); !errors.Is(err, gateway.ErrNoKey) {
		t.Error(err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("Close is not idempotent: %v", err)
		}
	}
}

// closedBody counts how often it is closed.
type closedBody struct {
	io.Reader
	closed atomic.Int64
}

func (b *closedBody) Close() error {
	b.closed.Add(1)
	return nil
}

// What cannot be sent is said, with the key, and runs nowhere. The body is closed
// once, as for a request that is answered.
func TestClientMisuse(t *testing.T) {
	broken := errors.New("broken")
	var hits atomic.Int64
	ways := clientWays(t, func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		io.Copy(w, r.Body)
	})
	for _, tt := range []struct {
		name   string
		change func(r *http.Request, body *closedBody)
		want   string // in the error; "" for an answer
		is     error
		runs   bool
	}{
		{name: "nothing wrong", change: func(r *http.Request, b *closedBody) {}, runs: true},
		{name: "no header", change: func(r *http.Request, b *closedBody) { r.Header = nil }, want: "Keyway-Key", is: gateway.ErrNoKey},
		{name: "no key", change: func(r *http.Request, b *closedBody) { r.Header = http.Header{} }, want: "set it percent-encoded in Keyway-Key", is: gateway.ErrNoKey},
		{name: "bad key", change: func(r *http.Request, b *closedBody) { r.Header.Set("Keyway-Key", "%0a") }, is: gateway.ErrBadKey},
		{name: "no URL", change: func(r *http.Request, b *closedBody) { r.URL = nil }, want: "no URL"},
		{name: "https", change: func(r *http.Request, b *closedBody) { r.URL.Scheme = "https" }, want: `"https"`},
		{name: "CONNECT", change: func(r *http.Request, b *closedBody) { r.Method = "CONNECT" }, want: "CONNECT", is: errors.ErrUnsupported},
		{name: "TRACE", change: func(r *http.Request, b *closedBody) { r.Method = "TRACE" }, want: "TRACE", is: errors.ErrUnsupported},
		{name: "bad method", change: func(r *http.Request, b *closedBody) { r.Method = "GE T" }, want: `bad method "GE T"`},
		{name: "a member's method", change: func(r *http.Request, b *closedBody) { r.Method = ":acquire" }, want: `bad method ":acquire"`},
		{name: "bad host", change: func(r *http.Request, b *closedBody) { r.Host = "h\r\nX-Key: k" }, want: "host"},
		{name: "opaque", change: func(r *http.Request, b *closedBody) { r.URL.Opaque = "x" }, want: "not a path"},
		{name: "asterisk", change: func(r *http.Request, b *closedBody) { r.Method, r.URL.Path = "OPTIONS", "*" }, want: "not a path"},
		{name: "relative", change: func(r *http.Request, b *closedBody) { r.URL.Path = "a" }, want: "not a path"},
		{name: "bad query", change: func(r *http.Request, b *closedBody) { r.URL.RawQuery = "a b" }, want: "not a path"},
		{name: "bad name", change: func(r *http.Request, b *closedBody) { r.Header["A b"] = []string{"x"} }, want: `"A b"`},
		{name: "bad value", change: func(r *http.Request, b *closedBody) { r.Header["A"] = []string{"x\r\nB: y"} }, want: `"A"`},
		{name: "no body of a length", change: func(r *http.Request, b *closedBody) { r.Body = nil }, want: "ContentLength of 4"},
		{name: "short body", change: func(r *http.Request, b *closedBody) { r.ContentLength = 5 }, want: "1 bytes shorter", is: io.ErrUnexpectedEOF},
		{name: "long body", change: func(r *http.Request, b *closedBody) { r.ContentLength = 3 }, want: "longer"},
		{name: "broken body", change: func(r *http.Request, b *closedBody) { b.Reader = failing{broken} }, is: broken},
		{name: "broken streamed body", change: func(r *http.Request, b *closedBody) { b.Reader, r.ContentLength = failing{broken}, -1 }, is: broken},
		{name: "short large body", change: func(r *http.Request, b *closedBody) { r.ContentLength = 200 << 10 }, is: io.ErrUnexpectedEOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for way, c := range ways {
				hits.Store(0)
				body := &closedBody{Reader: strings.NewReader("body")}
				r := keyed(t, "POST", "http://h/", nil)
				r.Body, r.ContentLength = body, 4
				if tt.change(r, body); r.Body == nil {
					body.closed.Store(1)
				}
				res, err := c.RoundTrip(r)
				if err == nil {
					_, err = io.ReadAll(res.Body)
					res.Body.Close()
				}
				switch {
				case tt.want == "" && tt.is == nil:
					if err != nil {
						t.Errorf("%s: %v", way, err)
					}
				case err == nil, !strings.Contains(err.Error(), tt.want), tt.is != nil && !errors.Is(err, tt.is):
					t.Errorf("%s: %v", way, err)
				case !tt.runs && (errors.Is(err, gateway.ErrMayHaveRun) || hits.Load() != 0), tt.runs && !errors.Is(err, gateway.ErrMayHaveRun):
					t.Errorf("%s: %v, after %d runs", way, err, hits.Load())
				}
				if n := body.closed.Load(); n != 1 {
					t.Errorf("%s: the body was closed %d times", way, n)
				}
			}
		})
	}
	for way, c := range ways {
		if _, err := c.RoundTrip(nil); err == nil {
			t.Errorf("%s: no request is sent", way)
		}
	}
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A client takes keys from where it is told, and no other.
func TestClientKeySources(t *testing.T) {
	app := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("Keyway-Key")) }
	for _, way := range []string{"link", "HTTP", "local"} {
		cfg := clientWay(t, way, app)
		cfg.Keys = kit.KeySources(t, "header:X-Key", "path:/orders/{key}", "host")
		c := site.NewClient(t, cfg)
		for target, want := range map[string]string{"http://h/orders/4%202": "4%202", "http://Shop.example/": "shop.example"} {
			if _, text := kit.Do(t, &http.Client{Transport: c}, keyed(t, "GET", target, nil)); text != want {
				t.Errorf("%s: %s: %q", way, target, text)
			}
		}
	}
}

// bubble runs a test with a client over a network in memory.
func bubble(t *testing.T, cfg client.Config, test func(t *testing.T, c *client.Client, members *hub.Handle, n *site.Network)) {
	synctest.Test(t, func(t *testing.T) {
		members, n := hub.Of(), new(site.Network)
		cfg.Members, cfg.Dial = members, n.Dial
		test(t, site.NewClient(t, cfg), members, n)
	})
}

func TestClientHolds(t *testing.T) {
	bubble(t, client.Config{Limits: gateway.Limits{MaxHeld: 3}}, func(t *testing.T, c *client.Client, members *hub.Handle, n *site.Network) {
		n.Serve(t, "a:1", site.Answer("a"))
		start := time.Now()
		_, err := c.RoundTrip(keyed(t, "GET", "/", nil))
		if took := time.Since(start); took != 15*time.Second || !errors.Is(err, gateway.ErrUnavailable) || errors.Is(err, gateway.ErrMayHaveRun) || !strings.Contains(err.Error(), `key "k /"`) {
			t.Errorf("%v after %v", err, took)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
		defer cancel()
		if _, err := c.RoundTrip(keyed(t, "GET", "/", nil).WithContext(ctx)); err == nil || !strings.Contains(err.Error(), "enough") || errors.Is(err, gateway.ErrMayHaveRun) {
			t.Errorf("%v", err)
		}
		if _, err := c.RoundTrip(keyed(t, "GET", "/", nil).WithContext(ctx)); err == nil || !strings.Contains(err.Error(), "enough") || errors.Is(err, gateway.ErrMayHaveRun) {
			t.Errorf("a context that has ended: %v", err)
		}
		time.AfterFunc(3*time.Second, func() { members.Set(site.Member("a", "a:1")) })
		start = time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				res, err := c.RoundTrip(keyed(t, "GET", "/", nil))
				if err != nil || time.Since(start) != 3*time.Second {
					t.Errorf("%v after %v", err, time.Since(start))
					return
				}
				res.Body.Close()
			})
		}
		synctest.Wait()
		if _, err := c.RoundTrip(keyed(t, "GET", "/", nil)); !errors.Is(err, gateway.ErrBusy) || errors.Is(err, gateway.ErrMayHaveRun) {
			t.Errorf("one too many: %v", err)
		}
		wg.Wait()
	})
}

// Close ends what waits for an owner, and what comes later, at once.
func TestClientClose(t *testing.T) {
	bubble(t, client.Config{Limits: gateway.Limits{Hold: time.Hour}}, func(t *testing.T, c *client.Client, members *hub.Handle, n *site.Network) {
		members.Set(site.Member("a", "a:1"))
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := c.RoundTrip(keyed(t, "GET", "/", nil)); err == nil || !strings.Contains(err.Error(), "closed") {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		start := time.Now()
		c.Close()
		if _, err := c.RoundTrip(keyed(t, "GET", "/", nil)); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Error(err)
		}
		wg.Wait()
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// refuser is a worker of the link that refuses requests, once it has read a part of
// their bodies, and then answers with the hash of the body.
func refuser(t *testing.T, refusals int64, r link.RefusedError, reads int64) ring.Member {
	var hits atomic.Int64
	return site.LinkWorker(t, func(w *link.ResponseWriter, in *link.ServerRequest) {
		if hits.Add(1) <= refusals {
			io.CopyN(io.Discard, in.Body, reads)
			w.Refuse(&r)
			return
		}
		fmt.Fprint(w, site.Sum(in.Body))
	})
}

// A request that a worker refuses arrives whole at the next one, and at the owner
// that was named.
func TestClientRepeats(t *testing.T) {
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 3 << 20} {
		for _, sized := range []bool{true, false} {
			content := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
			owner := refuser(t, 1, link.RefusedError{Reason: link.Unavailable}, 100)
			owner.Name, owner.Incarnation = "owner", "owner-life"
			first := refuser(t, 1, link.RefusedError{Reason: link.NotOwner, Owner: "owner-life", Epoch: 7}, 0)
			first.Name = "first"
			owner.State = ring.StateLeaving
			c := site.NewClient(t, client.Config{Members: hub.Of(owner, first)})
			body := &closedBody{Reader: bytes.NewReader(content)}
			r := keyed(t, "POST", "/", body)
			if sized {
				r.ContentLength = int64(size)
			}
			res, text := kit.Do(t, &http.Client{Transport: c}, r)
			if want := site.Sum(bytes.NewReader(content)); res.StatusCode != 200 || text != want {
				t.Errorf("%d bytes: %d %q, want the body's hash %q", size, res.StatusCode, text, want)
			}
			if n := body.closed.Load(); n != 1 {
				t.Errorf("%d bytes: the body was closed %d times", size, n)
			}
			if owner, _ := c.Owner("k /"); owner.Name != "owner" {
				t.Errorf("the owner is not learned: %+v", owner)
			}
		}
	}
}

// A request that may have run is not sent again, and its error says so.
func TestClientMayHaveRun(t *testing.T) {
	var hits atomic.Int64
	gone := make(chan struct{}, 10)
	app := func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		switch r.URL.Path {
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/panic":
			panic("by intent")
		case "/midway":
			io.WriteString(w, strings.Repeat("x", 100<<10))
			panic(http.ErrAbortHandler)
		case "/short":
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "short")
		case "/wait":
			<-r.Context().Done()
			gone <- struct{}{}
		}
	}
	for way, c := range clientWays(t, app) {
		for _, path := range []string{"/abort", "/panic", "/midway", "/short", "/wait"} {
			hits.Store(0)
			ctx, cancel := context.WithCancelCause(t.Context())
			left := errors.New("left")
			if path == "/wait" {
				go func() {
					kit.Eventually(t, "it runs", func() bool { return hits.Load() == 1 })
					cancel(left)
				}()
			}
			res, err := c.RoundTrip(keyed(t, "POST", path, nil).WithContext(ctx))
			if err == nil {
				_, err = io.ReadAll(res.Body)
				res.Body.Close()
			}
			if hits.Load() != 1 || !errors.Is(err, gateway.ErrMayHaveRun) || errors.Is(err, left) != (path == "/wait") {
				t.Errorf("%s: %s: %v after %d requests", way, path, err, hits.Load())
			}
			if path == "/wait" {
				<-gone
			}
			cancel(nil)
		}
	}
}

// Too many that wait are said at once, as such.
func TestClientOfABusyWorker(t *testing.T) {
	for _, way := range []string{"link", "HTTP", "local"} {
		hold, running := make(chan struct{}), make(chan struct{}, 2)
		c := site.New(t, 16)
		w := c.StartReady(func(cfg *worker.Config) { cfg.QueuePerKey, cfg.Direct = 1, true })
		h := w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			running <- struct{}{}
			<-hold
		}))
		addr := w.Listen(t, h)
		kit.Eventually(t, "it takes the link", func() bool { return w.Member.Self().Link })
		cfg := client.Config{Members: w.Member}
		switch way {
		case "HTTP":
			cfg.Members = hub.Of(site.Member("w1", addr))
		case "local":
			cfg.Local = w.Local(h)
		}
		client := site.NewClient(t, cfg)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				res, err := client.RoundTrip(keyed(t, "GET", "/", nil))
				if err != nil {
					t.Error(err)
					return
				}
				res.Body.Close()
			})
		}
		<-running
		kit.Eventually(t, "one waits", func() bool { return w.Queued("k /") == 1 })
		_, err := client.RoundTrip(keyed(t, "GET", "/", nil))
		if !errors.Is(err, gateway.ErrBusy) || errors.Is(err, gateway.ErrMayHaveRun) {
			t.Errorf("%s: %v", way, err)
		}
		close(hold)
		wg.Wait()
	}
}
