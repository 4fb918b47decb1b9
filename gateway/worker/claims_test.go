package worker_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/site"
)

// says is an app that says it worked on the keys of the path's query.
var says = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
	rw.Header()["Keyway-Key"] = r.URL.Query()["says"]
	rw.Header().Set("X-App", "yes")
	if r.URL.Query().Has("interim") {
		rw.WriteHeader(http.StatusEarlyHints)
	}
})

// An app's Keyway-Key is compared with the execution's key, and does not go on to the client.
func TestKeyMismatches(t *testing.T) {
	tests := []struct {
		query string
		want  float64
	}{
		{"", 0},
		{"says=a%2520key", 0},
		{"says=a+key", 0},
		{"says=%2561%2520k%2565y", 0},
		{"interim&says=a%2520key", 0},
		{"says=A%2520key", 1},
		{"says=a%252520key", 1},
		{"says=a", 1},
		{"says=", 1},
		{"says=a%25zzkey", 1},
		{"says=a+key&says=a+key", 1},
		{"says=a+key,a+key", 1},
	}
	app := site.Serve(t, says)
	ways := map[string]func(t *testing.T) (url string, w *site.Worker){
		"link": func(t *testing.T) (string, *site.Worker) {
			s, w := site.InFrontOf(t, app.URL)
			return s.URL + "/", w
		},
		"proxy": func(t *testing.T) (string, *site.Worker) {
			s, w := site.InFrontOf(t, app.URL+"/base")
			return s.URL + "/", w
		},
		"sidecar": func(t *testing.T) (string, *site.Worker) {
			w := site.New(t, 16).StartReady()
			return site.Serve(t, kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(app.URL))))).URL + "/", w
		},
		"handler": func(t *testing.T) (string, *site.Worker) {
			w := site.New(t, 16).StartReady()
			return site.Serve(t, w.Handler(says)).URL + "/", w
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			target, w := way(t)
			for _, tt := range tests {
				before := metrictest.Gather(t, w)["keyway_key_mismatches_total"]
				res, body := kit.Fetch(t, target+"?"+tt.query, gateway.HeaderKey, "a%20key", "X-Key", "a%20key")
				if res.StatusCode != http.StatusOK || res.Header.Get("X-App") != "yes" || res.Header["Keyway-Key"] != nil {
					t.Errorf("%s: %d %v %s", tt.query, res.StatusCode, res.Header, body)
				}
				if got := metrictest.Gather(t, w)["keyway_key_mismatches_total"] - before; got != tt.want {
					t.Errorf("%s: %v mismatches are counted, want %v", tt.query, got, tt.want)
				}
			}
		})
	}
}

// A mismatch stands in the explanation of both keys, and an app that names a key without
// having one is one.
func TestKeyMismatchIsExplained(t *testing.T) {
	w := site.New(t, 16).StartReady()
	h := w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { rw.Header().Set("Keyway-Key", "order%3A42") }))
	askBy(t, h, "order:42", policy.Policy{Route: "orders"})
	if s := kit.Must(w.Explain("order:42")); s.Mismatch != nil {
		t.Errorf("%+v of an app that agrees", s.Mismatch)
	}
	askBy(t, h, "", policy.Policy{Route: "rest", Mode: policy.Unkeyed})
	askBy(t, h, "order:7", policy.Policy{Route: "orders"})
	for key, route := range map[string]string{"order:42": "orders", "order:7": "orders"} {
		s := kit.Must(w.Explain(key))
		if m := s.Mismatch; m == nil || m.Route != route || m.Key != "order:7" || m.App != "order%3A42" || m.Values != 1 {
			t.Errorf("%s: %+v", key, m)
		}
		e := status.Explanation{Key: key, Believed: &status.Place{Name: s.Worker}, Worker: &s}
		if e.Conclude(); !strings.Contains(strings.Join(e.Verdict, " "), `"order%3A42", but its request of route "orders" ran under the key "order:7"`) {
			t.Errorf("%s: %q", key, e.Verdict)
		}
	}
	if s := kit.Must(w.Explain("order:8")); s.Mismatch != nil {
		t.Errorf("%+v of another key", s.Mismatch)
	}
	for range 100 { // what is kept is bounded
		askBy(t, h, "order:9", policy.Policy{Route: "orders"})
	}
	if s := kit.Must(w.Explain("order:7")); s.Mismatch != nil {
		t.Errorf("%+v is not forgotten", s.Mismatch)
	}
	expectMetrics(t, w, metrictest.Values{"keyway_key_mismatches_total": 102})
}
