package worker_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

// direct makes a worker take requests of anybody.
func direct(cfg *worker.Config) { cfg.Direct = true }

func TestHandlerPassesKeyAndToken(t *testing.T) {
	w := site.New(t, 16).StartReady()
	s := site.Serve(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		key, err := gateway.KeyFromHeader(r.Header)
		if err != nil {
			t.Error(err)
		}
		token, ok := worker.TokenFrom(r.Context())
		if !ok || r.Header.Get(gateway.HeaderToken) != strconv.FormatInt(token, 10) {
			t.Errorf("token %d in the context, %q in the header", token, r.Header.Get(gateway.HeaderToken))
		}
		if r.Header.Get(gateway.HeaderEpoch) != strconv.FormatInt(keyed.TokenEpoch(token), 10) {
			t.Errorf("epoch %q", r.Header.Get(gateway.HeaderEpoch))
		}
		if got := r.Header.Get("Keyway-Forged"); got != "" {
			t.Errorf("the handler sees Keyway-Forged: %q", got)
		}
		rw.Header().Set("Keyway-Refused", "not-owner")
		rw.Header().Set("X-App", "yes")
		rw.WriteHeader(http.StatusMisdirectedRequest)
		fmt.Fprint(rw, key)
	})))
	for _, key := range []string{"order-42", "käse 100%", "a/b?c", strings.Repeat("k", keysource.MaxLen)} {
		res, body := kit.Fetch(t, s.URL, gateway.HeaderKey, url.PathEscape(key), "Keyway-Forged", "1")
		if body != key || res.StatusCode != http.StatusMisdirectedRequest || res.Header.Get("X-App") != "yes" {
			t.Errorf("key %.20q: status %d, key %.20q", key, res.StatusCode, body)
		}
		if got := res.Header.Get("Keyway-Refused"); got != "" {
			t.Errorf("TestTrap: an app's 421 carries the marker %q", got)
		}
	}
}

func TestHandlerRefusals(t *testing.T) {
	c := site.New(t, 16)
	other := c.StartReady()
	w := c.Start(func(cfg *worker.Config) {
		cfg.Keys = gateway.KeySources{kit.Must(gateway.ParseKeySource("query:id"))}
		cfg.Members = frozen{cfg.Members}
	})
	ran := false
	s := site.Serve(t, w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true })))
	kit.Eventually(t, "the worker knows the owner", func() bool {
		res, _ := kit.Fetch(t, s.URL+"?id=k")
		return res.Header.Get("Keyway-Owner") != ""
	})
	nested := "other=1, keyway-held=" + strconv.FormatUint(0x1, 16)
	tests := []struct {
		name, query string
		header      []string
		status      int
		want        string
	}{
		{"no key", "", nil, 400, "query:id"},
		{"bad key from the router", "", []string{gateway.HeaderKey, "%zz"}, 400, "percent-encoded"},
		{"control character", "?id=a%00b", nil, 400, "control character"},
		{"invalid UTF-8", "?id=%ff", nil, 400, "UTF-8"},
		{"too long", "?id=" + strings.Repeat("k", keysource.MaxLen+1), nil, 400, "limit"},
		{"not the owner", "?id=k", nil, 421, "belongs to another worker"},
		{"unrelated baggage", "?id=k", []string{"Baggage", nested}, 421, "belongs to another worker"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, body := kit.Fetch(t, s.URL+tt.query, tt.header...)
			if res.StatusCode != tt.status || !strings.Contains(body, tt.want) {
				t.Errorf("status %d, body %q; want %d and %q in it", res.StatusCode, body, tt.status, tt.want)
			}
			if tt.status == 421 && (res.Header.Get("Keyway-Owner") != other.Incarnation() || res.Header.Get("Keyway-Owner-Addr") != "w1:80" || res.Header.Get("Keyway-Epoch") == "") {
				t.Errorf("hint %v", res.Header)
			}
		})
	}
	if ran {
		t.Error("a refused request ran the handler")
	}
}

// frozen is a membership that nobody learns of: its worker stays off the ring.
type frozen struct{ gateway.Members }

func (frozen) Announce(func(*ring.Member)) error { return nil }

// A chain of calls that comes back to a key that it holds fails, also over
// HTTP, if the app passes the baggage on.
func TestTrapNestedCallFailsFast(t *testing.T) {
	w := site.New(t, 16).StartReady()
	var s *httptest.Server
	s = site.Serve(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		key, _ := gateway.KeyFromHeader(r.Header)
		if next := map[string]string{"a": "b", "b": "a"}[key]; r.URL.Path == "/chain" {
			res, body := kit.Fetch(t, s.URL+"/chain", gateway.HeaderKey, next, "Baggage", r.Header.Get("Baggage"))
			rw.WriteHeader(res.StatusCode)
			fmt.Fprint(rw, body)
		}
	})))
	res, body := kit.Fetch(t, s.URL+"/chain", gateway.HeaderKey, "a", "Baggage", "tenant=7")
	if res.StatusCode != http.StatusLoopDetected || !strings.Contains(body, `"a"`) {
		t.Errorf("status %d, %q; want 508", res.StatusCode, body)
	}
}
