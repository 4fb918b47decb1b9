package routes_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/routes"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// table parses routes, one on each line, such as "name: a, key: host".
func table(t testing.TB, lines ...string) *routes.Table {
	t.Helper()
	out, err := routes.Parse("f", []byte(text(lines...)))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func text(lines ...string) string {
	var b strings.Builder
	b.WriteString("routes:\n")
	for _, line := range lines {
		b.WriteString("  - {" + line + "}\n")
	}
	return b.String()
}

func TestTheDocumentsExample(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "routes.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	file := filepath.Join(t.TempDir(), "routes.yaml")
	if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := routes.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Routes()) != 5 {
		t.Errorf("%d routes", len(all.Routes()))
	}
	for _, tt := range []struct{ method, target, header, route, key string }{
		{"POST", "http://shop.example/orders/42", "", "orders", "42"},
		{"PUT", "http://a.b.shop.example:80/orders/42/items", "", "orders", "42"},
		{"POST", "/payments", "X-Account: 7", "payments", "account:7"},
		{"GET", "/a%20b/carts/", "Cookie: cart=c", "carts", "a%20b/c"},
		{"GET", "/x/carts/1", "", "carts", ""},
		{"GET", "/chat?room=r", "", "chat", "r"},
		{"GET", "http://other.example/orders/42", "", "assets", ""},
	} {
		r := httptest.NewRequest(tt.method, tt.target, nil)
		if name, value, ok := strings.Cut(tt.header, ": "); ok {
			r.Header.Set(name, value)
		}
		route, err := all.Match(r.Host, r.Method, r.URL.EscapedPath())
		if err != nil {
			t.Errorf("%s %s: %v", tt.method, tt.target, err)
			continue
		}
		key, err := route.Key(keyed(r), new([]byte))
		if route.Name != tt.route || key != tt.key || (err == nil) != (key != "") {
			t.Errorf("%s %s: route %q, key %q, %v", tt.method, tt.target, route.Name, key, err)
		}
	}
}

// keyed is a request as key sources see it.
func keyed(r *http.Request) keysource.Keyed { return request{r} }

type request struct{ *http.Request }

func (r request) KeyHeader(name string) []string { return r.Header[name] }
func (r request) KeyQuery() string               { return r.URL.RawQuery }
func (r request) KeyPath() string                { return r.URL.EscapedPath() }
func (r request) KeyHost() string                { return r.Host }
func (r request) KeyClient() string              { return "192.0.2.1" }
func (r request) KeyBody() ([]byte, error)       { return nil, nil }

