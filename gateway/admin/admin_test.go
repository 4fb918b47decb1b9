package admin_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway/admin"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

// post sends a POST request, with names and values of fields.
func post(t *testing.T, h http.Handler, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// What changes something needs the token, if there is one, and comes from no page of
// another site.
func TestTrapAdminToken(t *testing.T) {
	members := hub.New(ring.Settings{}).Join(ring.Member{Name: "a", Role: ring.RoleWorker})
	drains := 0
	cfg := admin.Config{
		Members: members, Token: "secret",
		Drain:   func(context.Context) error { drains++; return nil },
		Undrain: func() error { drains++; return nil },
	}
	h := admin.New(cfg)
	for _, path := range []string{"/drain", "/undrain"} {
		for _, tt := range []struct {
			status int
			header []string
		}{
			{http.StatusUnauthorized, nil},
			{http.StatusUnauthorized, []string{"Authorization", "secret"}},
			{http.StatusUnauthorized, []string{"Authorization", "Bearer "}},
			{http.StatusUnauthorized, []string{"Authorization", "Bearer secre"}},
			{http.StatusUnauthorized, []string{"Authorization", "Bearer secrets"}},
			{http.StatusUnauthorized, []string{"Authorization", "Basic secret"}},
			{http.StatusForbidden, []string{"Authorization", "Bearer secret", "Sec-Fetch-Site", "cross-site"}},
		} {
			if rec := post(t, h, path, tt.header...); rec.Code != tt.status || drains > 0 {
				t.Errorf("%s with %q: %d, want %d; done: %d", path, tt.header, rec.Code, tt.status, drains)
			}
		}
		if rec := post(t, h, path, "Authorization", "Bearer secret"); rec.Code != http.StatusOK || drains != 1 {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
		drains = 0
	}
	if rec := post(t, h, "/drain?worker=b", "Authorization", "Bearer secret"); rec.Code != http.StatusBadRequest || drains > 0 {
		t.Errorf("a worker of another name: %d %s", rec.Code, rec.Body)
	}
}

// Without a token, what changes something is done for this machine alone.
func TestTrapAdminWithoutToken(t *testing.T) {
	members := hub.New(ring.Settings{}).Join(ring.Member{Name: "a", Role: ring.RoleWorker})
	drains := 0
	h := admin.New(admin.Config{
		Members: members,
		Drain:   func(context.Context) error { drains++; return nil },
		Undrain: func() error { drains++; return nil },
	})
	for remote, status := range map[string]int{
		"127.0.0.1:1": http.StatusOK, "127.9.9.9:1": http.StatusOK, "[::1]:1": http.StatusOK, "[::ffff:127.0.0.1]:1": http.StatusOK, "@": http.StatusOK,
		"192.0.2.1:1": http.StatusForbidden, "[2001:db8::1]:1": http.StatusForbidden, "10.0.0.1:1": http.StatusForbidden,
	} {
		for _, path := range []string{"/drain", "/undrain"} {
			drains = 0
			r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost"+path, nil)
			r.RemoteAddr = remote
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			if done := drains == 1; rec.Code != status || done != (status == http.StatusOK) {
				t.Errorf("%s from %s: %d %s; done: %v", path, remote, rec.Code, rec.Body, done)
			}
		}
	}
}

// Pages that the process has nothing for are not there.
func TestAdminPages(t *testing.T) {
	members := hub.New(ring.Settings{}).Join(ring.Member{Name: "a", Role: ring.RoleWorker})
	h := admin.New(admin.Config{Members: members})
	for path, want := range map[string]int{
		"/": 200, "/nope": 404, "/healthz": 200, "/readyz": 200, "/members": 200, "/ring": 200, "/openapi.yaml": 200,
		"/explain?key=k": 404, "/workers": 404, "/moves": 404, "/hot": 404, "/loads": 404, "/routes": 404, "/metrics": 404, "/drain": 404,
		"/debug/pprof/": 200, "/debug/pprof/heap": 200, "/debug/pprof/goroutine?debug=1": 200, "/debug/pprof/nope": 404,
		"/debug/pprof/cmdline": 404, "/debug/pprof/profile?seconds=0": 400, "/debug/pprof/trace?seconds=301": 400,
	} {
		rec := httptest.NewRecorder()
		if h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost"+path, nil)); rec.Code != want {
			t.Errorf("%s: %d, want %d: %s", path, rec.Code, want, rec.Body)
		}
	}
	if _, pattern := http.DefaultServeMux.Handler(httptest.NewRequest("GET", "/debug/pprof/", nil)); pattern != "" {
		t.Error("profiles are on http.DefaultServeMux, for whoever uses that")
	}
}

// recorder counts the writes of an answer.
type recorder struct {
	*httptest.ResponseRecorder
	writes int
}

func (r *recorder) Write(b []byte) (int, error) {
	r.writes++
	return r.ResponseRecorder.Write(b)
}

// A profile ends with its request.
func TestProfilesEndWithTheirRequests(t *testing.T) {
	members := hub.New(ring.Settings{}).Join(ring.Member{Name: "a", Role: ring.RoleWorker})
	h := admin.New(admin.Config{Members: members})
	ask := func(ctx context.Context) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		counted := &recorder{ResponseRecorder: rec}
		h.ServeHTTP(counted, httptest.NewRequestWithContext(ctx, "GET", "http://localhost/debug/pprof/trace?seconds=300", nil))
		if counted.writes != 1 {
			t.Errorf("%d writes: a profile that is sent while it is recorded fills the memory if its reader is slow", counted.writes)
		}
		return rec
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan *httptest.ResponseRecorder)
	go func() {
		rec := ask(ctx)
		for rec.Code == http.StatusConflict { // with those below
			rec = ask(ctx)
		}
		first <- rec
	}()
	ended, end := context.WithCancel(t.Context())
	end()
	kit.Eventually(t, "another one is refused", func() bool { return ask(ended).Code == http.StatusConflict })
	cancel()
	if rec := <-first; rec.Code != http.StatusOK || rec.Body.Len() == 0 {
		t.Errorf("%d, %d bytes", rec.Code, rec.Body.Len())
	}
}

