package problem

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/test/kit"
)

func TestTable(t *testing.T) {
	names := make(map[string]bool)
	for k := range known {
		e := table[k]
		if http.StatusText(e.status) == "" || !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(e.name) || names[e.name] || e.title == "" {
			t.Errorf("kind %d: %+v", k, e)
		}
		names[e.name] = true
		if regexp.MustCompile(`(router|worker|gateway|link|keyway): `).MatchString(e.title) {
			t.Errorf("%s names a package: %s", e.name, e.title)
		}
	}
}

func TestAccept(t *testing.T) {
	tests := []struct {
		accept []string
		json   bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{"*/*"}, false},
		{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, false},
		{[]string{"application/json"}, true},
		{[]string{"application/problem+json"}, true},
		{[]string{"Application/JSON; charset=utf-8"}, true},
		{[]string{"application/json, text/plain, */*"}, true},
		{[]string{"text/plain", "application/json;q=0.9"}, false},
		{[]string{"text/plain;q=0.1", "application/json ; q=0.9"}, true},
		{[]string{"application/*;q=0.5"}, true},
		{[]string{"application/json;q=0"}, false},
		{[]string{"application/json;q=2"}, false},
		{[]string{"application/json;q=NaN"}, false},
		{[]string{"application/xml"}, false},
	}
	for _, tt := range tests {
		if got := prefersJSON(tt.accept); got != tt.json {
			t.Errorf("%q: JSON %v", tt.accept, got)
		}
	}
}

func TestServeHTTP(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Length", "5")
	w.Header().Set("Allow", "GET")
	r := httptest.NewRequest("GET", "/", nil)
	Of(AppFull).With("soon").ServeHTTP(w, r)
	if w.Code != 503 || w.Body.String() != "the app has reached its limit of requests, try again: soon\n" ||
		fmt.Sprint(w.Header()) != "map[Allow:[GET] Content-Type:[text/plain; charset=utf-8] Retry-After:[1] X-Content-Type-Options:[nosniff]]" {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
	w = httptest.NewRecorder()
	r.Header.Set("Accept", "application/json")
	_, err := kit.KeySources(t, "header:X-Key", "query:k").Extract(r)
	OfKey(err, kit.KeySources(t, "header:X-Key", "query:k")).ServeHTTP(w, r)
	var d document
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	const want = "{urn:keyway:problem:no-key the request has no key 400 send it in header:X-Key or query:k [header:X-Key query:k] 0 <nil>}"
	if w.Header().Get("Content-Type") != "application/problem+json" || fmt.Sprint(d) != want {
		t.Errorf("%v, %v", w.Header(), d)
	}
}

func TestOfKey(t *testing.T) {
	tests := map[string]error{
		"the request has no key":                               gateway.ErrNoKey,
		"the request's key is invalid: 5000 bytes (from host)": fmt.Errorf("%w: 5000 bytes (from host)", gateway.ErrBadKey),
		"the request's key is invalid: strange":                errors.New("strange"),
	}
	for want, err := range tests {
		if got := OfKey(err, nil).String(); got != want {
			t.Errorf("%v: %s", err, got)
		}
	}
}

// FuzzAccept reads whatever clients send.
func FuzzAccept(f *testing.F) {
	f.Add("application/json;q=0.5, text/*")
	f.Fuzz(func(t *testing.T, accept string) {
		contentType, body := Of(NoKey).Body([]string{accept})
		if (contentType == jsonType) != (body[0] == '{') {
			t.Errorf("%s: %s", contentType, body)
		}
	})
}
