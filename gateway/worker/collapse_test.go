package worker_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/test/site"
)

// crowdOf is requests of one key whose route shares, and what the app made of them.
type crowdOf struct {
	t   *testing.T
	w   *site.Worker
	app http.HandlerFunc
	wg  sync.WaitGroup

	mu  sync.Mutex // guards ran
	ran []string   // methods and targets, in the order in which they ran
}

// sharing has a worker serve app, and requests come.
func sharing(t *testing.T, app http.HandlerFunc, come func(c *crowdOf), change ...func(*worker.Config)) {
	synctest.Test(t, func(t *testing.T) {
		cluster := site.New(t, 16)
		w := cluster.StartOwner(change...)
		c := &crowdOf{t: t, w: w, app: app}
		come(c)
		c.wg.Wait()
		if n := w.AnswersKept(); n != 0 {
			t.Errorf("%d bytes of answers are kept", n)
		}
	})
}

var shared = policy.Policy{Route: "r", Mode: policy.Share}

// send sends a request, and returns when it runs or waits.
func (c *crowdOf) send(ctx context.Context, p policy.Policy, method, target, body string, lines ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if body == "" {
		r = httptest.NewRequestWithContext(ctx, method, target, nil)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	r.Header.Set(gateway.HeaderKey, "k")
	r.Header.Set(hop.HeaderPolicy, string(policy.AppendText(nil, p.Append(nil))))
	out := httptest.NewRecorder()
	h := c.w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.ran = append(c.ran, r.Method+" "+r.URL.Path)
		c.mu.Unlock()
		c.app(rw, r)
	}))
	c.wg.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				out.Code = 0 // the answer was broken off
			}
		}()
		h.ServeHTTP(out, r)
	})
	synctest.Wait()
	return out
}

// get sends a GET of a route that shares.
func (c *crowdOf) get(target string, lines ...string) *httptest.ResponseRecorder {
	return c.send(c.t.Context(), shared, "GET", target, "", lines...)
}

// hold holds the key while requests come.
func (c *crowdOf) hold(come func()) {
	_ = c.w.Do(c.t.Context(), "k", func(gateway.Execution) error {
		come()
		return nil
	})
}

// busy holds the key while requests come, and waits for what becomes of them.
func (c *crowdOf) busy(come func()) {
	c.hold(come)
	c.wg.Wait()
}

func hello(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "hello") }

// Requests are equal if nothing about them differs that an answer may depend on, and
// none that can have an effect is equal to any.
func TestEqualRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		method, target, body string
		policy               *policy.Policy
		lines                []string
		equal                bool
	}{
		"nothing differs":         {equal: true},
		"method":                  {method: "HEAD"},
		"a write":                 {method: "POST"},
		"path":                    {target: "/other?q=1"},
		"query":                   {target: "/page?q=2"},
		"host":                    {target: "http://other.example/page?q=1"},
		"a body":                  {body: "body"},
		"another mode":            {policy: &policy.Policy{Route: "r", Mode: policy.Serialize}},
		"a route without a mode":  {policy: &policy.Policy{}},
		"the client's address":    {lines: []string{"X-Forwarded-For: 9.9.9.9", "Forwarded: for=9.9.9.9;proto=http", "X-Real-IP: 9.9.9.9"}, equal: true},
		"how it is traced":        {lines: []string{"Traceparent: 00-1-2-00", "Tracestate: a=b", "X-Request-Id: 7", "Via: 1.1 proxy"}, equal: true},
		"the scheme in Forwarded": {lines: []string{"Forwarded: for=9.9.9.9;proto=https"}},
		"the scheme":              {lines: []string{"X-Forwarded-Proto: https"}},
		"Authorization":           {lines: []string{"Authorization: Bearer 2"}},
		"Cookie":                  {lines: []string{"Cookie: id=2"}},
		"Accept":                  {lines: []string{"Accept: text/html"}},
		"Accept-Encoding":         {lines: []string{"Accept-Encoding: br"}},
		"Accept-Language":         {lines: []string{"Accept-Language: de"}},
		"Range":                   {lines: []string{"Range: bytes=0-1"}},
		"If-None-Match":           {lines: []string{`If-None-Match: "1"`}},
		"If-Modified-Since":       {lines: []string{"If-Modified-Since: Mon, 02 Jan 2006 15:04:05 GMT"}},
		"Cache-Control":           {lines: []string{"Cache-Control: no-cache"}},
		"User-Agent":              {lines: []string{"User-Agent: other"}},
		"Baggage":                 {lines: []string{"Baggage: user=2"}},
		"a field of the app's":    {lines: []string{"X-Tenant: 2"}},
		"a field that is there twice": {lines: []string{
			"Accept-Charset: a", "Accept-Charset: b"}},
	} {
		t.Run(name, func(t *testing.T) {
			sharing(t, hello, func(c *crowdOf) {
				if tt.method == "" {
					tt.method = "GET"
				}
				if tt.target == "" {
					tt.target = "/page?q=1"
				}
				if tt.policy == nil {
					tt.policy = &shared
				}
				base := []string{"Forwarded: for=1.1.1.1;proto=http", "X-Forwarded-For: 1.1.1.1", "X-Forwarded-Proto: http", "User-Agent: one", "Authorization: Bearer 1", "Cookie: id=1"}
				lines := slices.Clone(tt.lines)
				for _, line := range base {
					name, _, _ := strings.Cut(line, ":")
					if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+":") }) {
						lines = append(lines, line)
					}
				}
				var first, second *httptest.ResponseRecorder
				c.busy(func() {
					first = c.get("/page?q=1", base...)
					second = c.send(c.t.Context(), *tt.policy, tt.method, tt.target, tt.body, lines...)
				})
				if equal := len(c.ran) == 1; equal != tt.equal {
					t.Errorf("ran %q", c.ran)
				}
				if first.Body.String() != "hello" || second.Body.String() != "hello" && tt.method != "HEAD" {
					t.Errorf("answers %q and %q", first.Body, second.Body)
				}
			})
		})
	}
}