// The request whose key is explained is read from the parameters; mistakes are told.
func TestExplainRequests(t *testing.T) {
	s := site.NewOperated(t, "")
	s.Start()
	for _, tt := range []struct {
		query  string
		status int
		want   string
	}{
		{"url=http://shop.example/orders/42&method=POST", 200, `"source": "path:/orders/{key}"`},
		{"url=/x%3Fk%3D7", 200, `"source": "query:k"`},
		{"url=/x&header=X-Key:%20a%2Fb", 200, `"key": "a/b"`},
		{"key=a%2Fb", 200, `"key": "a/b"`},
		{"", 400, "neither a key nor a url"},
		{"key=", 400, "key"},
		{"key=1&key=2", 400, "key"},
		{"url=/x", 400, "header:X-Key"},
		{"url=/x&header=X-Key", 400, "NAME: VALUE"},
		{"url=shop.example/orders/42&method=POST", 400, "neither a URL"},
		{"url=%3A", 400, "missing protocol scheme"},
		{"url=/x&method=%20", 400, "method"},
	} {
		res, body := kit.Fetch(t, s.Admin+"/explain?"+tt.query)
		if res.StatusCode != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%q: %d %s, want %d with %q", tt.query, res.StatusCode, body, tt.status, tt.want)
		}
	}
}

// An operator's questions do not fill the process.
func TestQuestionsAreBounded(t *testing.T) {
	members := hub.New(ring.Settings{}).Join(ring.Member{Name: "a", Role: ring.RoleWorker})
	o := &stuckOperator{asked: make(chan struct{}, 100), answer: make(chan struct{})}
	server := httptest.NewServer(admin.New(admin.Config{Members: members, Operator: o}))
	defer server.Close()
	codes := make(chan int, 100)
	ask := func() {
		res, err := http.Get(server.URL + "/workers")
		if err != nil {
			t.Error(err)
			codes <- 0
			return
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		codes <- res.StatusCode
	}
	for range 16 {
		go ask()
		<-o.asked
	}
	if ask(); <-codes != http.StatusServiceUnavailable {
		t.Error("a 17th question was asked")
	}
	close(o.answer)
	for range 16 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("%d", code)
		}
	}
}

