package router_test

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/test/spantest"
	"github.com/keyway-go/keyway/ring"
)

// tracedSite is a router and a worker whose spans are kept in one place.
type tracedSite struct {
	*spantest.Spans
	app    chan http.Header // of requests as the app gets them
	worker *site.Worker
	addr   string // the worker's
	router *router.Router
	log    *accessLog
}

// newTracedSite makes a router in front of a worker that takes the link, or only plain HTTP.
func newTracedSite(t *testing.T, linked, keys bool, answer http.HandlerFunc) *tracedSite {
	s := &tracedSite{Spans: spantest.New(t), app: make(chan http.Header, 8)}
	app := site.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.app <- r.Header.Clone()
		answer(w, r)
	}))
	c := site.New(t, 16)
	s.worker = c.StartReady(func(cfg *worker.Config) {
		cfg.TracerProvider, cfg.TraceKeys, cfg.Direct = s.Spans, keys, !linked
	})
	s.addr = s.worker.Listen(t, kit.Must(sidecar.New(s.worker.Worker, kit.Must(url.Parse(app.URL)))))
	var members gateway.Members = c.Join("router")
	if !linked {
		members = hub.Of(site.Member("w1", s.addr))
	}
	s.log = newAccessLog(t)
	s.router = site.NewRouter(t, router.Config{
		Members: members, AccessLog: s.log.Log, TracerProvider: s.Spans, TraceKeys: keys,
		Routes: site.Routes(t, "name: orders, match: {path: '/orders/{rest...}'}, key: 'header:X-Key'"),
	})
	return s
}

// sendTraced sends a request of the trace that traceparent names.
func sendTraced(t *testing.T, s *site.Front, method, target, key, trace string, body int) *http.Response {
	t.Helper()
	req := kit.Must(http.NewRequestWithContext(t.Context(), method, s.URL+target, strings.NewReader(strings.Repeat("x", body))))
	req.Header.Set("X-Key", key)
	if trace != "" {
		req.Header.Set("Traceparent", trace)
		req.Header.Set("Tracestate", "vendor=value")
	}
	res, _ := kit.Do(t, s.HTTP, req)
	return res
}

func TestSpans(t *testing.T) { eachWay(t, testSpans) }

func testSpans(t *testing.T, front way) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "hello")
	}
	linked, plain := newTracedSite(t, true, false, answer), newTracedSite(t, false, true, answer)
	for name, tt := range map[string]struct {
		*tracedSite
		body       int
		way, hop   string
		traceState bool
	}{
		"link":                 {linked, 0, "link", "link", true},
		"link with a body":     {linked, 100, "link", "link", true},
		"link with large body": {linked, 100_000, "link", "link", true},
		"HTTP":                 {plain, 0, "http1", "http", true},
		"large body":           {plain, 100_000, "http1", "http", true},
		"of its own":           {linked, 0, "link", "link", false},
	} {
		t.Run(name, func(t *testing.T) {
			s, sent := front(t, tt.router), ""
			if tt.traceState {
				sent = traceparent
			}
			if res := sendTraced(t, s, "POST", "/orders/1?secret=2", "k", sent, tt.body); res.StatusCode != 200 {
				t.Fatal(res.Status)
			}
			header := <-tt.app
			spans := tt.Await(t, "server POST orders", "client POST", "server execution")
			request, attempt, execution := spans[0], spans[1], spans[2]
			if !attempt.Is(request) || !execution.Is(attempt) {
				t.Errorf("the spans do not belong to each other: %+v", spans)
			}
			line := tt.log.next(t)
			if got, want := line["id"], request.SpanContext.TraceID().String(); got != want {
				t.Errorf("the access log names the trace %v, want %s", got, want)
			}
			if got := line["key_hash"]; got != request.Get("keyway.key_hash") {
				t.Errorf("the access log has the key's hash %v", got)
			}
			if got := request.Parent.SpanID().String(); tt.traceState != (got == traceparent[36:52]) {
				t.Errorf("the request's span is a part of %s", got)
			}
			app := spantest.ParentOf(header.Get("Traceparent"))
			if len(header["Traceparent"]) != 1 || app.SpanID() != execution.SpanContext.SpanID() || app.TraceID() != execution.SpanContext.TraceID() || !strings.HasSuffix(header.Get("Traceparent"), "-01") {
				t.Errorf("the app gets Traceparent %q, want the execution's", header["Traceparent"])
			}
			if got := header.Get("Tracestate"); (got == "vendor=value") != tt.traceState {
				t.Errorf("the app gets Tracestate %q", got)
			}
			token := header.Get(gateway.HeaderToken)
			scheme, _, _ := strings.Cut(s.URL, ":")
			var key any
			if tt.tracedSite == plain {
				key = "k"
			}
			spantest.Expect(t, request, map[string]any{
				"http.request.method": "POST", "url.path": "/orders/1", "url.scheme": scheme, "http.route": "orders", "http.response.status_code": int64(200),
				"keyway.key_hash": "c3d31922c50b1b63", "keyway.key": key, "keyway.worker": "w1", "keyway.way": tt.way, "error.type": nil,
			})
			spantest.Expect(t, attempt, map[string]any{"http.request.method": "POST", "server.address": "127.0.0.1", "keyway.worker": "w1", "http.response.status_code": int64(200)})
			if got, ok := attempt.Get("server.port").(int64); !ok || tt.addr != "127.0.0.1:"+decimal(got) {
				t.Errorf("the attempt was made at port %v of %s", attempt.Get("server.port"), tt.addr)
			}
			spantest.Expect(t, execution, map[string]any{
				"http.request.method": "POST", "url.path": "/orders/1", "http.response.status_code": int64(200),
				"keyway.key_hash": "c3d31922c50b1b63", "keyway.key": key, "keyway.worker": "w1", "keyway.way": tt.hop,
			})
			if got, ok := execution.Get("keyway.token").(int64); !ok || token != decimal(got) {
				t.Errorf("the token is %v, want %s", execution.Get("keyway.token"), token)
			}
			if got, ok := execution.Get("keyway.partition").(int64); !ok || header.Get(gateway.HeaderPartition) != decimal(got) {
				t.Errorf("the partition is %v, want %s", execution.Get("keyway.partition"), header.Get(gateway.HeaderPartition))
			}
		})
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// A trace of which the client keeps no spans has none here, and says so to the app.
func TestSpansOfUnsampledTraces(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		for name, linked := range map[string]bool{"link": true, "HTTP": false} {
			t.Run(name, func(t *testing.T) {
				traced := newTracedSite(t, linked, false, site.Answer("hello"))
				s := front(t, traced.router)
				unsampled := strings.TrimSuffix(traceparent, "01") + "00"
				for _, body := range []int{0, 100_000} {
					sendTraced(t, s, "POST", "/orders/1", "k", unsampled, body)
					got := (<-traced.app).Get("Traceparent")
					if !strings.HasPrefix(got, unsampled[:36]) || !strings.HasSuffix(got, "-00") {
						t.Errorf("the app gets Traceparent %q, want one of the trace %s", got, unsampled)
					}
				}
				sendTraced(t, s, "POST", "/orders/1", "k", traceparent, 0)
				<-traced.app
				traced.Await(t, "server POST orders", "client POST", "server execution") // and no other
			})
		}
	})
}