func TestTheFirstThatMatches(t *testing.T) {
	all := table(t,
		`name: new, match: {path: /orders/new}, key: host`,
		`name: read, match: {path: "/orders/{id}", methods: [GET]}, key: path:id`,
		`name: order, match: {path: "/orders/{id}"}, key: path:id`,
		`name: below, match: {path: "/orders/{id}/"}, key: path:id`,
		`name: admin, match: {hosts: [Admin.Example., "::1", "*.int"]}, key: host`,
		`name: posts, match: {methods: [POST]}, key: host`,
	)
	for _, tt := range []struct{ host, method, path, want string }{
		{"h", "GET", "/orders/new", "new"},
		{"h", "GET", "/%6Frders/new", "new"},
		{"h", "GET", "/orders/%6Eew", "bad"},
		{"h", "GET", "/orders/NEW", "bad"},
		{"h", "GET", "/orders/new;x", "bad"},
		{"h", "GET", "/orders/7", "read"},
		{"h", "HEAD", "/orders/7", "read"},
		{"h", "PUT", "/orders/7/", "order"},
		{"h", "GET", "/orders/7/items", "below"},
		{"h", "GET", "/orders/", ""},
		{"h", "GET", "/Orders/7", ""},
		{"h", "GET", "/ordersx/7", ""},
		{"h", "POST", "/orders", "posts"},
		{"ADMIN.example:8080", "GET", "/", "admin"},
		{"[::1]:80", "GET", "/", "admin"},
		{"admin.example:80:90", "GET", "/", "bad"},
		{"a.b.int", "GET", "/", "admin"},
		{"int", "GET", "/", ""},
		{".int", "GET", "/", ""},
		{"h", "get", "/orders/7", "bad"},
		{"h", "Purge", "/orders/7", "bad"},
		{"h", "POST", "/Orders/7", "bad"},
		{"h", "POST", "/ORDERS/7/ITEMS", "bad"},
		{"h", "POST", "/%4Frders/7", "bad"},
		{"h", "POST", `/orders\7`, "bad"},
		{"h", "POST", "/orders;x/7", "bad"},
		{"h", "POST", "/orders%3Bx/7", "bad"},
		{"h", "POST", "/orders;x%2F7", "bad"},
		{"h", "POST", "/x/..;/orders/7", "bad"},
		{"h", "POST", "/%2forders/7", "bad"},
		{"h", "POST", "/a%2F%2Fb", "bad"},
		{"h", "POST", "/Assets/a;b/c%2Fd%5Ce", "posts"},
		{"h", "POST", "/a//b", "bad"},
		{"h", "POST", "/x/../orders/7", "bad"},
		{"h", "POST", "/x/%2e%2E/orders/7", "bad"},
		{"h", "POST", "/orders%2F7", "bad"},
		{"h", "PUT", "/orders/7%2Fitems", "bad"},
		{"h", "POST", "/%zz", "bad"},
		{"h", "POST", "/a%2Fb", "posts"},
	} {
		r, err := all.Match(tt.host, tt.method, tt.path)
		got := ""
		switch {
		case err == nil:
			got = r.Name
		case errors.Is(err, gateway.ErrBadKey):
			got = "bad"
		case !errors.Is(err, routes.ErrNoRoute):
			t.Error(err)
		}
		if got != tt.want {
			t.Errorf("%s %s%s: route %q, want %q", tt.method, tt.host, tt.path, got, tt.want)
		}
	}
	preflight := httptest.NewRequest("OPTIONS", "http://h/x", nil)
	preflight.Header = http.Header{"Origin": {"http://other"}, "Access-Control-Request-Method": {"POST"}}
	if r, is, err := all.Find("OPTIONS", keysource.Of(preflight)); err != nil || !is || r.Name != "posts" {
		t.Errorf("preflight of POST: %v, %v", is, err)
	}
	if _, err := all.Match("h", "OPTIONS", "/x"); !errors.Is(err, routes.ErrNoRoute) {
		t.Errorf("OPTIONS: %v", err)
	}
}

// Paths are clean in a table that reads keys from them, whichever route takes them.
func TestCleanPathsWhereKeysStandInPaths(t *testing.T) {
	rest := `name: rest, without-key: any`
	for first, want := range map[string]error{
		`name: a, match: {hosts: [h]}, key: "path:/orders/{key}"`:                       gateway.ErrBadKey,
		`name: a, match: {hosts: [h]}, key: header:X-Key, tenant: "path:/{key}/orders"`: gateway.ErrBadKey,
		`name: a, match: {hosts: [h]}, key: header:X-Key`:                               nil,
	} {
		if _, err := table(t, first, rest).Match("other", "GET", "/x//orders/42"); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: %v, want %v", first, err, want)
		}
	}
}