// stuckOperator answers when it is told to.
type stuckOperator struct {
	admin.Operator
	asked, answer chan struct{}
}

func (o *stuckOperator) Workers(context.Context) []status.WorkerRow {
	o.asked <- struct{}{}
	<-o.answer
	return nil
}

// The verdict tells apart what makes a key slow.
func TestVerdict(t *testing.T) {
	place := &status.Place{Name: "w1", Address: "w1:80"}
	tells := func(change func(*status.KeyStatus)) *status.KeyStatus {
		s := &status.KeyStatus{Worker: "w1", Served: true, Partition: 7}
		change(s)
		return s
	}
	for want, e := range map[string]*status.Explanation{
		"The request has no key":                            {},
		"No worker is on the ring":                          {Key: "k"},
		"has not said what it does: silence":                {Key: "k", Believed: place, WorkerError: "silence"},
		"worker w2 does; routers learn":                     {Key: "k", Believed: place, Worker: tells(func(s *status.KeyStatus) { s.Served, s.Owner = false, "w2" })},
		"is about to move from worker w1 to w2":             {Key: "k", Believed: place, Wanted: &status.Place{Name: "w2"}, Worker: tells(func(*status.KeyStatus) {})},
		"The key is being passed on":                        {Key: "k", Believed: place, Worker: tells(func(s *status.KeyStatus) { s.Waiting = 2 })},
		"Another member, at m:1, holds the key":             {Key: "k", Believed: place, Worker: tells(func(s *status.KeyStatus) { s.Holder = &status.KeyHolder{Kind: "hold", HeldBy: "m:1"} })},
		"has run for 2s of the 1m0s that it may":            {Key: "k", Believed: place, Worker: tells(func(s *status.KeyStatus) { s.Holder = &status.KeyHolder{Seconds: 2, LimitSeconds: 60} })},
		"and its client has left":                           {Key: "k", Believed: place, Worker: tells(func(s *status.KeyStatus) { s.Holder = &status.KeyHolder{Seconds: 2, ClientGone: true} })},
		`rate of route "r", 2 a second and 5 at once`:       {Key: "k", Believed: place, Worker: tells(func(s *status.KeyStatus) { s.Rates = []status.KeyRate{{Route: "r", PerSecond: 2, Burst: 5}} })},
		"When its session is over, the key is free":         {Key: "k", Believed: place, FormerError: "gone", Worker: tells(func(s *status.KeyStatus) { s.Residue = &status.KeyResidue{Worker: "w0"} })},
		"It is served again in 3s at most":                  {Key: "k", Believed: place, Worker: tells(func(s *status.KeyStatus) { s.Served, s.WaitsFor, s.WaitsSeconds = false, "time", 3 })},
		"wait for it: 3, from 2 clients; one client made 2": {Key: "k", Believed: place, Worker: tells(func(s *status.KeyStatus) { s.Waiting, s.Clients, s.MostOfOne = 3, 2, 2 })},
		"a batch answers the calls that wait for it":        {Key: "k", Believed: place, Worker: tells(func(s *status.KeyStatus) { s.Waiting = 8 })},
		"for another 9s: workers w8 and w9 died while": {Key: "k", Believed: place, Worker: tells(func(s *status.KeyStatus) {
			s.Quarantine = &status.Quarantine{Seconds: 9, Workers: []string{"w8", "w9"}}
		})},
		"The key is free: a request for it runs at once at ": {Key: "k", Believed: place, Worker: tells(func(*status.KeyStatus) {})},
	} {
		if e.Conclude(); !strings.Contains(strings.Join(e.Verdict, "\n"), want) {
			t.Errorf("%q, want %q", e.Verdict, want)
		}
	}
}
