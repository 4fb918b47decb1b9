package router_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/accesslog"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

// accessLog is an access log and what it has written.
type accessLog struct {
	*accesslog.Log
	file string
	read int
}

func newAccessLog(t *testing.T) *accessLog {
	t.Helper()
	file := filepath.Join(t.TempDir(), "log")
	l := kit.Must(accesslog.Start(accesslog.Config{File: file, Keys: true}))
	t.Cleanup(func() { l.Close() })
	return &accessLog{Log: l, file: file}
}

// next returns the next line, once it is there.
func (l *accessLog) next(t *testing.T) (fields map[string]any) {
	t.Helper()
	kit.Eventually(t, "the request has a line", func() bool {
		rest := kit.Must(os.ReadFile(l.file))[l.read:]
		line, _, whole := bytes.Cut(rest, []byte("\n"))
		if !whole {
			return false
		}
		l.read += len(line) + 1
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		return true
	})
	return fields
}

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestAccessLog(t *testing.T) { eachWay(t, testAccessLog) }

func testAccessLog(t *testing.T, front way) {
	app := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/orders/204":
			w.WriteHeader(http.StatusNoContent)
		case "/orders/304":
			w.WriteHeader(http.StatusNotModified)
		case "/orders/empty":
		default:
			io.WriteString(w, "hello")
		}
	}
	log := newAccessLog(t)
	config := func(c *router.Config) {
		c.AccessLog, c.Keys = log.Log, nil
		c.Routes = site.Routes(t, "name: orders, match: {path: '/orders/{rest...}'}, key: 'header:X-Key'")
	}
	linked, _ := throughLink(t, app, config)
	second := site.NewFake(t, "second", app)
	plainConfig := router.Config{Members: hub.Of(second.Member)}
	config(&plainConfig)
	plain := site.NewRouter(t, plainConfig)
	c := site.New(t, 16)
	w := c.StartReady()
	timedConfig := router.Config{Members: hub.Of(ring.Member{Name: "timed", Addr: site.Serve(t, w.Handler(http.HandlerFunc(app))).Listener.Addr().String(), Role: ring.RoleWorker, State: ring.StateActive, Incarnation: w.Incarnation()})}
	config(&timedConfig)
	timed := site.NewRouter(t, timedConfig)
	none := router.Config{Members: hub.Of(), Limits: gateway.Limits{Hold: 2 * time.Millisecond}}
	config(&none)
	deserted := site.NewRouter(t, none)

	for name, tt := range map[string]struct {
		rt                  *router.Router
		method, target, key string
		body                int
		trace               string
		want                map[string]any // nil: there is no such field
		timed               bool
	}{
		"link": {linked, "GET", "/orders/1?secret=2", "k", 0, traceparent, map[string]any{
			"id": traceparent[3:35], "route": "orders", "method": "GET", "path": "/orders/1", "status": 200., "bytes_in": 0., "bytes_out": 5.,
			"key": "k", "key_hash": "3c8f0e35f0a7fb4e", "way": "link", "tries": 1., "error": nil,
		}, true},
		"body":         {linked, "POST", "/orders/1", "k", 100, "", map[string]any{"status": 200., "bytes_in": 100., "way": "link"}, true},
		"large body":   {linked, "POST", "/orders/1", "k", 100_000, "", map[string]any{"status": 200., "bytes_in": 100_000., "way": "link"}, true},
		"HEAD":         {linked, "HEAD", "/orders/1", "k", 0, "", map[string]any{"status": 200., "bytes_out": 0., "way": "link"}, true},
		"204":          {linked, "GET", "/orders/204", "k", 0, "", map[string]any{"status": 204., "bytes_out": 0., "way": "link"}, true},
		"304":          {linked, "GET", "/orders/304", "k", 0, "", map[string]any{"status": 304., "bytes_out": 0., "way": "link"}, true},
		"empty":        {linked, "POST", "/orders/empty", "k", 100, "", map[string]any{"status": 200., "bytes_out": 0., "way": "link"}, true},
		"plain":        {plain, "GET", "/orders/1", "k", 0, "", map[string]any{"status": 200., "owner": "second", "way": "http1", "tries": 1.}, false}, // a worker that tells no times
		"relay":        {plain, "POST", "/orders/1", "k", 100_000, "", map[string]any{"status": 200., "owner": "second", "way": "http1", "bytes_in": 100_000.}, false},
		"plain, timed": {timed, "HEAD", "/orders/1", "k", 0, "", map[string]any{"status": 200., "owner": "timed", "way": "http1", "tries": 1.}, true},
		"relay, timed": {timed, "POST", "/orders/204", "k", 100_000, "", map[string]any{"status": 204., "owner": "timed", "way": "http1"}, true},
		"no key": {linked, "GET", "/orders/1", "", 0, "", map[string]any{
			"route": "orders", "status": 400., "key_hash": nil, "partition": nil, "owner": nil, "way": "router", "tries": 0., "hold_ms": 0., "error": "no-key",
		}, false},
		"no route":  {linked, "GET", "/other", "k", 0, "", map[string]any{"route": nil, "status": 404., "error": "no-route"}, false},
		"no owner":  {deserted, "GET", "/orders/1", "k", 0, "", map[string]any{"status": 503., "owner": nil, "tries": 0., "error": "no-owner"}, false},
		"bad trace": {linked, "GET", "/orders/1", "k", 0, strings.ToUpper(traceparent), map[string]any{"status": 200.}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := front(t, tt.rt)
			req := kit.Must(http.NewRequestWithContext(t.Context(), tt.method, s.URL+tt.target, strings.NewReader(strings.Repeat("x", tt.body))))
			if tt.key != "" {
				req.Header.Set("X-Key", tt.key)
			}
			if tt.trace != "" {
				req.Header.Set("Traceparent", tt.trace)
			}
			res, _ := kit.Do(t, s.HTTP, req)
			if len(res.Trailer) > 0 {
				t.Errorf("the client gets trailers: %v", res.Trailer)
			}
			if told := res.Header["Keyway-Timing"]; told != nil {
				t.Errorf("the client gets the worker's times: %v", told)
			}
			got := log.next(t)
			delete(tt.want, "key_hash")
			for field, want := range tt.want {
				if got[field] != want {
					t.Errorf("%s is %v, want %v", field, got[field], want)
				}
			}
			if id, _ := got["id"].(string); len(id) != 32 || tt.trace != traceparent && id == traceparent[3:35] {
				t.Errorf("id %q", id)
			}
			_, waited := got["wait_ms"].(float64)
			_, ran := got["run_ms"].(float64)
			if waited != tt.timed || ran != tt.timed {
				t.Errorf("wait %v, run %v, want both: %t", got["wait_ms"], got["run_ms"], tt.timed)
			}
			if hold, _ := got["hold_ms"].(float64); name == "no owner" && hold < 2 {
				t.Errorf("held for %v ms, want 2 at least", hold)
			}
		})
	}
}

