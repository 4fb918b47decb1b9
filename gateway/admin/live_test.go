package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/gateway/admin"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

// liveView is what tests look at of an event of /events.
type liveView struct {
	Self struct {
		Name, Role string
		Asks       bool
		NotReady   string `json:"not_ready"`
	}
	Says []struct{ Level, About, Text string }

	Partitions int
	Workers    []struct {
		status.WorkerRow
		Wanted    int
		PerSecond *float64 `json:"per_second"`
	}
	Hot     []status.HotKey
	Moves   []status.Move
	Traffic *struct {
		Of              string
		PerSecond       *float64 `json:"per_second"`
		FailedPerSecond *float64 `json:"failed_per_second"`
		P99Seconds      *float64 `json:"p99_seconds"`
		Beyond          bool
		Held            int
		InFlight        int `json:"in_flight"`
	}
}

// events is a client of /events.
type events struct {
	t     *testing.T
	lines *bufio.Scanner
}

func watchEvents(t *testing.T, url string) *events {
	t.Helper()
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/events", nil))
	res := kit.Must(http.DefaultClient.Do(req))
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	return &events{t, lines}
}

// next waits for the next event.
func (e *events) next() (v liveView) {
	e.t.Helper()
	for e.lines.Scan() {
		if data, ok := strings.CutPrefix(e.lines.Text(), "data: "); ok {
			if err := json.Unmarshal([]byte(data), &v); err != nil {
				e.t.Fatal(err)
			}
			return v
		}
	}
	e.t.Fatal("the stream has ended: ", e.lines.Err())
	return v
}

// until waits for an event that is as it should be.
func (e *events) until(ok func(*liveView) bool) liveView {
	e.t.Helper()
	for range 60 {
		v := e.next()
		if ok(&v) {
			return v
		}
	}
	e.t.Fatal("not in 60 events")
	return liveView{}
}

// The live page shows what a router and its workers tell, and so does that of a worker.
func TestEvents(t *testing.T) {
	s := site.NewOperated(t, "")
	w1, w2 := s.Start(), s.Start()
	kit.Eventually(t, "both serve", func() bool {
		return w1.Serving() > 0 && w2.Serving() > 0 && w1.Serving()+w2.Serving() == site.Partitions
	})
	key := s.KeyOf(w1)
	s.Block(key, 1)
	kit.Eventually(t, "it runs", func() bool { return s.Running() == 1 })
	for url, self := range map[string]string{s.Admin: "router-1", w1.Admin: "w1"} {
		e := watchEvents(t, url)
		v := e.until(func(v *liveView) bool { return v.Says[0].Text == "Both workers serve; nothing is moving." })
		if v.Self.Name != self || !v.Self.Asks || v.Partitions != site.Partitions || len(v.Workers) != 2 {
			t.Errorf("%+v", v)
		}
		one, two := v.Workers[0], v.Workers[1]
		if one.Name != "w1" || one.Status == nil || one.Wanted != w1.Serving() || one.Status.BusyKeys != 1 || one.Status.Executions != 1 || two.Name != "w2" || two.Wanted != w2.Serving() {
			t.Errorf("%+v", v.Workers)
		}
		if v = e.next(); v.Workers[0].PerSecond == nil {
			t.Error("a second event has no rates")
		}
		if hasTraffic := v.Traffic != nil; hasTraffic != (self == "router-1") {
			t.Errorf("traffic: %+v", v.Traffic)
		} else if hasTraffic && (v.Traffic.Of != "requests" || v.Traffic.InFlight != 1 || v.Traffic.Held != 0 || v.Traffic.PerSecond == nil) {
			t.Errorf("traffic: %+v", v.Traffic)
		}
	}
}

