package router_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/site"
)

// No client can make a call between members: no way in takes its method, and
// nothing of it reaches a worker or an app.
func TestTrapNoClientMakesACall(t *testing.T) {
	var ran atomic.Int64
	app := func(rw http.ResponseWriter, r *http.Request) {
		ran.Add(1)
		fmt.Fprint(rw, r.Method)
	}
	for _, e := range entrances(t, app, nil) {
		for _, method := range []string{":acquire", ":renew", ":release", ":other", ":"} {
			got := e.send(t, method, "/", nil, "")
			refused := strings.HasPrefix(got, "400 ") || e.http2 && !strings.Contains(got, ":status: 200")
			if !refused {
				t.Errorf("%s: %s is answered with %.200s", e.name, method, got)
			}
		}
		if n := ran.Load(); n > 0 {
			t.Errorf("%s: the app got %d requests", e.name, n)
		}
		if got := e.send(t, "GET", "/", nil, ""); !strings.Contains(got, "200") || ran.Swap(0) != 1 {
			t.Errorf("%s: GET is answered with %.200s", e.name, got)
		}
	}
	// A program's own server may take any method.
	linked, _ := throughLink(t, app)
	for name, rt := range map[string]http.Handler{"link": linked, "plain": site.NewRouter(t, router.Config{Members: hub.Of(site.NewFake(t, "a", app).Member)})} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Method = ":ACQUIRE" // which no rule about the case of methods refuses
		r.Header.Set("X-Key", "k")
		rec := httptest.NewRecorder()
		rt.ServeHTTP(rec, r)
		if rec.Code != http.StatusBadRequest || ran.Load() > 0 {
			t.Errorf("%s, ServeHTTP: %d %s", name, rec.Code, rec.Body)
		}
	}
}
