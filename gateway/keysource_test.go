package gateway_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// request makes one for a target, with header lines given as "Name: value".
func request(target string, lines ...string) *http.Request {
	r := httptest.NewRequest("GET", target, nil)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	return r
}

func TestKeySources(t *testing.T) {
	tests := []struct {
		name    string
		specs   []string
		request *http.Request
		key     string
		err     error
	}{
		{"header", []string{"header:x-key"}, request("/", "X-Key: order 7"), "order 7", nil},
		{"header percent-encoded", []string{"header:X-Key"}, request("/", "X-Key: %31%2f"), "1/", nil},
		{"header trimmed", []string{"header:X-Key"}, request("/", "X-Key:  1\t"), "1", nil},
		{"header keeps plus", []string{"header:X-Key"}, request("/", "X-Key: a+b"), "a+b", nil},
		{"header bad escape", []string{"header:X-Key"}, request("/", "X-Key: 100%"), "", gateway.ErrBadKey},
		{"header twice, same", []string{"header:X-Key"}, request("/", "X-Key: 1", "X-Key: %31"), "1", nil},
		{"header twice, different", []string{"header:X-Key"}, request("/", "X-Key: 1", "X-Key: 2"), "", gateway.ErrBadKey},
		{"header empty", []string{"header:X-Key"}, request("/", "X-Key: "), "", gateway.ErrNoKey},
		{"header absent", []string{"header:X-Key"}, request("/"), "", gateway.ErrNoKey},
		{"header control", []string{"header:X-Key"}, request("/", "X-Key: a%00b"), "", gateway.ErrBadKey},
		{"header not UTF-8", []string{"header:X-Key"}, request("/", "X-Key: a%ff"), "", gateway.ErrBadKey},
		{"header UTF-8 both ways", []string{"header:X-Key"}, request("/", "X-Key: ü", "X-Key: %c3%bc"), "ü", nil},
		{"header 4 KiB", []string{"header:X-Key"}, request("/", "X-Key: "+strings.Repeat("k", 4096)), strings.Repeat("k", 4096), nil},
		{"header over 4 KiB", []string{"header:X-Key"}, request("/", "X-Key: "+strings.Repeat("k", 4097)), "", gateway.ErrBadKey},
		{"query", []string{"query:id"}, request("/?x=1&id=a%2Bb+c"), "a+b c", nil},
		{"query name encoded", []string{"query:id"}, request("/?%69d=1"), "1", nil},
		{"query other case", []string{"query:id"}, request("/?ID=1"), "", gateway.ErrNoKey},
		{"query twice, different", []string{"query:id"}, request("/?id=1&id=2"), "", gateway.ErrBadKey},
		{"query twice, same", []string{"query:id"}, request("/?id=1&id=%31"), "1", nil},
		{"query hidden by semicolon", []string{"query:id"}, request("/?id=1&a;id=2"), "", gateway.ErrBadKey},
		{"query semicolon elsewhere", []string{"query:id"}, request("/?id=1&a=b;c"), "1", nil},
		{"query bad escape", []string{"query:id"}, request("/?id=%zz"), "", gateway.ErrBadKey},
		{"query without value", []string{"query:id"}, request("/?id&id="), "", gateway.ErrNoKey},
		{"cookie", []string{"cookie:cart"}, request("/", "Cookie: a=b; cart=%31; c=d"), "1", nil},
		{"cookie quoted", []string{"cookie:cart"}, request("/", `Cookie: cart="x"`), "x", nil},
		{"cookie twice, different", []string{"cookie:cart"}, request("/", "Cookie: cart=1", "Cookie: cart=2"), "", gateway.ErrBadKey},
		{"cookie other case", []string{"cookie:cart"}, request("/", "Cookie: Cart=1"), "", gateway.ErrNoKey},
		{"path", []string{"path:/orders/{key}"}, request("/orders/%31"), "1", nil},
		{"path slash in key", []string{"path:/orders/{key}"}, request("/orders/a%2Fb"), "a/b", nil},
		{"path in the middle", []string{"path:/{tenant}/o/{key}/items"}, request("/t/o/7/items"), "7", nil},
		{"path below", []string{"path:/orders/{id}/"}, request("/orders/7/a/b"), "7", nil},
		{"path below, itself", []string{"path:/orders/{id}/"}, request("/orders/7/"), "7", nil},
		{"path below, without the slash", []string{"path:/orders/{id}/"}, request("/orders/%37"), "7", nil},
		{"path below, literal without the slash", []string{"path:/orders/{id}/items/"}, request("/orders/7/items"), "7", nil},
		{"path below, too short", []string{"path:/orders/{id}/items/"}, request("/orders/7"), "", gateway.ErrNoKey},
		{"path below, empty", []string{"path:/orders/{id}/"}, request("/orders/"), "", gateway.ErrNoKey},
		{"path with a slash behind it", []string{"path:/orders/{id}"}, request("/orders/%37/"), "7", nil},
		{"path with a slash behind its literal", []string{"path:/orders/{id}/items"}, request("/orders/7/items/"), "7", nil},
		{"path with two slashes behind it", []string{"path:/orders/{id}"}, request("/orders/7//"), "", gateway.ErrNoKey},
		{"path rest", []string{"path:/files/{key...}"}, request("/files/a/b%20c"), "a/b c", nil},
		{"path end", []string{"path:/o/{id}/{$}"}, request("/o/7/"), "7", nil},
		{"path end, more", []string{"path:/o/{id}/{$}"}, request("/o/7/x"), "", gateway.ErrNoKey},
		{"path literal encoded", []string{"path:/orders/{id}"}, request("/%6frders/7"), "7", nil},
		{"path other", []string{"path:/orders/{id}"}, request("/carts/7"), "", gateway.ErrNoKey},
		{"path longer", []string{"path:/orders/{id}"}, request("/orders/7/x"), "", gateway.ErrNoKey},
		{"path empty", []string{"path:/orders/{id}"}, request("/orders/"), "", gateway.ErrNoKey},
		{"path dots", []string{"path:/files/{key...}"}, request("/files/a/../b"), "", gateway.ErrBadKey},
		{"path dots encoded", []string{"path:/files/{key...}"}, request("/files/a/%2e%2e/b"), "", gateway.ErrBadKey},
		{"path double slash", []string{"path:/files/{key...}"}, request("/files/a//b"), "", gateway.ErrBadKey},
		{"path dot", []string{"path:/orders/{id}"}, request("/orders/."), "", gateway.ErrBadKey},
		{"host", []string{"host"}, request("/", "Host: Shop-7.Example.com.:8080"), "shop-7.example.com", nil},
		{"host IPv6", []string{"host"}, request("/", "Host: [::1]:80"), "::1", nil},
		{"host IPv6 without port", []string{"host"}, request("/", "Host: [::1]"), "::1", nil},
		{"first wins", []string{"header:X-Key", "query:id"}, request("/?id=2", "X-Key: 1"), "1", nil},
		{"second if first absent", []string{"header:X-Key", "query:id"}, request("/?id=2"), "2", nil},
		{"bad first does not fall through", []string{"header:X-Key", "query:id"}, request("/?id=2", "X-Key: %0a"), "", gateway.ErrBadKey},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key, err := kit.KeySources(t, tt.specs...).Extract(tt.request)
			if key != tt.key || !errors.Is(err, tt.err) || (err != nil) != (tt.err != nil) {
				t.Errorf("got %q, %v; want %q, %v", key, err, tt.key, tt.err)
			}
		})
	}
}