// Of all workers' hot keys but the balancer's own, and of their moves, the first are shown, each move once.
func TestEventsAreShort(t *testing.T) {
	var rows []status.WorkerRow
	now := time.Now()
	for i, name := range []string{"w1", "w2"} {
		s := &status.WorkerStatus{Name: name, Incarnation: name + "-1", State: "active"}
		for n := range 60 {
			s.Hot = append(s.Hot, status.HotKey{Key: "<" + name + ">", PerSecond: float64(1000 - 2*n - i)})
			move := status.Move{Direction: "taken", Worker: "w1", Partitions: n, Ended: now.Add(-time.Duration(n) * time.Minute)}
			if i == 0 {
				move.Direction, move.Worker = "given", "w2"
			}
			s.Moves = append(s.Moves, move)
		}
		rows = append(rows, status.WorkerRow{Name: name, Status: s})
	}
	rows[0].Status.Hot[59] = status.HotKey{Key: placement.Lock, PerSecond: 9999}
	rows[0].Status.Moves[3] = status.Move{Direction: "lost", Partitions: 3, Ended: now.Add(-3 * time.Minute)}
	v := firstOf(t, admin.Config{Operator: &rowsOperator{rows: rows}}, "w1", "w2")
	if len(v.Hot) != 12 || len(v.Moves) != 24 {
		t.Fatalf("%d hot keys, %d moves", len(v.Hot), len(v.Moves))
	}
	for i, k := range v.Hot {
		if want := []string{"w1", "w2"}[i%2]; k.At != want || k.Key != "<"+want+">" || k.PerSecond != float64(1000-i) {
			t.Errorf("hot key %d: %+v", i, k)
		}
	}
	lost := 0
	for i, m := range v.Moves {
		if m.Direction == "lost" {
			lost++
		}
		if m.Direction == "given" || i > 0 && m.Ended.After(v.Moves[i-1].Ended) {
			t.Errorf("move %d: %+v", i, m)
		}
	}
	if lost != 1 {
		t.Errorf("the lost one is there %d times", lost)
	}
	for _, w := range v.Workers {
		if w.Status.Hot != nil || w.Status.Moves != nil {
			t.Errorf("%s has them, too: %+v", w.Name, w.Status)
		}
	}
}