// Without a provider of spans the Trace Context goes from the client to the app as it is.
func TestTraceContextWithoutSpans(t *testing.T) {
	app := site.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("Traceparent")+" "+r.Header.Get("Tracestate"))
	}))
	s, _ := site.InFrontOf(t, app.URL)
	req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", s.URL, nil))
	req.Header.Set("X-Key", "k")
	req.Header.Set("Traceparent", traceparent)
	req.Header.Set("Tracestate", "vendor=value")
	if _, text := kit.Do(t, s.HTTP, req); text != traceparent+" vendor=value" {
		t.Errorf("the app gets %q", text)
	}
}

// Each attempt is a span of its own, and the wait for an owner is one.
func TestSpansOfAttempts(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		kept := spantest.New(t)
		first, second := site.NewFake(t, "a", nil), site.NewFake(t, "b", site.Answer("b"))
		first.Set(site.NotOwner(second.Member, 2))
		cluster := hub.Of(first.Member)
		rt := site.NewRouter(t, router.Config{Members: cluster, TracerProvider: kept})
		cluster.Set(first.Member, second.Member)
		key := ""
		for i := 0; key == ""; i++ {
			if m, _ := cluster.View().Owner(ring.Config{}.Partition(decimal(int64(i)))); m.Name == "a" {
				key = decimal(int64(i))
			}
		}
		s := front(t, rt)
		site.Get(t, s, key)
		spans := kept.Await(t, "server GET default", "client GET", "client GET")
		request, refused, taken := spans[0], spans[1], spans[2]
		if !refused.Is(request) || !taken.Is(request) {
			t.Errorf("the spans do not belong to each other: %+v", spans)
		}
		spantest.Expect(t, request, map[string]any{"keyway.worker": "b", "error.type": nil})
		spantest.Expect(t, refused, map[string]any{"keyway.worker": "a", "error.type": "not-owner", "http.request.resend_count": nil})
		spantest.Expect(t, taken, map[string]any{"keyway.worker": "b", "error.type": nil, "http.request.resend_count": int64(1)})
		if refused.Status.Code != codes.Error || taken.Status.Code != codes.Unset || request.Status.Code != codes.Unset {
			t.Errorf("the statuses are %v, %v and %v", refused.Status, taken.Status, request.Status)
		}

		cluster.Set()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			site.Get(t, s, key)
		}()
		kit.Eventually(t, "the request is held", func() bool { return rt.Stats().Holding == 1 })
		cluster.Set(second.Member)
		<-answered
		spans = kept.Await(t, "server GET default", "internal hold", "client GET")
		request, hold, taken := spans[0], spans[1], spans[2]
		if !hold.Is(request) || !taken.Is(request) {
			t.Errorf("the spans do not belong to each other: %+v", spans)
		}
		if hold.StartTime.Before(request.StartTime) || !hold.EndTime.After(hold.StartTime) || taken.EndTime.Before(hold.EndTime) {
			t.Errorf("the hold is from %v to %v, the request from %v", hold.StartTime, hold.EndTime, request.StartTime)
		}
	})
}

