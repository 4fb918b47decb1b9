package keysource_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// jsonRequest makes a request with a body of JSON.
func jsonRequest(body string) *http.Request {
	r := httptest.NewRequest("POST", "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

func TestKeyInJSON(t *testing.T) {
	deep := strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000)
	for _, tt := range []struct {
		name, pointer, body string
		key                 string
		err                 error
	}{
		{"string", "/order/id", `{"order": {"id": "o-7", "x": [1, {"id": 2}]}, "id": 3}`, "o-7", nil},
		{"escaped", "/id", `{"i\u0064": "\u0061\/b"}`, "a/b", nil},
		{"integer", "/id", `{"id": 7}`, "7", nil},
		{"negative", "/id", `{"id": -7}`, "-7", nil},
		{"zero", "/id", `{"id": 0}`, "0", nil},
		{"largest", "/id", `{"id": 9007199254740991}`, "9007199254740991", nil},
		{"integer that floats cannot tell from others", "/id", `{"id": 9007199254740992}`, "", keysource.ErrBadKey},
		{"integer that overflows", "/id", `{"id": 99999999999999999999}`, "", keysource.ErrBadKey},
		{"integer as float", "/id", `{"id": 1.0}`, "", keysource.ErrBadKey},
		{"integer with exponent", "/id", `{"id": 1e0}`, "", keysource.ErrBadKey},
		{"negative zero", "/id", `{"id": -0}`, "", keysource.ErrBadKey},
		{"leading zero", "/id", `{"id": 07}`, "", keysource.ErrBadKey},
		{"float", "/id", `{"id": 1.5}`, "", keysource.ErrBadKey},
		{"bool", "/id", `{"id": true}`, "", keysource.ErrBadKey},
		{"object", "/id", `{"id": {}}`, "", keysource.ErrBadKey},
		{"array", "/id", `{"id": ["a"]}`, "", keysource.ErrBadKey},
		{"null", "/id", `{"id": null}`, "", keysource.ErrNoKey},
		{"empty", "/id", `{"id": ""}`, "", keysource.ErrNoKey},
		{"half a pair", "/id", `{"id": "\ud800"}`, "", keysource.ErrBadKey},
		{"control", "/id", `{"id": "a\nb"}`, "", keysource.ErrBadKey},
		{"absent", "/id", `{"x": {"id": 1}}`, "", keysource.ErrNoKey},
		{"beside the pointer", "/a/b", `{"a": "b"}`, "", keysource.ErrNoKey},
		{"twice", "/id", `{"id": "a", "id": "a"}`, "", keysource.ErrBadKey},
		{"twice, the second escaped", "/id", `{"id": "a", "\u0069d": "b"}`, "", keysource.ErrBadKey},
		{"twice, in another case", "/id", `{"id": "a", "ID": "b"}`, "", keysource.ErrBadKey},
		{"in another case", "/id", `{"Id": "a"}`, "", keysource.ErrBadKey},
		{"parent twice", "/a/id", `{"a": {"id": "x"}, "a": {}}`, "", keysource.ErrBadKey},
		{"twice elsewhere", "/a/id", `{"a": {"id": "x"}, "b": 1, "b": 2}`, "x", nil},
		{"element", "/items/1/id", `{"items": [{"id": 1}, {"id": 2}, {"id": 3}]}`, "2", nil},
		{"element of the whole", "/0", `["a"]`, "a", nil},
		{"no element", "/2", `["a"]`, "", keysource.ErrNoKey},
		{"index with a zero", "/00", `["a"]`, "", keysource.ErrNoKey},
		{"index of an object", "/1", `{"1": "a"}`, "a", nil},
		{"empty name", "/", `{"": "a"}`, "a", nil},
		{"empty name twice", "/", `{"": "a", "": "b"}`, "", keysource.ErrBadKey},
		{"tilde and slash", "/~0~1", `{"~/": "a"}`, "a", nil},
		{"rest is not JSON", "/id", `{"id": "a"} x`, "", keysource.ErrBadKey},
		{"two documents", "/id", `{"id": "a"}{"id": "b"}`, "", keysource.ErrBadKey},
		{"cut off", "/id", `{"id": "a"`, "", keysource.ErrBadKey},
		{"not UTF-8", "/id", "{\"id\": \"a\", \"x\": \"\xff\"}", "", keysource.ErrBadKey},
		{"with a mark", "/id", "\ufeff{\"id\": \"a\"}", "", keysource.ErrBadKey},
		{"too deep", "/id", deep, "", keysource.ErrBadKey},
		{"scalar", "/id", `7`, "", keysource.ErrNoKey},
		{"no body", "/id", ``, "", keysource.ErrNoKey},
		{"64 KiB", "/id", `{"id": "a"}` + strings.Repeat(" ", keysource.MaxBody-11), "a", nil},
		{"over 64 KiB", "/id", `{"id": "a"}` + strings.Repeat(" ", keysource.MaxBody-10), "", keysource.ErrBadKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, length := range map[string]int64{"of known length": int64(len(tt.body)), "chunked": -1} {
				r := jsonRequest(tt.body)
				r.ContentLength = length
				key, err := kit.KeySources(t, "json:"+tt.pointer).Extract(r)
				if key != tt.key || !errors.Is(err, tt.err) || (err != nil) != (tt.err != nil) {
					t.Errorf("%s: %q, %v; want %q, %v", name, key, err, tt.key, tt.err)
				}
				if rest, err := io.ReadAll(r.Body); string(rest) != tt.body || err != nil {
					t.Errorf("%s: the body has %d bytes left, %v", name, len(rest), err)
				}
			}
		})
	}
}