func TestMissingKeyNamesTheSources(t *testing.T) {
	_, err := kit.KeySources(t, "header:x-key", "query:id").Extract(request("/"))
	if err == nil || !strings.Contains(err.Error(), "header:X-Key or query:id") {
		t.Error(err)
	}
}

func TestBadKeySources(t *testing.T) {
	for spec, want := range map[string]string{
		"":                     "the forms are header:NAME",
		"header":               "the forms are",
		"header:":              "the forms are",
		"hosts":                "the forms are",
		"host:x":               "the forms are",
		"body:id":              "the forms are",
		"client:x":             "the forms are",
		"json:":                "the forms are",
		"json:id":              "begins with a slash",
		"json:/a~":             "~ is written ~0",
		"json:/~2":             "~ is written ~0",
		"grpc:a b":             "not a header's name",
		"grpc:keyway-key":      "dropped when a client sends them",
		"header:a b":           "not a header's name",
		"header:Keyway-Key":    "dropped when a client sends them",
		"header:host":          "the form for the host is host",
		"header:te":            "frames the request",
		"cookie:a;b":           "not a cookie's name",
		"path:orders/{id}":     "begins with a slash",
		"path:/orders":         "no wildcard",
		"path:/o//{key}":       "empty segment",
		"path://{key}":         "empty segment",
		"path:/{a}/{b}":        "call one of the wildcards a, b {key}",
		"path:/x{id}":          "bad wildcard segment",
		"path:/{key}/{key}":    "duplicate wildcard",
		"path:/{id...}/x":      "not at end",
		"path:/o/{key} /x":     "not a pattern",
		"path:GET /o/{key}":    "begins with a slash",
		"path:/orders/{a.b.c}": "bad wildcard name",
	} {
		_, err := gateway.ParseKeySource(spec)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", spec, err, want)
		}
	}
}

func TestKeySourceText(t *testing.T) {
	for spec, want := range map[string]string{"header:x-key": "header:X-Key", "host": "host", "path:/{id}": "path:/{id}"} {
		if got := kit.KeySources(t, spec)[0].String(); got != want {
			t.Errorf("%q: %q, want %q", spec, got, want)
		}
	}
	if _, err := make(gateway.KeySources, 1).Extract(request("/")); !errors.Is(err, gateway.ErrNoKey) {
		t.Errorf("zero source: %v", err)
	}
}