func TestChars(t *testing.T) {
	all := table(t,
		`name: projects, match: {path: "/projects/{id}/"}, key: ["path:id", "cookie:id"], chars: "/%"`,
		`name: groups, match: {path: "/groups/{id}/"}, key: path:id`,
		`name: issues, match: {path: "/issues/{n:int}"}, key: path:n`)
	for _, tt := range []struct{ target, cookie, key string }{
		{"/projects/a%2Fb/issues", "", "a/b"},
		{"/projects/a%25/issues", "", "a%"},
		{"/projects/a/issues", "id=%61", "a"},
		{"/projects/a;b/issues", "", ""},
		{"/projects/a%7Cb/issues", "", ""},
		{"/groups/a%2Fb/issues", "", ""},
		{"/issues/42", "", "42"},
		{"/issues/042", "", ""},
	} {
		r := httptest.NewRequest("GET", tt.target, nil)
		r.Header.Set("Cookie", tt.cookie)
		route, err := all.Match(r.Host, r.Method, r.URL.EscapedPath())
		if err != nil {
			t.Fatal(err)
		}
		key, err := route.Key(keyed(r), new([]byte))
		if key != tt.key || (err == nil) != (key != "") || err != nil && !errors.Is(err, gateway.ErrBadKey) {
			t.Errorf("%s: key %q, %v", tt.target, key, err)
		}
	}
}

func TestTenants(t *testing.T) {
	all := table(t, `name: a, key: query:k, tenant: header:T`)
	seen := map[string]string{}
	for _, pair := range [][2]string{{"a", "b/c"}, {"a/b", "c"}, {"a%2Fb", "c"}, {"a%252Fb", "c"}, {"a", "b%252Fc"}, {"a/b/c", "d"}, {"a", "b"}} {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.RawQuery = "k=" + url.QueryEscape(pair[1])
		r.Header.Set("T", url.PathEscape(pair[0]))
		key, err := all.Routes()[0].Key(keyed(r), new([]byte))
		if err != nil || seen[key] != "" {
			t.Errorf("%q: key %q, %v, as %s", pair, key, err, seen[key])
		}
		seen[key] = pair[0] + " and " + pair[1]
	}
	r := httptest.NewRequest("GET", "/?k=1", nil)
	if _, err := all.Routes()[0].Key(keyed(r), new([]byte)); !errors.Is(err, gateway.ErrBadKey) || !strings.Contains(err.Error(), "header:T") {
		t.Errorf("without a tenant: %v", err)
	}
	if _, err := all.Routes()[0].Key(keyed(httptest.NewRequest("GET", "/", nil)), new([]byte)); !errors.Is(err, gateway.ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}
	long := table(t, `name: a, key: query:k, prefix: "`+strings.Repeat("x", 2000)+`"`)
	if _, err := long.Routes()[0].Key(keyed(httptest.NewRequest("GET", "/?k="+strings.Repeat("y", 3000), nil)), new([]byte)); !errors.Is(err, gateway.ErrBadKey) {
		t.Errorf("a key that is too long with its prefix: %v", err)
	}
}

func TestFields(t *testing.T) {
	r := table(t, `name: a, key: host, mode: serialize, timeout: 10s, max-wait: 5s, hold: 0s, queue: 100,
     body: {max: 10MiB, buffer: false}, upgrade: none, rate: {per-key: 5/s, burst: 10, per-route: 600/m}`).Routes()[0]
	if !r.NoHold || r.Hold != 0 || r.MaxBody != 10<<20 ||
		!r.Stream || r.Upgrades == nil || len(r.Upgrades) != 0 || r.PerRoute != (policy.Rate{PerSecond: 10, Burst: 600}) {
		t.Errorf("%+v", r)
	}
	want := policy.Policy{Route: "a", Mode: policy.Serialize, Timeout: 10 * time.Second, MaxWait: 5 * time.Second, QueuePerKey: 100, Rate: policy.Rate{PerSecond: 5, Burst: 10}}
	if r.Policy != want {
		t.Errorf("%+v", r.Policy)
	}
	if r := table(t, `name: a, key: host, hold: 5s`).Routes()[0]; r.Policy != (policy.Policy{}) || r.Hold != 5*time.Second || r.Upgrades != nil {
		t.Errorf("a route that asks nothing of workers: %+v", r)
	}
}