// A body that says that it is of ASCII, and is not, may be read in two ways.
func TestKeyInABodyThatIsNotASCII(t *testing.T) {
	for body, want := range map[string]error{`{"id": "\u00e9"}`: nil, "{\"id\": \"\u00e9\"}": keysource.ErrBadKey} {
		r := jsonRequest(body)
		r.Header.Set("Content-Type", "application/json; charset=us-ascii")
		if key, err := kit.KeySources(t, "json:/id").Extract(r); !errors.Is(err, want) || (err != nil) != (want != nil) {
			t.Errorf("%s: %q, %v", body, key, err)
		}
	}
}

// What is not JSON by its head may be read as JSON by an app all the same.
func TestKeyInABodyThatIsNotJSON(t *testing.T) {
	for _, tt := range []struct {
		name, kind, encoding string
		want                 error
	}{
		{"plus json", "application/vnd.shop+json", "", nil},
		{"charset", "Application/JSON; charset=utf-8", "", nil},
		{"charset quoted", `application/json;charset="UTF-8"`, "", nil},
		{"charset of ASCII", "application/json; Charset=US-ASCII", "", nil},
		{"profile", `application/ld+json; profile="http://a/b, c"; version=1`, "", nil},
		{"utf-7", "application/json; charset=utf-7", "", keysource.ErrBadKey},
		{"utf-16", "application/json; CHARSET=UTF-16LE", "", keysource.ErrBadKey},
		{"latin-1", "application/json; charset=iso-8859-1", "", keysource.ErrBadKey},
		{"empty charset", "application/json; charset=", "", keysource.ErrBadKey},
		{"extended charset", "application/json; charset*=us-ascii''utf-7", "", keysource.ErrBadKey},
		{"continued charset", "application/json; charset*0=utf-7", "", keysource.ErrBadKey},
		{"charset within quotes", `application/json; x="; charset=utf-7; "`, "", keysource.ErrBadKey},
		{"charset that a semicolon divides", `application/json; charset="utf-8;x"`, "", keysource.ErrBadKey},
		{"escaped charset", `application/json; charset="utf-\7"`, "", keysource.ErrBadKey},
		{"two charsets", "application/json; charset=utf-8; charset=utf-7", "", keysource.ErrBadKey},
		{"two types", "application/json, text/plain", "", keysource.ErrBadKey},
		{"none", "", "", keysource.ErrBadKey},
		{"text", "text/plain", "", keysource.ErrBadKey},
		{"text json", "text/json", "", keysource.ErrBadKey},
		{"malformed", "application/json;;", "", keysource.ErrBadKey},
		{"encoded", "application/json", "gzip", keysource.ErrBadKey},
	} {
		r := jsonRequest(`{"id": "a"}`)
		r.Header.Set("X-Key", "a")
		if r.Header.Set("Content-Type", tt.kind); tt.kind == "" {
			r.Header.Del("Content-Type")
		}
		if tt.encoding != "" {
			r.Header.Set("Content-Encoding", tt.encoding)
		}
		key, err := kit.KeySources(t, "json:/id", "header:X-Key").Extract(r)
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || err == nil && key != "a" {
			t.Errorf("%s: %q, %v; want %v", tt.name, key, err, tt.want)
		}
	}
}