func TestExtractingAllocatesNothing(t *testing.T) {
	all := kit.KeySources(t, "header:X-Absent", "query:absent", "cookie:absent", "path:/absent/{key}", "path:/o/{key}")
	r := request("/o/7?a=b", "Cookie: a=b; c=d")
	if n := testing.AllocsPerRun(100, func() { all.Extract(r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseKeySource(f *testing.F) {
	for _, s := range []string{"header:X-Key", "query:a", "cookie:c", "path:/a/{key}/b", "path:/{a}/{key...}", "path:/o/{id}/{$}", "host", "path:/%7Ba/{b}/", "json:/a~1b/0", "grpc:X-Bin", "client"} {
		f.Add(s, "/a/1/b")
	}
	f.Fuzz(func(t *testing.T, spec, path string) {
		s, err := gateway.ParseKeySource(spec)
		if err != nil {
			return
		}
		again, err := gateway.ParseKeySource(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q is written as %q, which reads as %q, %v", spec, s, again, err)
		}
		u, err := url.ParseRequestURI(path)
		if err != nil || u.Host != "" || !strings.HasPrefix(path, "/") {
			return
		}
		r := &http.Request{Method: "GET", Host: "h", URL: u, Header: http.Header{}}
		key, err := gateway.KeySources{s}.Extract(r)
		if err == nil && gateway.CheckKey(key) != nil {
			t.Fatalf("bad key %q", key)
		}
		if pattern, ok := strings.CutPrefix(spec, "path:"); ok {
			compareWithMux(t, pattern, r, key, err)
		}
	})
}

// compareWithMux checks a key from a path against what ServeMux makes of it,
// which redirects to the path with a slash what a pattern with a slash matches
// without, and which does not let a pattern without a slash match a path with one.
func compareWithMux(t *testing.T, pattern string, r *http.Request, key string, err error) {
	if last := pattern[strings.LastIndexByte(pattern, '/')+1:]; last != "" && last != "{$}" && !strings.HasSuffix(last, "...}") && len(r.URL.Path) > 1 {
		r.URL.Path, r.URL.RawPath = strings.TrimSuffix(r.URL.Path, "/"), strings.TrimSuffix(r.URL.RawPath, "/")
	}
	if strings.HasSuffix(pattern, "/") && !strings.HasSuffix(r.URL.EscapedPath(), "/") {
		r.URL.Path += "/"
		if r.URL.RawPath != "" {
			r.URL.RawPath += "/"
		}
	}
	mux := http.NewServeMux()
	var want string
	matched := false
	mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) {
		matched = true
		want = r.PathValue("key")
		if want == "" && strings.Count(pattern, "{")-strings.Count(pattern, "{$}") == 1 {
			name := pattern[strings.Index(pattern, "{")+1:]
			name, _, _ = strings.Cut(name, "}")
			want = r.PathValue(strings.TrimSuffix(name, "..."))
		}
	})
	mux.ServeHTTP(httptest.NewRecorder(), r.Clone(t.Context()))
	switch {
	case err == nil && (!matched || key != want):
		t.Fatalf("pattern %q, path %q: key %q, ServeMux has %q (matched: %v)", pattern, r.URL.EscapedPath(), key, want, matched)
	case errors.Is(err, gateway.ErrNoKey) && matched && want != "":
		t.Fatalf("pattern %q, path %q: no key, ServeMux has %q", pattern, r.URL.EscapedPath(), want)
	}
}

func FuzzExtractKey(f *testing.F) {
	f.Add("id=1&x=2", "id=1; b=2", "%31")
	f.Add("id=1;id=2", `id="q"`, "a%")
	f.Fuzz(func(t *testing.T, query, cookie, header string) {
		r := &http.Request{Method: "GET", URL: &url.URL{Path: "/", RawQuery: query}, Header: http.Header{"Cookie": {cookie}, "Id": {header}}}
		for _, spec := range []string{"query:id", "cookie:id", "header:id"} {
			key, err := kit.KeySources(t, spec).Extract(r)
			if err != nil && !errors.Is(err, gateway.ErrNoKey) && !errors.Is(err, gateway.ErrBadKey) {
				t.Fatalf("%s: %v", spec, err)
			}
			if err == nil && gateway.CheckKey(key) != nil {
				t.Fatalf("%s: bad key %q", spec, key)
			}
			if spec == "query:id" && err == nil {
				if have := r.URL.Query()["id"]; len(have) == 0 || have[len(have)-1] != key && have[0] != key && !strings.Contains(strings.Join(have, "\x00"), key) {
					t.Fatalf("query %q: key %q, url.Query has %q", query, key, have)
				}
			}
			if c, cookieErr := r.Cookie("id"); spec == "cookie:id" && cookieErr == nil && errors.Is(err, gateway.ErrNoKey) && c.Value != "" {
				t.Fatalf("cookie %q: no key, net/http has %q", cookie, c.Value)
			}
		}
	})
}