// Of a body that does not come whole, what has come is logged and counted.
func TestAccessLogOfABodyThatDoesNotCome(t *testing.T) {
	log := newAccessLog(t)
	a := site.NewFake(t, "a", site.Answer("a"))
	eachWay(t, func(t *testing.T, front way) {
		rt := site.NewRouter(t, router.Config{Members: hub.Of(a.Member), AccessLog: log.Log, ClientTimeout: 100 * time.Millisecond})
		s := front(t, rt)
		body, write := io.Pipe()
		defer write.Close()
		go io.WriteString(write, "abc")
		req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, body))
		req.Header.Set("X-Key", "k")
		req.ContentLength = 50_000
		if res, err := s.HTTP.Do(req); err == nil {
			res.Body.Close()
		}
		if got := log.next(t); got["bytes_in"] != 3. || got["error"] != "body-too-slow" {
			t.Errorf("%v", got)
		}
		if n := metrictest.Gather(t, rt)[`keyway_router_received_bytes_total{route="default"}`]; n != 3 {
			t.Errorf("%v bytes are counted", n)
		}
	})
}

// A request that got an equal one's answer says how long it waited, and that it did not run.
func TestAccessLogOfSharedAnswers(t *testing.T) {
	log := newAccessLog(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	app := site.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			close(entered)
			<-leave
		}
		io.WriteString(w, "hello")
	}))
	c := site.New(t, 16)
	w := c.StartReady()
	w.Listen(t, kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(app.URL)))))
	s := site.ThroughServer(t, c.NewRouter(router.Config{
		AccessLog: log.Log, Routes: site.Routes(t, "name: reads, match: {path: '/{rest...}'}, key: 'header:X-Key', mode: share"),
	}))
	var all sync.WaitGroup
	send := func(method string) {
		all.Go(func() {
			req := kit.Must(http.NewRequestWithContext(t.Context(), method, s.URL, nil))
			req.Header.Set("X-Key", "k")
			if res, err := s.HTTP.Do(req); err == nil {
				res.Body.Close()
			}
		})
	}
	send("POST")
	<-entered
	send("GET")
	send("GET")
	kit.Eventually(t, "two requests wait", func() bool { return metrictest.Gather(t, w.Worker)[`keyway_worker_waiting{for="key"}`] == 2 })
	close(leave)
	all.Wait()
	ran := make(map[bool]int)
	for range 3 {
		got := log.next(t)
		run, ok := got["run_ms"].(float64)
		if wait, _ := got["wait_ms"].(float64); !ok || wait > 0 != (got["method"] == "GET") {
			t.Errorf("%v: wait %v ms, run %v ms", got["method"], got["wait_ms"], got["run_ms"])
		}
		ran[run > 0]++
	}
	if shared := metrictest.Gather(t, w.Worker)["keyway_worker_shared_answers_total"]; shared != 1 || ran[false] != 1 {
		t.Errorf("%v requests got another one's answer, %d have not run", shared, ran[false])
	}
}

