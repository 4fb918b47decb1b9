package keysource_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/keysource"
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
		{"header bad escape", []string{"header:X-Key"}, request("/", "X-Key: 100%"), "", keysource.ErrBadKey},
		{"header twice, same", []string{"header:X-Key"}, request("/", "X-Key: 1", "X-Key: %31"), "", keysource.ErrBadKey},
		{"header twice, once empty", []string{"header:X-Key"}, request("/", "X-Key: 1", "X-Key: "), "", keysource.ErrBadKey},
		{"header twice, different", []string{"header:X-Key"}, request("/", "X-Key: 1", "X-Key: 2"), "", keysource.ErrBadKey},
		{"header empty", []string{"header:X-Key"}, request("/", "X-Key: "), "", keysource.ErrNoKey},
		{"header absent", []string{"header:X-Key"}, request("/"), "", keysource.ErrNoKey},
		{"header control", []string{"header:X-Key"}, request("/", "X-Key: a%00b"), "", keysource.ErrBadKey},
		{"header not UTF-8", []string{"header:X-Key"}, request("/", "X-Key: a%ff"), "", keysource.ErrBadKey},
		{"header UTF-8 both ways", []string{"header:X-Key"}, request("/", "X-Key: ü%c3%bc"), "üü", nil},
		{"header 4 KiB", []string{"header:X-Key"}, request("/", "X-Key: "+strings.Repeat("k", 4096)), strings.Repeat("k", 4096), nil},
		{"header over 4 KiB", []string{"header:X-Key"}, request("/", "X-Key: "+strings.Repeat("k", 4097)), "", keysource.ErrBadKey},
		{"query", []string{"query:id"}, request("/?x=1&id=a%2Bb+c"), "a+b c", nil},
		{"query name encoded", []string{"query:id"}, request("/?%69d=1"), "", keysource.ErrBadKey},
		{"query name that is encoded", []string{"query:f[id]"}, request("/?f%5Bid%5D=1&f[x]=2"), "1", nil},
		{"query name that is not", []string{"query:f[id]"}, request("/?f[id]=1"), "1", nil},
		{"query name in both ways", []string{"query:f[id]"}, request("/?f[id]=1&f%5bid]=1"), "", keysource.ErrBadKey},
		{"query other case", []string{"query:id"}, request("/?ID=1"), "", keysource.ErrBadKey},
		{"query array", []string{"query:id"}, request("/?id[]=1"), "", keysource.ErrBadKey},
		{"query array beside it", []string{"query:id"}, request("/?id=1&id%5B0%5D=2"), "", keysource.ErrBadKey},
		{"query name in brackets", []string{"query:id"}, request("/?id=1&[id]=2"), "", keysource.ErrBadKey},
		{"query name with a bracket", []string{"query:id"}, request("/?id=1&id]=2"), "", keysource.ErrBadKey},
		{"query name with a space", []string{"query:id"}, request("/?id=1&+id=2"), "", keysource.ErrBadKey},
		{"query name with a NUL", []string{"query:id"}, request("/?id=1&id%00x=2"), "", keysource.ErrBadKey},
		{"query array with a bad escape", []string{"query:id"}, request("/?id=1&id[%zz]=2"), "", keysource.ErrBadKey},
		{"query name with a NUL and a bad escape", []string{"query:id"}, request("/?id=1&id%00%=2"), "", keysource.ErrBadKey},
		{"query names with bad escapes", []string{"query:id"}, request("/?i%zzd=1&%id=2&x[id%]=3&id=4"), "4", nil},
		{"query name with a dot", []string{"query:a_b"}, request("/?a_b=1&a.b=2"), "", keysource.ErrBadKey},
		{"query names that are others", []string{"query:id"}, request("/?ids=1&x[id]=2&id.x=3&id=4&=5"), "4", nil},
		{"query empty before it", []string{"query:id"}, request("/?id=&id=1"), "", keysource.ErrBadKey},
		{"query empty behind it", []string{"query:id"}, request("/?id=1&id"), "", keysource.ErrBadKey},
		{"query far behind", []string{"query:id"}, request("/?" + strings.Repeat("a&", 1000) + "id=1"), "", keysource.ErrBadKey},
		{"query overlong", []string{"query:id"}, request("/?id=%c0%af"), "", keysource.ErrBadKey},
		{"query not encoded", []string{"query:id"}, &http.Request{URL: &url.URL{Path: "/", RawQuery: "id=ü"}}, "", keysource.ErrBadKey},
		{"query of another charset", []string{"query:id"}, request("/?id=%2BAEE-", "Content-Type: text/plain; charset=utf-7"), "", keysource.ErrBadKey},
		{"query of ASCII", []string{"query:id"}, request("/?id=a%2B", "Content-Type: text/plain; charset=us-ascii"), "a+", nil},
		{"query of ASCII that is none", []string{"query:id"}, request("/?id=%C3%A9", "Content-Type: text/plain; charset=us-ascii"), "", keysource.ErrBadKey},
		{"query with a plus", []string{"query:id"}, request("/?id=a+b%2Bc"), "a b+c", nil},
		{"query twice, different", []string{"query:id"}, request("/?id=1&id=2"), "", keysource.ErrBadKey},
		{"query twice, same", []string{"query:id"}, request("/?id=1&id=%31"), "", keysource.ErrBadKey},
		{"query hidden by semicolon", []string{"query:id"}, request("/?id=1&a;id=2"), "", keysource.ErrBadKey},
		{"query semicolon elsewhere", []string{"query:id"}, request("/?id=1&a=b;c"), "1", nil},
		{"query bad escape", []string{"query:id"}, request("/?id=%zz"), "", keysource.ErrBadKey},
		{"query without value", []string{"query:id"}, request("/?x=1&id"), "", keysource.ErrNoKey},
		{"cookie", []string{"cookie:cart"}, request("/", "Cookie: a=b%2; cart=a=/1:b; c=\"d\""), "a=/1:b", nil},
		{"cookie encoded", []string{"cookie:cart"}, request("/", "Cookie: cart=%31"), "", keysource.ErrBadKey},
		{"cookie quoted", []string{"cookie:cart"}, request("/", `Cookie: cart="x"`), "", keysource.ErrBadKey},
		{"cookie quoted, escaped", []string{"cookie:cart"}, request("/", `Cookie: cart="\101"`), "", keysource.ErrBadKey},
		{"cookie with a plus", []string{"cookie:cart"}, request("/", "Cookie: cart=a+b"), "", keysource.ErrBadKey},
		{"cookie with a comma", []string{"cookie:cart"}, request("/", "Cookie: cart=1,cart=2"), "", keysource.ErrBadKey},
		{"cookie behind a comma", []string{"cookie:cart"}, request("/", "Cookie: cart=1; a=b, cart=2"), "", keysource.ErrBadKey},
		{"cookie without a value before a comma", []string{"cookie:cart"}, request("/", "Cookie: cart=1; cart,a=2"), "", keysource.ErrBadKey},
		{"cookie in quotes", []string{"cookie:cart"}, request("/", `Cookie: a="; cart=1; b="`), "", keysource.ErrBadKey},
		{"cookie with a space", []string{"cookie:cart"}, request("/", "Cookie: cart=1 ; a=b"), "", keysource.ErrBadKey},
		{"cookie not in ASCII", []string{"cookie:cart"}, request("/", "Cookie: cart=ü"), "", keysource.ErrBadKey},
		{"cookie name with a space", []string{"cookie:cart"}, request("/", "Cookie: cart =1"), "", keysource.ErrBadKey},
		{"cookie name with a space of Unicode", []string{"cookie:cart"}, request("/", "Cookie: cart=1; \u00a0cart\u2003=2"), "", keysource.ErrBadKey},
		{"cookie name with a space of ISO 8859-1", []string{"cookie:cart"}, request("/", "Cookie: \xa0cart=2; cart=1"), "", keysource.ErrBadKey},
		{"cookie names that are others", []string{"cookie:cart"}, request("/", "Cookie: \u00e9cart=2; car\xa0t=3; cart=1"), "1", nil},
		{"cookie name encoded", []string{"cookie:cart"}, request("/", "Cookie: c%61rt=2; cart=1"), "", keysource.ErrBadKey},
		{"cookie array", []string{"cookie:cart"}, request("/", "Cookie: cart[0]=2; cart=1"), "", keysource.ErrBadKey},
		{"cookie twice, same", []string{"cookie:cart"}, request("/", "Cookie: cart=1; cart=1"), "", keysource.ErrBadKey},
		{"cookies in two fields", []string{"cookie:cart"}, request("/", "Cookie: cart=1", "Cookie: a=2"), "", keysource.ErrBadKey},
		{"cookie twice, different", []string{"cookie:cart"}, request("/", "Cookie: cart=1", "Cookie: cart=2"), "", keysource.ErrBadKey},
		{"cookie other case", []string{"cookie:cart"}, request("/", "Cookie: Cart=1"), "", keysource.ErrBadKey},
		{"path", []string{"path:/orders/{key}"}, request("/orders/%31"), "1", nil},
		{"path slash in key", []string{"path:/orders/{key}"}, request("/orders/a%2Fb"), "", keysource.ErrBadKey},
		{"path slash behind the key", []string{"path:/orders/{key}/"}, request("/orders/a/b%2fc"), "", keysource.ErrBadKey},
		{"path backslash", []string{"path:/orders/{key}"}, request("/orders/a%5cb"), "", keysource.ErrBadKey},
		{"path semicolon", []string{"path:/orders/{key}"}, request("/orders/42;a=b"), "", keysource.ErrBadKey},
		{"path semicolon encoded", []string{"path:/orders/{key}"}, request("/orders/42%3Ba"), "", keysource.ErrBadKey},
		{"path semicolon behind the key", []string{"path:/orders/{key}/"}, request("/orders/42/a;b"), "", keysource.ErrBadKey},
		{"path signs", []string{"path:/orders/{key}"}, request("/orders/a@b:c,d+e=f!g$h&i'j(k)*~_-.%20%2B"), "a@b:c,d+e=f!g$h&i'j(k)*~_-. +", nil},
		{"path letters", []string{"path:/orders/{key}"}, request("/orders/%E6%9D%B1%E4%BA%AC%C3%A9%E0%A4%BF%D9%A3"), "東京éि٣", nil},
		{"path decomposed", []string{"path:/orders/{key}"}, request("/orders/e%CC%81"), "", keysource.ErrBadKey},
		{"path percent sign", []string{"path:/orders/{key}"}, request("/orders/a%2541"), "", keysource.ErrBadKey},
		{"path number sign", []string{"path:/orders/{key}"}, request("/orders/a%23b"), "", keysource.ErrBadKey},
		{"path space at an end", []string{"path:/orders/{key}"}, request("/orders/42%20"), "", keysource.ErrBadKey},
		{"path space of Unicode", []string{"path:/orders/{key}"}, request("/orders/42%C2%A0"), "", keysource.ErrBadKey},
		{"path overlong", []string{"path:/orders/{key}"}, request("/orders/a%c0%af"), "", keysource.ErrBadKey},
		{"path whole number", []string{"path:/nums/{n:int}"}, request("/nums/42"), "42", nil},
		{"path negative number", []string{"path:/nums/{n:int}"}, request("/nums/-42"), "-42", nil},
		{"path leading zero", []string{"path:/nums/{n:int}"}, request("/nums/042"), "", keysource.ErrBadKey},
		{"path plus", []string{"path:/nums/{n:int}"}, request("/nums/+42"), "", keysource.ErrBadKey},
		{"path negative zero", []string{"path:/nums/{n:int}"}, request("/nums/-0"), "", keysource.ErrBadKey},
		{"path no number", []string{"path:/nums/{n:int}"}, request("/nums/42a"), "", keysource.ErrBadKey},
		{"path large number", []string{"path:/nums/{n:int}"}, request("/nums/9007199254740992"), "", keysource.ErrBadKey},
		{"path in another case", []string{"path:/orders/{key}"}, request("/Orders/42"), "", keysource.ErrBadKey},
		{"path of another case", []string{"path:/Orders/{key}"}, request("/orders/42"), "", keysource.ErrBadKey},
		{"path in its case", []string{"path:/Orders/{key}"}, request("/Orders/aB"), "aB", nil},
		{"path behind an encoded slash", []string{"path:/orders/{key}"}, request("/orders%2f42"), "", keysource.ErrBadKey},
		{"path behind a parameter", []string{"path:/orders/{key}"}, request("/orders;a/42"), "", keysource.ErrBadKey},
		{"path behind a parameter and a slash", []string{"path:/a/orders/{key}"}, request("/a;x/orders%5c42"), "", keysource.ErrBadKey},
		{"path in the middle", []string{"path:/{tenant}/o/{key}/items"}, request("/t/o/7/items"), "7", nil},
		{"path below", []string{"path:/orders/{id}/"}, request("/orders/7/a/b"), "7", nil},
		{"path below, itself", []string{"path:/orders/{id}/"}, request("/orders/7/"), "7", nil},
		{"path below, without the slash", []string{"path:/orders/{id}/"}, request("/orders/%37"), "7", nil},
		{"path below, literal without the slash", []string{"path:/orders/{id}/items/"}, request("/orders/7/items"), "7", nil},
		{"path below, too short", []string{"path:/orders/{id}/items/"}, request("/orders/7"), "", keysource.ErrNoKey},
		{"path below, empty", []string{"path:/orders/{id}/"}, request("/orders/"), "", keysource.ErrNoKey},
		{"path with a slash behind it", []string{"path:/orders/{id}"}, request("/orders/%37/"), "7", nil},
		{"path with a slash behind its literal", []string{"path:/orders/{id}/items"}, request("/orders/7/items/"), "7", nil},
		{"path with two slashes behind it", []string{"path:/orders/{id}"}, request("/orders/7//"), "", keysource.ErrBadKey},
		{"path rest", []string{"path:/files/{key...}"}, request("/files/a/b%20c"), "a/b c", nil},
		{"path end", []string{"path:/o/{id}/{$}"}, request("/o/7/"), "7", nil},
		{"path end, more", []string{"path:/o/{id}/{$}"}, request("/o/7/x"), "", keysource.ErrNoKey},
		{"path literal encoded", []string{"path:/orders/{id}"}, request("/%6frders/7"), "7", nil},
		{"path other", []string{"path:/orders/{id}"}, request("/carts/7"), "", keysource.ErrNoKey},
		{"path longer", []string{"path:/orders/{id}"}, request("/orders/7/x"), "", keysource.ErrNoKey},
		{"path empty", []string{"path:/orders/{id}"}, request("/orders/"), "", keysource.ErrNoKey},
		{"path dots", []string{"path:/files/{key...}"}, request("/files/a/../b"), "", keysource.ErrBadKey},
		{"path dots encoded", []string{"path:/files/{key...}"}, request("/files/a/%2e%2e/b"), "", keysource.ErrBadKey},
		{"path double slash", []string{"path:/files/{key...}"}, request("/files/a//b"), "", keysource.ErrBadKey},
		{"path dot", []string{"path:/orders/{id}"}, request("/orders/."), "", keysource.ErrBadKey},
		{"host", []string{"host"}, request("/", "Host: Shop-7.Example.com.:8080"), "shop-7.example.com", nil},
		{"host IPv6", []string{"host"}, request("/", "Host: [::1]:80"), "::1", nil},
		{"host IPv6 without port", []string{"host"}, request("/", "Host: [::1]"), "::1", nil},
		{"host with two ports", []string{"host"}, request("/", "Host: shop.example:80:90"), "", keysource.ErrBadKey},
		{"host with two colons", []string{"host"}, request("/", "Host: shop.example::"), "", keysource.ErrBadKey},
		{"host IPv6 with two ports", []string{"host"}, request("/", "Host: [::1]:80:90"), "", keysource.ErrBadKey},
		{"host IPv6 without its end", []string{"host"}, request("/", "Host: [::1"), "", keysource.ErrBadKey},
		{"sources differ", []string{"header:X-Key", "query:id"}, request("/?id=2", "X-Key: 1"), "", keysource.ErrBadKey},
		{"sources agree", []string{"header:X-Key", "query:id"}, request("/?id=%31", "X-Key: 1"), "1", nil},
		{"host is there always", []string{"header:X-Key", "host", "client"}, request("/", "X-Key: 1"), "1", nil},
		{"host is all there is", []string{"header:X-Key", "host", "client"}, request("/"), "example.com", nil},
		{"bad second", []string{"header:X-Key", "query:id"}, request("/?id=%zz", "X-Key: 1"), "", keysource.ErrBadKey},
		{"second if first absent", []string{"header:X-Key", "query:id"}, request("/?id=2"), "2", nil},
		{"bad first does not fall through", []string{"header:X-Key", "query:id"}, request("/?id=2", "X-Key: %0a"), "", keysource.ErrBadKey},
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
		"path:/{id...:int}":    "cannot be :int",
		"path:/{id:uuid}":      "bad wildcard name",
		"path:/o/{key} /x":     "not a pattern",
		"path:GET /o/{key}":    "begins with a slash",
		"path:/orders/{a.b.c}": "bad wildcard name",
	} {
		_, err := keysource.Parse(spec)
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
	if _, err := make(keysource.Sources, 1).Extract(request("/")); !errors.Is(err, keysource.ErrNoKey) {
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
		s, err := keysource.Parse(spec)
		if err != nil {
			return
		}
		again, err := keysource.Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q is written as %q, which reads as %q, %v", spec, s, again, err)
		}
		u, err := url.ParseRequestURI(path)
		if err != nil || u.Host != "" || !strings.HasPrefix(path, "/") {
			return
		}
		r := &http.Request{Method: "GET", Host: "h", URL: u, Header: http.Header{}}
		key, err := keysource.Sources{s}.Extract(r)
		if err == nil && keysource.Check(key) != nil {
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
	pattern = strings.ReplaceAll(pattern, ":int}", "}")
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
	case errors.Is(err, keysource.ErrNoKey) && matched && want != "":
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
			if err != nil && !errors.Is(err, keysource.ErrNoKey) && !errors.Is(err, keysource.ErrBadKey) {
				t.Fatalf("%s: %v", spec, err)
			}
			if err == nil && keysource.Check(key) != nil {
				t.Fatalf("%s: bad key %q", spec, key)
			}
			if spec == "query:id" && err == nil {
				if have := r.URL.Query()["id"]; len(have) == 0 || have[len(have)-1] != key && have[0] != key && !strings.Contains(strings.Join(have, "\x00"), key) {
					t.Fatalf("query %q: key %q, url.Query has %q", query, key, have)
				}
			}
			if c, cookieErr := r.Cookie("id"); spec == "cookie:id" && cookieErr == nil && (errors.Is(err, keysource.ErrNoKey) && c.Value != "" || err == nil && c.Value != key) {
				t.Fatalf("cookie %q: key %q, net/http has %q", cookie, key, c.Value)
			}
		}
	})
}