// An answer is for those that wait for it only if it is whole, and nothing in it is
// for one client: the others run, in their order.
func TestAnswersForMany(t *testing.T) {
	field := func(name, value string) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set(name, value)
			hello(rw, r)
		}
	}
	status := func(code int) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(code) }
	}
	for name, tt := range map[string]struct {
		app    http.HandlerFunc
		shared bool
	}{
		"plain":              {hello, true},
		"nothing is written": {func(http.ResponseWriter, *http.Request) {}, true},
		"in pieces": {func(rw http.ResponseWriter, r *http.Request) {
			hello(rw, r)
			rw.(http.Flusher).Flush()
			hello(rw, r)
		}, true},
		"204":                    {status(204), true},
		"304":                    {status(304), true},
		"404":                    {status(404), true},
		"401":                    {status(401), false},
		"429":                    {status(429), false},
		"500":                    {status(500), false},
		"502":                    {status(502), false},
		"ETag":                   {field("ETag", `"1"`), true},
		"Set-Cookie":             {field("Set-Cookie", "id=1"), false},
		"Vary of equal fields":   {field("Vary", "Accept, Cookie"), true},
		"Vary of the client":     {field("Vary", "Accept, x-forwarded-for"), false},
		"Vary of all":            {field("Vary", "*"), false},
		"Cache-Control, public":  {field("Cache-Control", "public, max-age=5"), true},
		"Cache-Control, private": {field("Cache-Control", `max-age=5, Private="x"`), false},
		"Cache-Control, none":    {field("Cache-Control", "no-store"), false},
		"trailers announced":     {field("Trailer", "X-Sum"), false},
		"a trailer": {func(rw http.ResponseWriter, r *http.Request) {
			hello(rw, r)
			rw.Header().Set(http.TrailerPrefix+"X-Sum", "1")
		}, false},
		"an event stream": {field("Content-Type", "text/event-stream"), false},
		"too large": {func(rw http.ResponseWriter, _ *http.Request) {
			rw.Write(make([]byte, 40<<10))
		}, false},
		"broken off": {func(rw http.ResponseWriter, r *http.Request) {
			hello(rw, r)
			panic(http.ErrAbortHandler)
		}, false},
		"shorter than it says": {field("Content-Length", "6"), false},
		"too late":             {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false},
		"cancelled in the midst": {func(rw http.ResponseWriter, r *http.Request) {
			hello(rw, r)
			<-r.Context().Done()
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			sharing(t, tt.app, func(c *crowdOf) {
				var all []*httptest.ResponseRecorder
				c.busy(func() {
					for range 3 {
						all = append(all, c.get("/"))
					}
				})
				want := 3
				if tt.shared {
					want = 1
				}
				if len(c.ran) != want {
					t.Errorf("%d ran, want %d", len(c.ran), want)
				}
				for _, a := range all[1:] {
					if first := all[0]; a.Code != first.Code || a.Body.String() != first.Body.String() || fmt.Sprint(a.Header()) != fmt.Sprint(first.Header()) {
						t.Errorf("%d %v %q after %d %v %q", a.Code, a.Header(), a.Body, first.Code, first.Header(), first.Body)
					}
				}
			}, func(cfg *worker.Config) { cfg.AnswerMax, cfg.Timeout = 32<<10, 5*time.Second })
		})
	}
}

// slowly has the app take a second.
func slowly(rw http.ResponseWriter, r *http.Request) {
	time.Sleep(time.Second)
	hello(rw, r)
}

// Nobody gets an answer to an execution that has begun before the request came.
func TestTrapSharedAnswerIsNoOlderThanItsRequest(t *testing.T) {
	sharing(t, slowly, func(c *crowdOf) {
		c.busy(func() {
			c.get("/")
			c.get("/")
		})
		for range 3 {
			c.get("/") // while the one before runs
			c.get("/")
		}
		c.wg.Wait()
		if len(c.ran) != 1+2 {
			t.Errorf("ran %q, want one for the first two, one alone and one for the other five", c.ran)
		}
		began := time.Now()
		c.hold(func() {
			c.get("/")
			c.get("/")
		})
		time.Sleep(500 * time.Millisecond)
		c.get("/") // while the answer for both is made
		c.wg.Wait()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the last one had its answer after %v, want 2 s", took)
		}
	})
}