// A request that a worker has refused, and one that waits for its key, say so.
func TestAccessLogOfWaits(t *testing.T) {
	log := newAccessLog(t)
	first, second := site.NewFake(t, "a", nil), site.NewFake(t, "b", site.Answer("b"))
	first.Set(site.NotOwner(second.Member, 2))
	cluster := hub.Of(first.Member)
	rt := site.NewRouter(t, router.Config{Members: cluster, AccessLog: log.Log})
	cluster.Set(first.Member, second.Member)
	s := site.ThroughServer(t, rt)
	for key := range strings.SplitSeq("k l m n o p q r s t", " ") { // some of them are a's
		site.Get(t, s, key)
		got := log.next(t)
		if got["owner"] != "b" || got["tries"] != 1. && got["tries"] != 2. {
			t.Errorf("key %s: %v", key, got)
		}
	}

	entered, leave := make(chan struct{}), make(chan struct{})
	app := site.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/first" {
			close(entered)
			<-leave
		}
	}))
	c := site.New(t, 16)
	w := c.StartReady()
	w.Listen(t, kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(app.URL)))))
	gate := c.Join("router")
	sidecar := site.ThroughServer(t, site.NewRouter(t, router.Config{Members: gate, AccessLog: log.Log}))
	ended := make(chan struct{}, 2)
	get := func(path string) {
		req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", sidecar.URL+path, nil))
		req.Header.Set("X-Key", "k")
		if res, err := sidecar.HTTP.Do(req); err == nil {
			res.Body.Close()
		}
		ended <- struct{}{}
	}
	go get("/first")
	<-entered
	go get("/second")
	kit.Eventually(t, "the second request waits", func() bool { return metrictest.Gather(t, w.Worker)[`keyway_worker_waiting{for="key"}`] == 1 })
	close(leave)
	<-ended
	<-ended
	for range 2 {
		got := log.next(t)
		wait, _ := got["wait_ms"].(float64)
		if run, ok := got["run_ms"].(float64); !ok || run <= 0 || wait > 0 != (got["path"] == "/second") {
			t.Errorf("%v: wait %v ms, run %v ms", got["path"], got["wait_ms"], got["run_ms"])
		}
	}
}

// A request that a worker answers along with others has the times of their batch, and its own wait for it; one of
// which no item can be made has none.
func TestAccessLogOfBatches(t *testing.T) {
	log := newAccessLog(t)
	const work = 5 * time.Millisecond
	c := site.New(t, 16)
	w := c.StartReady()
	first := make(chan struct{})
	batcher := kit.Must(worker.NewBatcher(w.Worker, worker.BatchConfig{}, func(_ gateway.Execution, items []*worker.Item[string, int]) error {
		if items[0].In == "first" {
			close(first)
			kit.Eventually(t, "the others wait", func() bool { return w.Queued("k") == 3 })
		}
		time.Sleep(work)
		return nil
	}))
	mux := http.NewServeMux()
	mux.Handle("/", worker.BatchHandler(batcher, func(r *http.Request) (string, error) {
		if r.URL.Path == "/bad" {
			return "", errors.New("no item")
		}
		return r.URL.Path[1:], nil
	}, func(rw http.ResponseWriter, _ int, _ error) { rw.WriteHeader(http.StatusNoContent) }))
	w.Listen(t, w.Handler(mux))
	s := site.ThroughServer(t, c.NewRouter(router.Config{AccessLog: log.Log}))
	var all sync.WaitGroup
	send := func(path string) {
		all.Go(func() {
			req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL+path, nil))
			req.Header.Set("X-Key", "k")
			if res, err := s.HTTP.Do(req); err == nil {
				res.Body.Close()
			}
		})
	}
	send("/bad")
	all.Wait()
	if got := log.next(t); got["status"] != 400. || got["wait_ms"] != nil || got["run_ms"] != nil {
		t.Errorf("no item: %v", got)
	}
	send("/first")
	<-first
	for range 3 {
		send("/other")
	}
	all.Wait()
	for range 4 {
		got := log.next(t)
		wait, waited := got["wait_ms"].(float64)
		run, ran := got["run_ms"].(float64)
		if !waited || !ran || got["status"] != 204. {
			t.Errorf("%v: wait %v ms, run %v ms, status %v", got["path"], got["wait_ms"], got["run_ms"], got["status"])
		}
		if least := work.Seconds() * 1e3; run < least || got["path"] == "/other" && wait < least {
			t.Errorf("%v: wait %v ms, run %v ms, want %v for the others' wait, and for each run, at least", got["path"], wait, run, least)
		}
		if total := got["total_ms"].(float64); wait+run > total {
			t.Errorf("%v: wait %v ms, run %v ms, of %v ms", got["path"], wait, run, total)
		}
	}
}
