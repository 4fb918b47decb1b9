package admin_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/gateway/admin"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
)

// A page can pass for this site's own if its name's owner lets the name resolve to this machine
// once a browser has loaded the page. It learns nothing then, and nothing is done for it.
func TestTrapAnotherHost(t *testing.T) {
	members := hub.New(ring.Settings{}).Join(ring.Member{Name: "a", Role: ring.RoleWorker})
	drains := 0
	cfg := admin.Config{
		Members: members, Metrics: prometheus.NewRegistry(),
		Hosts: []string{"keyway.example", "192.0.2.7"},
		Drain: func(context.Context) error { drains++; return nil }, Undrain: func() error { return nil },
	}
	open := httptest.NewServer(admin.New(cfg))
	defer open.Close()
	cfg.Token = "secret"
	secret := httptest.NewServer(admin.New(cfg))
	defer secret.Close()
	ask := func(s *httptest.Server, method, path, host string, header ...string) (int, string) {
		r := kit.Must(http.NewRequestWithContext(t.Context(), method, s.URL+path, nil))
		r.Host = host
		r.Header.Set("Origin", "http://"+host)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		res, text := kit.Do(t, s.Client(), r)
		return res.StatusCode, text
	}
	for host, known := range map[string]bool{
		"localhost": true, "LocalHost:8081": true, "127.0.0.1:1": true, "127.9.9.9": true, "[::1]:8081": true, "[::1]": true, "[::ffff:127.0.0.1]": true,
		"keyway.example": true, "KEYWAY.example:8081": true, "192.0.2.7:80": true,
		"evil.example": false, "evil.example:8081": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "192.0.2.8": false, "[2001:db8::1]:80": false,
	} {
		want := http.StatusForbidden
		if known {
			want = http.StatusOK
		}
		for _, path := range []string{"/", "/members", "/ring", "/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/openapi.yaml"} {
			if status, text := ask(open, "GET", path, host); status != want || !known && !strings.Contains(text, "--admin-host") {
				t.Errorf("GET %s of %s: %d %.100s", path, host, status, text)
			}
			if status, _ := ask(secret, "GET", path, host); status != want {
				t.Errorf("GET %s of %s where there is a token: %d", path, host, status)
			}
		}
		drains = 0
		if status, text := ask(open, "POST", "/drain", host); status != want || (drains == 1) != known {
			t.Errorf("POST /drain of %s: %d %s, %d drains", host, status, text, drains)
		}
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			if status, text := ask(open, "GET", path, host); status != http.StatusOK {
				t.Errorf("a probe of %s of %s: %d %s", path, host, status, text)
			}
		}
		for path, method := range map[string]string{"/drain": "POST", "/members": "GET"} {
			if status, _ := ask(secret, method, path, host, "Authorization", "Bearer secret"); status != http.StatusOK {
				t.Errorf("%s of %s with the token: %d", path, host, status)
			}
		}
	}
}

// No page of another site has profiles made, by a GET request either. A link to another page works.
func TestTrapNoProfilesForOtherSites(t *testing.T) {
	members := hub.New(ring.Settings{}).Join(ring.Member{Name: "a", Role: ring.RoleWorker})
	s := httptest.NewServer(admin.New(admin.Config{Members: members}))
	defer s.Close()
	for _, tt := range []struct {
		path, name, value string
		want              int
	}{
		{"/debug/pprof/goroutine?debug=1", "Sec-Fetch-Site", "cross-site", 403},
		{"/debug/pprof/goroutine?debug=1", "Sec-Fetch-Site", "same-site", 403},
		{"/debug/pprof/goroutine?debug=1", "Origin", "http://evil.example", 403},
		{"/debug/pprof/goroutine?debug=1", "Sec-Fetch-Site", "same-origin", 200},
		{"/debug/pprof/goroutine?debug=1", "Sec-Fetch-Site", "none", 200},
		{"/debug/pprof/goroutine?debug=1", "Origin", s.URL, 200},
		{"/", "Sec-Fetch-Site", "cross-site", 200},
	} {
		if res, text := kit.Fetch(t, s.URL+tt.path, tt.name, tt.value); res.StatusCode != tt.want {
			t.Errorf("%s with %s %s: %d %.100s, want %d", tt.path, tt.name, tt.value, res.StatusCode, text, tt.want)
		}
	}
}