// The page has all that it needs in itself, and its policy says so.
func TestTrapLivePageIsAlone(t *testing.T) {
	members := hub.New(ring.Settings{}).Join(ring.Member{Name: "a", Role: ring.RoleWorker})
	rec := httptest.NewRecorder()
	admin.New(admin.Config{Members: members}).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/", nil))
	page, policy := rec.Body.String(), rec.Header().Get("Content-Security-Policy")
	if rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != "text/html; charset=utf-8" || rec.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %v", rec.Code, rec.Header())
	}
	for _, want := range []string{"default-src 'none';", "connect-src 'self';", "form-action 'none';", "base-uri 'none';", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %q lacks %s", policy, want)
		}
	}
	if n := strings.Count(policy, "'sha256-"); n != 2 || strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
		t.Errorf("the policy is %q", policy)
	}
	// A browser would stop these, and nobody see what they are for.
	if found := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|\son\w+="|\sstyle="|(src|href)="(https?:)?//|@import|url\(['"]?http`).FindAllString(page, -1); found != nil {
		t.Errorf("the page has %q", found)
	}
	if len(page) > 64<<10 {
		t.Errorf("the page has %d bytes", len(page))
	}
}

// rowsOperator tells of workers what it was told.
type rowsOperator struct {
	admin.Operator
	rows []status.WorkerRow
}

func (o *rowsOperator) Workers(context.Context) []status.WorkerRow { return o.rows }

// firstOf returns the first event of an admin address of such a process.
func firstOf(t *testing.T, cfg admin.Config, workers ...string) liveView {
	t.Helper()
	h := hub.New(ring.Settings{Ring: ring.Config{Partitions: 16}})
	cfg.Members = h.Join(ring.Member{Name: "r", Role: ring.RoleRouter, State: ring.StateActive})
	for _, name := range workers {
		h.Join(ring.Member{Name: name, Role: ring.RoleWorker, State: ring.StateActive, Incarnation: name + "-1", Addr: name + ":80"})
	}
	server := httptest.NewServer(admin.New(cfg))
	defer server.Close()
	defer server.CloseClientConnections()
	return watchEvents(t, server.URL).next()
}

// The page says in words what is so, the most urgent first.
func TestSays(t *testing.T) {
	type change = func(s []*status.WorkerStatus)
	for _, tt := range []struct {
		want   string // levels and sentences
		change change // of three workers
	}{
		{`good All 3 workers serve; nothing is moving\.`, func([]*status.WorkerStatus) {}},
		{`bad w9 is gone: its 1,365 partitions are served again in about 8 s\. good All 3 workers serve\.`, func(s []*status.WorkerStatus) {
			s[0].Missing = []status.MissingStatus{{Worker: "w9", Gone: true, Partitions: 1000, WaitsFor: "x", WaitsSeconds: 6.5}}
			s[1].Missing = []status.MissingStatus{{Worker: "w9", Gone: true, Partitions: 365, WaitsFor: "x", WaitsSeconds: 7.2}}
		}},
		{`bad w9 is gone: its 1 partition is not served again yet: nobody has claimed it\.`, func(s []*status.WorkerStatus) {
			s[0].Missing = []status.MissingStatus{{Worker: "w9", Gone: true, Partitions: 1, WaitsFor: "nobody has claimed it"}}
		}},
		{`bad w2 was restarted: 5 partitions of its former process are served again in about 1 s\.`, func(s []*status.WorkerStatus) {
			s[1].Missing = []status.MissingStatus{{Worker: "w2", Gone: true, Partitions: 5, WaitsSeconds: 0.1}}
		}},
		{`bad 4,096 partitions are not served yet: the store is new \(about 3 s left\)\.`, func(s []*status.WorkerStatus) {
			s[0].Missing = []status.MissingStatus{{Partitions: 4096, WaitsFor: "the store is new", WaitsSeconds: 3}}
		}},
		{`move 3 partitions are moving from w1 to w2\. move 1 partition is moving from w3 to w2\. good All 3 workers serve\.`, func(s []*status.WorkerStatus) {
			s[1].Missing = []status.MissingStatus{{Worker: "w1", Partitions: 3}, {Worker: "w3", Partitions: 1}}
		}},
		{`move 10 partitions are moving, between 4 pairs of workers\.`, func(s []*status.WorkerStatus) {
			s[0].Missing = []status.MissingStatus{{Worker: "w2", Partitions: 1}, {Worker: "w3", Partitions: 2}}
			s[1].Missing = []status.MissingStatus{{Worker: "w1", Partitions: 3}, {Worker: "w3", Partitions: 4}}
		}},
		{`move 7 keys of partitions that have moved still run at w1, for 3 s: requests for them wait\.`, func(s []*status.WorkerStatus) {
			s[1].Residue = []status.ResidueStatus{{Worker: "w1", Keys: 4, OldestSeconds: 3}}
			s[2].Residue = []status.ResidueStatus{{Worker: "w1", Keys: 3, OldestSeconds: 3}}
		}},
		{`warn 1 key of partitions that have moved still runs at w1, for 11 s: requests for it wait\.`, func(s []*status.WorkerStatus) {
			s[1].Residue = []status.ResidueStatus{{Worker: "w1", Keys: 1, OldestSeconds: 11}}
		}},
		{`move w2 is drained\. good 2 of 3 workers serve; nothing is moving\.`, func(s []*status.WorkerStatus) { s[1].State, s[1].Served = "drained", 0 }},
		{`move w2 is being drained\. 5 partitions and 1 busy key are left\. good 2 of 3 workers serve\.`, func(s []*status.WorkerStatus) { s[1].State, s[1].BusyKeys = "drained", 1 }},
		{`move w2 is leaving\. 5 partitions and 0 busy keys are left\.`, func(s []*status.WorkerStatus) { s[1].State = "leaving" }},
		{`move w2 is not on the ring yet: no session\. good 2 of 3`, func(s []*status.WorkerStatus) {
			s[1].State, s[1].NotReady, s[1].Served = "joining", "no session", 0
		}},
		{`warn w2 is off the ring, since its app does not answer: refused\. good 2 of 3`, func(s []*status.WorkerStatus) {
			s[1].State, s[1].App, s[1].Served = "drained", &status.AppStatus{Trouble: "refused"}, 0
		}},
		{`warn w2 is not ready: trouble\.`, func(s []*status.WorkerStatus) { s[1].NotReady = "trouble" }},
		{`warn The store has not confirmed the sessions of w1 and w3 lately: serving ends in 0\.5 s unless it does\.`, func(s []*status.WorkerStatus) { s[0].SessionSlackSeconds, s[2].SessionSlackSeconds = 3, 0.5 }},
		{`bad The store does not confirm the session of w2\.`, func(s []*status.WorkerStatus) { s[1].SessionSlackSeconds, s[1].NotReady = -1, "no session" }},
		{`bad w2 cannot use the store: refused\. good`, func(s []*status.WorkerStatus) {
			s[1].State, s[1].NotReady, s[1].SessionSlackSeconds, s[1].Store = "joining", "no session", -1, status.StoreStatus{LastError: "store: refused", FailedAt: new(time.Now())}
		}},
		{`warn w1 and w3 cannot use the store: refused\. Serving ends in 2\.5 s unless it answers\. good`, func(s []*status.WorkerStatus) {
			failed := status.StoreStatus{LastError: "store: refused", FailedAt: new(time.Now()), Answered: new(time.Now().Add(-time.Second))}
			s[0].SessionSlackSeconds, s[2].SessionSlackSeconds, s[0].Store, s[2].Store = 3, 2.5, failed, failed
		}},
		{`good All 3 workers serve; nothing`, func(s []*status.WorkerStatus) {
			s[0].Store = status.StoreStatus{LastError: "store: refused", FailedAt: new(time.Now().Add(-time.Second)), Answered: new(time.Now())}
		}},
		{`warn 85 requests wait for keys of w2: the limit is 100\.`, func(s []*status.WorkerStatus) { s[1].Waiting = 85 }},
		{`bad The key "k" has no executions: workers w8 and w9 died while executions of it ran\. Mend the cause, then release it\. good All 3 workers serve`, func(s []*status.WorkerStatus) {
			for _, s := range s {
				s.Quarantined = []status.Quarantine{{Key: "k", Workers: []string{"w8", "w9"}, Seconds: 9}}
			}
		}},
		{`good 9 calls wait for the key "k"\. No placement can split a key: a batch answers them with one execution\.`, func(s []*status.WorkerStatus) {
			s[1].Hot = []status.HotKey{{Key: "k", PerSecond: 9, Waiting: 9}, {Key: "l", PerSecond: 1, Waiting: 9}}
		}},
	} {
		var rows []status.WorkerRow
		var all []*status.WorkerStatus
		for _, name := range []string{"w1", "w2", "w3"} {
			s := &status.WorkerStatus{Name: name, Incarnation: name + "-1", State: "active", Wanted: 5, Served: 5, Queue: 100, SessionSlackSeconds: 6}
			all = append(all, s)
			rows = append(rows, status.WorkerRow{Name: name, Address: name + ":80", State: "active", Status: s})
		}
		tt.change(all)
		v := firstOf(t, admin.Config{Operator: &rowsOperator{rows: rows}}, "w1", "w2", "w3")
		if got := told(v); !regexp.MustCompile("^(" + tt.want + ")").MatchString(got) {
			t.Errorf("it says %q, want %s", got, tt.want)
		}
	}
	silent := []status.WorkerRow{{Name: "w1", State: "active", Error: "silence"}}
	v := firstOf(t, admin.Config{Operator: &rowsOperator{rows: silent}}, "w1")
	if got := told(v); got != "bad w1 does not answer: if it is gone, its 16 partitions wait until its session is over." {
		t.Errorf("of a silent worker: %q", got)
	}
	v = firstOf(t, admin.Config{Operator: &rowsOperator{}, Ready: func() error { return context.DeadlineExceeded }})
	if got := told(v); got != "bad No worker is on the ring: routers hold requests until one is. warn This router is not ready: context deadline exceeded." {
		t.Errorf("without workers: %q", got)
	}
	v = firstOf(t, admin.Config{Operator: &rowsOperator{}, Store: func() error { return context.DeadlineExceeded }, Ready: func() error { return context.DeadlineExceeded }})
	if got := told(v); got != "bad This router cannot use the store: context deadline exceeded. bad No worker is on the ring: routers hold requests until one is." {
		t.Errorf("without a store: %q", got)
	}
	v = firstOf(t, admin.Config{}, "w1", "w2")
	if got := told(v); got != "good Both workers serve; nothing is moving." || v.Self.Asks || v.Traffic != nil || v.Workers[0].Wanted+v.Workers[1].Wanted != 16 {
		t.Errorf("of a process that asks nobody: %q, %+v", got, v)
	}
}

// told returns what an event says.
func told(v liveView) string {
	var all []string
	for _, s := range v.Says {
		all = append(all, s.Level+" "+s.Text)
	}
	return strings.Join(all, " ")
}

// counted is a process that counts what the test tells it.
type counted struct {
	admin.Operator

	mu               sync.Mutex // guards what follows
	ok, failed, held int
	took             metrics.Latencies
	worker           status.WorkerStatus
}

func (c *counted) Describe(chan<- *prometheus.Desc) {}

func (c *counted) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var families metrics.Families
	requests := families.Counter("keyway_router_requests_total", "", "route", "code")
	metrics.Send(ch, requests, c.ok, "a", "2xx")
	metrics.Send(ch, requests, c.failed, "b", "5xx")
	metrics.Send(ch, families.Gauge("keyway_router_held_requests", ""), c.held)
	metrics.Send(ch, families.Gauge("keyway_router_requests_in_flight", ""), 7)
	took := families.Histogram("keyway_router_request_duration_seconds", "", "route")
	metrics.SendHistogram(ch, took, c.took.Distribution(), "a")
	metrics.SendHistogram(ch, took, c.took.Distribution(), "b")
}

func (c *counted) Workers(context.Context) []status.WorkerRow {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []status.WorkerRow{{Name: "w1", Status: new(c.worker)}}
}

// count has 40 more requests, of which 2 have failed and 1 of 100 took long, and 9 more
// executions.
func (c *counted) count(held int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ok, c.failed, c.held = c.ok+38, c.failed+2, held
	c.worker.Executions += 9
	for range 99 {
		c.took.Observe(2 * time.Millisecond)
	}
	c.took.Observe(8 * time.Millisecond)
}

// recorded is a viewer of one process that runs in a bubble.
type recorded struct {
	http.ResponseWriter
	events chan string
}

func (r *recorded) Write(b []byte) (int, error) {
	if data, ok := strings.CutPrefix(string(b), "data: "); ok {
		r.events <- data
	}
	return len(b), nil
}

func (r *recorded) FlushError() error { return nil }

// Rates and quantiles are of the last 10 s.
func TestTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{worker: status.WorkerStatus{Incarnation: "w1-1", State: "active"}}
		admin := admin.New(admin.Config{
			Members:  hub.New(ring.Settings{}).Join(ring.Member{Name: "r", Role: ring.RoleRouter}),
			Metrics:  metrics.NewRegistry(c),
			Operator: c,
		})
		ctx, cancel := context.WithCancel(t.Context())
		viewer := &recorded{httptest.NewRecorder(), make(chan string)}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			admin.ServeHTTP(viewer, httptest.NewRequestWithContext(ctx, "GET", "http://localhost/events", nil))
		}()
		next := func() (v liveView) {
			if err := json.Unmarshal([]byte(<-viewer.events), &v); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return v
		}
		if v := next(); v.Traffic.PerSecond != nil || v.Traffic.P99Seconds != nil || v.Traffic.InFlight != 7 || v.Workers[0].PerSecond != nil {
			t.Errorf("of one moment: %+v, %+v", v.Traffic, v.Workers[0])
		}
		for i := range 30 { // 40 a second in 10 s, then none
			if i < 15 {
				c.count(i)
			}
			v := next()
			tr := v.Traffic
			switch {
			case i == 14 && (*tr.PerSecond != 40 || *tr.FailedPerSecond != 2 || tr.Held != 14 || *v.Workers[0].PerSecond != 9):
				t.Errorf("rates: %v, %v failed, %d held, %v executions", *tr.PerSecond, *tr.FailedPerSecond, tr.Held, *v.Workers[0].PerSecond)
			case i == 14 && (*tr.P99Seconds != 0.0025 || tr.Beyond):
				t.Errorf("p99: %v, want the bound of the bucket that 99 of 100 are in", *tr.P99Seconds)
			case i == 19 && *tr.PerSecond != 20:
				t.Errorf("after 5 s without requests: %v", *tr.PerSecond)
			case i == 29 && (*tr.PerSecond != 0 || tr.P99Seconds != nil):
				t.Errorf("after 15 s without requests: %v, %v", *tr.PerSecond, tr.P99Seconds)
			}
		}
		for range 100 {
			c.took.Observe(time.Minute)
		}
		if tr := next().Traffic; *tr.P99Seconds != 10 || !tr.Beyond {
			t.Errorf("p99 of what takes longer than any bucket: %v", *tr.P99Seconds)
		}
		cancel()
		select {
		case <-viewer.events:
			<-ended
		case <-ended:
		}
	})
}