// A span that waits to be sent has nothing of the memory of its request, in which the next one stands.
func TestSpansKeepWhatTheySay(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		traced := newTracedSite(t, true, true, site.Answer("hello"))
		s := front(t, traced.router)
		sendTraced(t, s, "GET", "/orders/1", "k", strings.TrimSuffix(traceparent, "01")+"00", 0) // after it, the router knows that the worker takes links
		<-traced.app
		const requests = 20
		var names []string
		for i := range requests {
			n := decimal(int64(i + 10))
			req := kit.Must(http.NewRequestWithContext(t.Context(), "X"+n, s.URL+"/orders/"+n, nil))
			req.Header.Set("X-Key", "key-"+n)
			req.Header.Set("Traceparent", traceparent)
			req.Header.Set("Tracestate", "n="+n)
			kit.Do(t, s.HTTP, req)
			<-traced.app
			names = append(names, "server HTTP orders", "client HTTP", "server execution")
		}
		for i, span := range traced.Await(t, names...) {
			n := decimal(int64(i/3 + 10))
			if got := span.SpanContext.TraceState().String(); got != "n="+n {
				t.Errorf("%q, number %s: the trace's state is %s", span.Name, n, got)
			}
			if i%3 != 1 {
				spantest.Expect(t, span, map[string]any{"url.path": "/orders/" + n, "keyway.key": "key-" + n, "http.request.method_original": "X" + n})
			}
		}
	})
}

// What fails says how.
func TestSpansOfFailures(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		kept := spantest.New(t)
		broken := site.NewFake(t, "a", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		failing := site.NewFake(t, "a", site.Refuse("", http.StatusInternalServerError))
		through := func(cfg router.Config) *site.Front {
			cfg.TracerProvider = kept
			return front(t, site.NewRouter(t, cfg))
		}
		for name, tt := range map[string]struct {
			site     *site.Front
			key      string
			status   int
			names    []string
			failures []any
		}{
			"502":     {through(router.Config{Members: hub.Of(broken.Member)}), "k", 502, []string{"server GET default", "client GET"}, []any{"may-have-run", "may-have-run"}},
			"503":     {through(router.Config{Members: hub.Of(), Limits: gateway.Limits{Hold: 2 * time.Millisecond}}), "k", 503, []string{"server GET default", "internal hold"}, []any{"no-owner", nil}},
			"at once": {through(router.Config{Members: hub.Of(), Limits: gateway.Limits{NoHold: true}}), "k", 503, []string{"server GET default"}, []any{"no-owner"}},
			"500":     {through(router.Config{Members: hub.Of(failing.Member)}), "k", 500, []string{"server GET default", "client GET"}, []any{"500", "500"}},
			"no key":  {through(router.Config{Members: hub.Of()}), "", 400, []string{"server GET default"}, []any{nil}},
		} {
			t.Run(name, func(t *testing.T) {
				res, _ := site.Get(t, tt.site, tt.key)
				if res.StatusCode != tt.status {
					t.Errorf("status %d, want %d", res.StatusCode, tt.status)
				}
				for i, span := range kept.Await(t, tt.names...) {
					spantest.Expect(t, span, map[string]any{"error.type": tt.failures[i]})
					if failed := tt.failures[i] != nil; failed != (span.Status.Code == codes.Error) {
						t.Errorf("the status of %q is %v", span.Name, span.Status)
					}
					if i == 0 {
						spantest.Expect(t, span, map[string]any{"http.response.status_code": int64(tt.status)})
					}
				}
			})
		}
	})
}

// The wait for a key at the worker is a span, beside the execution.
func TestSpansOfWaits(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	traced := newTracedSite(t, true, false, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/orders/first" {
			close(entered)
			<-leave
		}
	})
	s := site.ThroughServer(t, traced.router)
	done := make(chan struct{}, 2)
	get := func(path string) {
		sendTraced(t, s, "GET", path, "k", "", 0)
		done <- struct{}{}
	}
	go get("/orders/first")
	<-entered
	go get("/orders/second")
	kit.Eventually(t, "the second request waits", func() bool {
		return metrictest.Gather(t, traced.worker.Worker)[`keyway_worker_waiting{for="key"}`] == 1
	})
	close(leave)
	<-done
	<-done
	spans := traced.Await(t, "server GET orders", "client GET", "server execution", "server GET orders", "client GET", "internal queue wait", "server execution")
	wait, execution := spans[5], spans[6]
	if !wait.Is(spans[4]) || !execution.Is(spans[4]) {
		t.Errorf("the spans do not belong to each other: %+v", spans)
	}
	if !wait.EndTime.After(wait.StartTime) || execution.EndTime.Before(wait.EndTime) {
		t.Errorf("the wait is from %v to %v", wait.StartTime, wait.EndTime)
	}
	spantest.Expect(t, wait, map[string]any{"keyway.key_hash": "c3d31922c50b1b63", "keyway.worker": "w1", "error.type": nil})
}