func TestMistakes(t *testing.T) {
	for _, tt := range []struct{ lines, want string }{
		{`name: a`, `f:2:6: route "a" has no key`},
		{`key: host`, `f:2:6: the route has no name`},
		{`name: a, kye: host`, `f:2:15: unknown field "kye"; the nearest one is key`},
		{`name: a, key: host, chars: ""`, "want a value"},
		{`name: a, without-key: any, chars: x`, "chars are the characters"},
		{`name: a, key: host, match: {hots: [x]}`, `unknown field "hots"; the nearest one is hosts`},
		{`name: a, key: header`, `bad key source "header": the forms are`},
		{`name: a, key: path:id, match: {path: "/o/{order}"}`, `has no wildcard {id}`},
		{`name: a, key: host, match: {path: "o"}`, `begins with a slash`},
		{`name: a, key: host, match: {path: "/o/{a}/{a}"}`, `duplicate wildcard`},
		{`name: a, key: host, match: {hosts: ["shop.example:80"]}`, `without a port`},
		{`name: a, key: host, match: {hosts: ["*"]}`, `not a host`},
		{`name: a, key: host, match: {methods: [post]}`, `not a method`},
		{`name: a, key: host, mode: once`, `mode is "once", want auto, serialize, batch, route, share`},
		{`name: a, key: host, timeout: 10`, `timeout is "10", want a duration from 1ms to 1h0m0s`},
		{`name: a, key: host, timeout: 2h`, `timeout is "2h"`},
		{`name: a, key: host, timeout: 0s`, `timeout is "0s"`},
		{`name: a, key: host, hold: -1s`, `hold is "-1s"`},
		{`name: a, key: host, queue: 0`, `queue is "0", want an integer from 1 to 1000000`},
		{`name: a, key: host, body: {max: 10MB}`, `max is "10MB"`},
		{`name: a, key: host, body: {max: 9999999999GiB}`, `want a size`},
		{`name: a, key: host, body: {buffer: no}`, `want true or false`},
		{`name: a, key: host, upgrade: [h2c]`, `h2c`},
		{`name: a, key: host, upgrade: [none, websocket]`, `none and others`},
		{`name: a, key: host, rate: {per-key: 5}`, `want such as 5/s`},
		{`name: a, key: host, rate: {per-key: 0/s}`, `want such as 5/s`},
		{`name: a, key: host, rate: {per-key: 9000000/s}`, `want such as 5/s`},
		{`name: a, key: host, rate: {burst: 5}`, `burst is of per-key`},
		{`name: a, key: host, without-key: maybe`, `none of reject, any and http://host:port`},
		{`name: a, key: host, without-key: "http://h/path:1"`, `none of reject`},
		{`name: a, key: host, prefix: "x", tenant: host`, `not both`},
		{`name: a, key: host, prefix: "a\nb"`, `without control characters`},
		{"name: a, key: host, match: {path: /a}}\n  - {name: a, key: host, match: {path: /b}", `f:3:6: a second route has the name "a"; the first is in line 2`},
		{"name: a, key: host}\n  - {name: b, key: host, match: {path: /b}", `f:3:6: route "b" can never be taken, since "a" in line 2 takes all of its requests`},
		{"name: a, key: host, match: {methods: [GET, POST], hosts: [\"*.x\"]}}\n  - {name: b, key: host, match: {methods: [HEAD], hosts: [a.x]}", `can never be taken`},
		{"name: a, kye: 1, key: host, mode: x", "f:2:15: unknown field \"kye\"; the nearest one is key\nf:2:40: mode"},
	} {
		_, err := routes.Parse("f", []byte(text(tt.lines)))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.lines, err, tt.want)
		}
	}
	for text, want := range map[string]string{
		"":                               "f: no routes",
		"routes: []":                     "f: no routes",
		"routes:\n":                      "want fields",
		"rotes: []":                      "f:1:1: unknown field",
		"routes: 7\n":                    "want fields",
		"- name: a\n":                    "f:1:1: want fields",
		"routes:\n - name: a\n  key: b":  "f:",
		strings.Repeat("# x\n", 300_000): "at most",
	} {
		if _, err := routes.Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
	if _, err := routes.Load(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Of tables that follow each other no request gets another key.
func TestLineage(t *testing.T) {
	a, b, c := `name: a, key: query:k, match: {path: "/a/{x}"}`, `name: b, key: host, match: {path: /b}`, `name: c, key: host`
	for _, tt := range []struct {
		name  string
		steps [][]string // the last one counts
		ok    bool
	}{
		{"the same", [][]string{{a, b}, {a, b}}, true},
		{"added at the end", [][]string{{a}, {a, b}, {a, b, c}}, true},
		{"taken from the end", [][]string{{a, b, c}, {a}}, true},
		{"taken from the end and put back", [][]string{{a, b, c}, {a}, {a, b, c}}, true},
		{"another one in the place of one taken away", [][]string{{a, b}, {a}, {a, c}}, false},
		{"added in front", [][]string{{b}, {a, b}}, false},
		{"taken from the front", [][]string{{a, b}, {b}}, false},
		{"another order", [][]string{{a, b}, {b, a}}, false},
		{"name, limits and the wildcard's name", [][]string{{a, c}, {`name: x, key: query:k, timeout: 1s, mode: serialize, match: {path: "/a/{y}"}`, c}}, true},
		{"another key", [][]string{{a}, {`name: a, key: query:j, match: {path: "/a/{x}"}`}}, false},
		{"another path", [][]string{{a}, {`name: a, key: query:k, match: {path: "/a/{x}/"}`}}, false},
		{"another method", [][]string{{a}, {`name: a, key: query:k, match: {path: "/a/{x}", methods: [GET]}`}}, false},
		{"another host", [][]string{{a}, {`name: a, key: query:k, match: {path: "/a/{x}", hosts: [h]}`}}, false},
		{"a prefix", [][]string{{a}, {`name: a, key: query:k, prefix: p, match: {path: "/a/{x}"}`}}, false},
		{"a tenant", [][]string{{a}, {`name: a, key: query:k, tenant: host, match: {path: "/a/{x}"}`}}, false},
		{"without a key elsewhere", [][]string{{a}, {`name: a, key: query:k, without-key: any, match: {path: "/a/{x}"}`}}, false},
		{"keys are no longer held", [][]string{{a}, {`name: a, key: query:k, mode: route, match: {path: "/a/{x}"}`}}, false},
		{"another server for what has no key", [][]string{{`name: a, without-key: "http://h:1"`}, {`name: a, without-key: "http://h:2"`}}, true},
	} {
		var l routes.Lineage
		var err error
		for _, step := range tt.steps {
			err = l.Take(table(t, step...))
		}
		if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "stop all routers") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestTableOfFlags(t *testing.T) {
	all := routes.ForKeys(kit.KeySources(t, "header:X-Key", "host"), routes.WithoutKey{})
	if r, err := all.Match("h", "GET", "/a//../b"); err != nil || r.Policy != (policy.Policy{}) || !r.WithoutKey.Preflights() {
		t.Errorf("%+v, %v", r, err)
	}
	if got := all.KeySource(); got != "header:X-Key host" {
		t.Errorf("key source %q", got)
	}
	anyone, err := routes.ParseWithoutKey("any")
	if err != nil {
		t.Fatal(err)
	}
	if got := routes.ForKeys(kit.KeySources(t, "host"), anyone).KeySource(); got != "host without-key:any" {
		t.Errorf("key source %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(text(`name: a, key: [host, "json:/a"], match: {path: "/{x}/", hosts: ["*.y"]}, rate: {per-key: 1/s}`, `name: b, without-key: any`), "/a%2Fb")
	f.Fuzz(func(t *testing.T, text, path string) {
		all, err := routes.Parse("f", []byte(text))
		if err != nil {
			return
		}
		r, err := all.Match("h", "GET", path)
		if (r == nil) != (err != nil) {
			t.Fatalf("%v, %v", r, err)
		}
		var l routes.Lineage
		first, again := l.Take(all), l.Take(all)
		if first != nil || again != nil || len(all.KeySource()) > 96 {
			t.Fatalf("%v, %v, %q", first, again, all.KeySource())
		}
	})
}