// Nobody overtakes a write that came before.
func TestSharedAnswersOvertakeNoWrite(t *testing.T) {
	sharing(t, hello, func(c *crowdOf) {
		c.busy(func() {
			c.get("/a")
			c.get("/b")
			c.get("/a")
			c.send(c.t.Context(), shared, "POST", "/write", "")
			c.send(c.t.Context(), shared, "POST", "/write", "")
			c.get("/a")
			c.get("/b")
			c.get("/a")
		})
		if want := []string{"GET /a", "GET /b", "POST /write", "POST /write", "GET /a", "GET /b"}; !slices.Equal(c.ran, want) {
			t.Errorf("ran %q, want %q", c.ran, want)
		}
	})
}

// A client that leaves takes the answer from nobody, whether its request runs or
// waits.
func TestSharedAnswersOutliveTheirClients(t *testing.T) {
	app := func(rw http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(time.Second):
			hello(rw, r)
		case <-r.Context().Done():
		}
	}
	for leaver := range 3 {
		t.Run(fmt.Sprint(leaver), func(t *testing.T) {
			sharing(t, app, func(c *crowdOf) {
				ctx, cancel := context.WithCancel(c.t.Context())
				defer cancel()
				var all []*httptest.ResponseRecorder
				c.busy(func() {
					for i := range 3 {
						of := c.t.Context()
						if i == leaver {
							of = ctx
						}
						all = append(all, c.send(of, shared, "GET", "/", ""))
					}
					time.AfterFunc(500*time.Millisecond, cancel)
				})
				if len(c.ran) != 1 {
					t.Errorf("ran %q", c.ran)
				}
				for i, a := range all {
					if i != leaver && a.Body.String() != "hello" {
						t.Errorf("request %d: %d %q", i, a.Code, a.Body)
					}
				}
			})
		})
	}
}

// departed is the context of a client of which it turns out at the last moment that it
// has left.
type departed struct {
	context.Context
	left atomic.Bool
}

func (d *departed) Err() error {
	if d.left.Load() {
		return context.Canceled
	}
	return nil
}

// A client that leaves when it has been given an answer keeps nothing of it.
func TestSharedAnswersAreGivenBack(t *testing.T) {
	var ctx departed
	app := func(rw http.ResponseWriter, r *http.Request) {
		hello(rw, r)
		ctx.left.Store(true)
	}
	sharing(t, app, func(c *crowdOf) {
		ctx.Context = context.WithoutCancel(c.t.Context())
		c.busy(func() {
			c.get("/")
			c.send(&ctx, shared, "GET", "/", "")
		})
		if len(c.ran) != 1 {
			t.Errorf("ran %q", c.ran)
		}
	})
}

// Those that wait for an answer to an equal request wait like all others: within the
// bounds of their key, and of time.
func TestSharedAnswersAreBounded(t *testing.T) {
	sharing(t, hello, func(c *crowdOf) {
		var all []*httptest.ResponseRecorder
		c.busy(func() {
			for range 4 {
				all = append(all, c.get("/"))
			}
		})
		var codes []int
		for _, a := range all {
			codes = append(codes, a.Code)
		}
		if !slices.Equal(codes, []int{200, 200, 200, 429}) {
			t.Errorf("%v", codes)
		}
	}, func(cfg *worker.Config) { cfg.QueuePerKey = 3 })
	sharing(t, func(rw http.ResponseWriter, r *http.Request) { time.Sleep(time.Minute) }, func(c *crowdOf) {
		var last *httptest.ResponseRecorder
		c.busy(func() {
			c.get("/")
			last = c.get("/")
		})
		if len(c.ran) != 1 || last.Code != http.StatusServiceUnavailable {
			t.Errorf("ran %q, then %d", c.ran, last.Code)
		}
	}, func(cfg *worker.Config) { cfg.MaxWait, cfg.Timeout = 5*time.Second, time.Hour })
}

// Who gets the answer to an equal request takes nothing of its key's rate.
func TestSharedAnswersTakeNothingOfTheRate(t *testing.T) {
	sharing(t, hello, func(c *crowdOf) {
		p := shared
		p.Rate = policy.Rate{PerSecond: 1.0 / 3600, Burst: 3}
		c.busy(func() {
			for range 3 {
				c.send(c.t.Context(), p, "GET", "/", "")
			}
		})
		var codes []int
		for range 3 {
			codes = append(codes, c.send(c.t.Context(), p, "GET", "/", "").Code)
		}
		if !slices.Equal(codes, []int{200, 200, 429}) {
			t.Errorf("%v, of three that may run one has", codes)
		}
	})
}
