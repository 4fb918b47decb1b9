package router_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/routes"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// What a router or a worker says itself is the same on all ways, in the form that
// the client prefers, and names neither addresses nor packages.
func TestOwnAnswers(t *testing.T) {
	app := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	all := entrances(t, app, nil)
	lonely := routerEntrances(t, "no worker", router.Config{Members: hub.Of(), Limits: gateway.Limits{NoHold: true}})
	const noAnswer = "the app did not answer"
	tests := []struct {
		name   string
		method string
		lines  []string
		status string
		kind   string
		text   string
		json   string // members behind type, title and status
		of     func(entrance) bool
	}{
		{"two keys", "GET", []string{"X-Key: other"}, "400", "bad-key", "the request's key is invalid: given more than once: send it once (from header:X-Key)",
			`"detail":"given more than once: send it once (from header:X-Key)","key_sources":["header:X-Key"]`, nil},
		{"TRACE", "TRACE", nil, "405", "trace", "TRACE is not allowed", "", nil},
		{"a sidecar's app", "GET", nil, "502", "no-answer", noAnswer, "", func(e entrance) bool { return strings.HasPrefix(e.name, "sidecar") }},
		{"no worker", "GET", nil, "503", "no-owner", "no worker takes requests for the key at the moment, try again", `"retry_after":1`,
			func(e entrance) bool { return strings.HasPrefix(e.name, "no worker") }},
	}
	for _, e := range append(all, lonely...) {
		t.Run(e.name, func(t *testing.T) {
			for _, tt := range tests {
				if tt.of != nil && !tt.of(e) {
					continue
				}
				title, _, _ := strings.Cut(tt.text, ": ")
				document := `{"type":"urn:keyway:problem:` + tt.kind + `","title":"` + title + `","status":` + tt.status
				if tt.json != "" {
					document += "," + tt.json
				}
				forms := map[string][2]string{
					"*/*":                        {"text/plain; charset=utf-8", tt.text},
					"application/json, text/*":   {"application/problem+json", document + "}"},
					"application/problem+json":   {"application/problem+json", document + "}"},
					"application/json;q=0, */*;": {"text/plain; charset=utf-8", tt.text},
				}
				for accept, want := range forms {
					got := strings.ReplaceAll(e.send(t, tt.method, "/", append(tt.lines, "Accept: "+accept), ""), `\"`, `"`)
					if !strings.Contains(got, tt.status) || !strings.Contains(got, want[0]) || !strings.Contains(got, want[1]+`\n`) || !strings.Contains(got, "nosniff") {
						t.Errorf("%s, Accept %s: %s, want %s and %s", tt.name, accept, got, want[0], want[1])
					}
					if strings.Contains(got, "127.0.0.1") || strings.Contains(got, "router: ") || strings.Contains(got, "worker: ") {
						t.Errorf("%s: names its inside: %s", tt.name, got)
					}
				}
				if tt.method != "GET" {
					continue
				}
				if got := e.send(t, "HEAD", "/", append(tt.lines, "Accept: application/json"), ""); !strings.Contains(got, tt.status) || !strings.Contains(got, "application/problem+json") || strings.Contains(got, `"type`) {
					t.Errorf("%s, HEAD: %s", tt.name, got)
				}
			}
		})
	}
}

// A client that takes the router for the lock service learns where that is.
func TestRequestsForTheLockService(t *testing.T) {
	table := kit.Must(routes.Parse("routes.yaml", []byte("routes: [{name: orders, match: {path: /orders/}, key: header:X-Key}]")))
	for name, cfg := range map[string]router.Config{"no-key": {Keys: kit.KeySources(t, "header:X-Order")}, "no-route": {Routes: table}} {
		cfg.Members = hub.Of()
		for _, e := range routerEntrances(t, name, cfg) {
			for path, told := range map[string]bool{"/v1/locks/order-42?ttl=5s": true, "/v1/locks": true, "/v1/locksmith": false} {
				got := e.send(t, "POST", path, []string{"Accept: application/json"}, "")
				if strings.Contains(got, "the lock service has another address, that of --locks") != told || !strings.Contains(got, "problem:"+name) {
					t.Errorf("%s, %s: %s", e.name, path, got)
				}
			}
		}
	}
}