// A key in a body is what encoding/json finds there.
func FuzzKeyInJSON(f *testing.F) {
	for _, s := range []string{`{"a":{"b":"x"}}`, `{"a":[1,2]}`, `[{"b":7}]`, `{"a":{"b":1e3}}`, `{"a":{"b":"x"},"A":1}`, `"x"`, `{"a":null}`} {
		f.Add(s)
	}
	sources := map[string][]any{"json:/a/b": {"a", "b"}, "json:/a/0": {"a", 0}, "json:/0/b": {0, "b"}, "json:/a": {"a"}}
	f.Fuzz(func(t *testing.T, body string) {
		for spec, steps := range sources {
			key, err := kit.KeySources(t, spec).Extract(jsonRequest(body))
			if err != nil {
				if !errors.Is(err, keysource.ErrNoKey) && !errors.Is(err, keysource.ErrBadKey) {
					t.Fatalf("%s: %v", spec, err)
				}
				continue
			}
			d := json.NewDecoder(strings.NewReader(body))
			d.UseNumber()
			var have any
			if err := d.Decode(&have); err != nil {
				t.Fatalf("%s: key %q, encoding/json says %v", spec, key, err)
			}
			for _, step := range steps {
				switch v := have.(type) {
				case map[string]any:
					name, _ := step.(string)
					if have = v[name]; reflect.TypeOf(step).Kind() == reflect.Int {
						have = v["0"]
					}
				case []any:
					have = v[step.(int)]
				}
			}
			if n, ok := have.(json.Number); ok {
				have = n.String()
			}
			if have != key {
				t.Fatalf("%s of %s: key %q, encoding/json has %v", spec, body, key, have)
			}
		}
	})
}

func TestKeyInMetadata(t *testing.T) {
	for _, tt := range []struct {
		spec  string
		lines []string
		key   string
		err   error
	}{
		{"grpc:order-id", []string{"Order-Id: 7"}, "7", nil},
		{"grpc:order-id-bin", []string{"Order-Id-Bin: w7w="}, "ü", nil},
		{"grpc:order-id-bin", []string{"Order-Id-Bin: w7w"}, "ü", nil},
		{"grpc:order-id-bin", []string{"Order-Id-Bin: w7w,w7w="}, "ü", nil},
		{"grpc:order-id-bin", []string{"Order-Id-Bin: w7w,YQ"}, "", keysource.ErrBadKey},
		{"grpc:order-id-bin", []string{"Order-Id-Bin: %%%"}, "", keysource.ErrBadKey},
		{"grpc:order-id-bin", []string{"Order-Id-Bin: /w"}, "", keysource.ErrBadKey},
		{"grpc:order-id-bin", nil, "", keysource.ErrNoKey},
	} {
		key, err := kit.KeySources(t, tt.spec).Extract(request("/", tt.lines...))
		if key != tt.key || !errors.Is(err, tt.err) || (err != nil) != (tt.err != nil) {
			t.Errorf("%s of %q: %q, %v; want %q, %v", tt.spec, tt.lines, key, err, tt.key, tt.err)
		}
	}
}

func TestKeyIsTheClient(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.9:80":           "192.0.2.9",
		"[::ffff:192.0.2.9]:80":  "192.0.2.9",
		"[2001:DB8:0::7%eth0]:1": "2001:db8::7",
		"@":                      "@",
	} {
		r := request("/")
		r.RemoteAddr = addr
		if key, err := kit.KeySources(t, "client").Extract(r); key != want || err != nil {
			t.Errorf("%s: %q, %v", addr, key, err)
		}
	}
}
