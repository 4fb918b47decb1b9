package client_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// clientWays returns clients of an app's worker: over the link, over HTTP/1.1, and in
// the worker's process.
func clientWays(t *testing.T, app http.HandlerFunc) map[string]*client.Client {
	ways := map[string]*client.Client{}
	for _, way := range []string{"link", "HTTP", "local"} {
		ways[way] = site.NewClient(t, clientWay(t, way, app))
	}
	return ways
}

// eachClientWay runs a test with each client of clientWays.
func eachClientWay(t *testing.T, app http.HandlerFunc, test func(t *testing.T, c *client.Client)) {
	kit.NoLeaks(t)
	for way, c := range clientWays(t, app) {
		t.Run(way, func(t *testing.T) { test(t, c) })
	}
}

// clientWay starts an app's worker, and returns what a client needs to reach it.
func clientWay(t testing.TB, way string, app http.HandlerFunc) (cfg client.Config) {
	t.Helper()
	c := site.New(t, 16)
	w := c.StartReady(func(cfg *worker.Config) { cfg.Direct = true }) // for HTTP as to a worker that takes no link
	h := w.Handler(app)
	addr := w.Listen(t, h)
	kit.Eventually(t, "it takes the link", func() bool { return w.Member.Self().Link })
	cfg.Members = w.Member
	switch way {
	case "HTTP":
		cfg.Members = hub.Of(site.Member("w1", addr))
	case "local":
		cfg.Local = w.Local(h)
	}
	return cfg
}

// keyed makes a request for the key k.
func keyed(t testing.TB, method, target string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(gateway.HeaderKey, "k%20%2f")
	return r
}

// describeRequest answers with what a handler sees of its request.
func describeRequest(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	out := &bytes.Buffer{}
	fmt.Fprintf(out, "%s %s %s %s, length %d, %d bytes of %.1q, %v\n", r.Method, r.RequestURI, r.URL, r.Host, r.ContentLength, len(body), body, err)
	for _, h := range []http.Header{r.Header, r.Trailer} {
		for _, name := range slices.Sorted(maps.Keys(h)) {
			if name != gateway.HeaderToken && name != gateway.HeaderEpoch {
				fmt.Fprintf(out, "%s: %q\n", name, h[name])
			}
		}
	}
	w.Write(out.Bytes())
}

// What an app gets is the same on every way, and none of what only Keyway may say
// or what concerns one connection.
func TestClientRequests(t *testing.T) {
	unsized := func(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) }
	own := []string{`Keyway-Key: ["k%20%2F"]`, `Keyway-Partition: ["5"]`, `Baggage: ["keyway-held=fa45f10614c6a4c5"]`, ""}
	ways := clientWays(t, describeRequest)
	for _, tt := range []struct {
		name   string
		method string
		target string
		body   io.Reader
		change func(r *http.Request)
		want   []string // lines
	}{
		{"plain", "GET", "http://shop.example/a%2Fb?x=1&y", nil, nil, []string{"GET /a%2Fb?x=1&y /a%2Fb?x=1&y shop.example, length 0, 0 bytes"}},
		{"without a host", "GET", "/", nil, nil, []string{"GET / / keyway, length 0"}},
		{"without a path", "GET", "http://h", nil, nil, []string{"GET / / h, length 0"}},
		{"small body", "POST", "/", strings.NewReader("body"), nil, []string{"POST / / keyway, length 4, 4 bytes of \"b\"", "Content-Length: [\"4\"]"}},
		{"empty body", "POST", "/", http.NoBody, nil, []string{"POST / / keyway, length 0, 0 bytes", "Content-Length: [\"0\"]"}},
		{"large body", "PUT", "/", strings.NewReader(strings.Repeat("b", 300<<10)), nil, []string{"length 307200, 307200 bytes of \"b\"", "Content-Length: [\"307200\"]"}},
		{"body of unknown length", "POST", "/", unsized("body"), nil, []string{"length 4, 4 bytes of \"b\"", "Content-Length: [\"4\"]"}},
		{"large body of unknown length", "POST", "/", unsized(strings.Repeat("b", 300<<10)), nil, []string{"length 307200, 307200 bytes of \"b\"", "Content-Length: [\"307200\"]"}},
		{"trailers", "POST", "/", unsized("body"), func(r *http.Request) {
			r.Trailer = http.Header{"X-Sum": {"7"}}
		}, []string{"length 4, 4 bytes", "Content-Length: [\"4\"]"}},
		{"fields", "GET", "/", nil, func(r *http.Request) {
			r.Header = http.Header{
				"Keyway-Key": {"k%20%2f"}, "Keyway-Token": {"1"}, "Keyway_Token": {"1"}, "keyway-epoch": {"99"}, "Keyway-Refused": {"busy"},
				"Connection": {"X-Hop, close"}, "X-Hop": {"1"}, "Transfer-Encoding": {"chunked"}, "Upgrade": {"h2c"}, "Expect": {"100-continue"},
				"Proxy-Authorization": {"me"}, "Te": {"gzip, trailers"}, "X-Two": {"1", " 2"}, "X-Forwarded-For": {"192.0.2.1"}, "User-Agent": {"test"},
			}
		}, []string{"Te: [\"trailers\"]", "X-Two: [\"1\" \"2\"]", "GET / / keyway, length 0", "X-Forwarded-For: [\"192.0.2.1\"]", "User-Agent: [\"test\"]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			texts := map[string]string{}
			for way, c := range ways {
				body := tt.body
				if s, ok := body.(io.Seeker); ok {
					s.Seek(0, io.SeekStart)
				} else if body != nil && body != http.NoBody {
					b, _ := io.ReadAll(body)
					tt.body = unsized(string(b))
					body = unsized(string(b))
				}
				r := keyed(t, tt.method, tt.target, body)
				if tt.change != nil {
					tt.change(r)
				}
				before := r.Header.Clone()
				res, text := kit.Do(t, &http.Client{Transport: c}, r)
				if res.StatusCode != 200 || res.Request != r {
					t.Errorf("%s: %d %v", way, res.StatusCode, res.Request)
				}
				if !maps.EqualFunc(before, r.Header, slices.Equal) {
					t.Errorf("%s: the caller's header became %v", way, r.Header)
				}
				texts[way] = text
			}
			lines := strings.Split(texts["link"], "\n")
			for _, want := range append(tt.want, own...) {
				if i := slices.IndexFunc(lines, func(line string) bool { return want != "" && strings.Contains(line, want) || line == want }); i >= 0 {
					lines = slices.Delete(lines, i, i+1)
					continue
				}
				t.Errorf("no %q", want)
			}
			if len(lines) > 0 || texts["HTTP"] != texts["link"] || texts["local"] != texts["link"] {
				t.Errorf("%q beside what was expected; over the link\n%s\nover HTTP/1.1\n%s\nin the process\n%s", lines, texts["link"], texts["HTTP"], texts["local"])
			}
		})
	}
}

// What a caller gets is the same on every way.
func TestClientAnswers(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 64<<10)
	var app atomic.Pointer[http.HandlerFunc]
	ways := clientWays(t, func(w http.ResponseWriter, r *http.Request) { (*app.Load())(w, r) })
	for _, tt := range []struct {
		name, method string
		app          http.HandlerFunc
		want         string
	}{
		{"small", "GET", site.Answer("text"), `200 OK, length 4, "text", map[Content-Length:[4] Content-Type:[text/plain; charset=utf-8]], map[]`},
		{"empty", "GET", site.Answer(""), `200 OK, length 0, "", map[Content-Length:[0]], map[]`},
		{"head", "HEAD", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "7") }, `200 OK, length 7, "", map[Content-Length:[7]], map[]`},
		{"head of unknown length", "HEAD", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, `200 OK, length -1, "", map[], map[]`},
		{"no content", "GET", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, `204 No Content, length 0, "", map[], map[]`},
		{"not modified", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", "7")
			w.WriteHeader(304)
		}, `304 Not Modified, length 0, "", map[Etag:[7]], map[]`},
		{"an app's own 421", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Keyway-Refused", "not-owner")
			w.Header().Set("Keyway-Owner", "w2-life")
			w.Header().Set("Keyway-Epoch", "99")
			w.Header()["Content-Type"] = nil
			w.WriteHeader(421)
			io.WriteString(w, "mine")
		}, `421 Misdirected Request, length 4, "mine", map[Content-Length:[4]], map[]`},
		{"an app's own 503", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(503)
		}, `503 Service Unavailable, length 0, "", map[Content-Length:[0] Retry-After:[7]], map[]`},
		{"fields", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			w.Header()["X-Two"] = []string{"1", "2"}
			w.Header().Set("Keyway-Token", "1")
			w.Header().Set("Keyway_Token", "1")
		}, `200 OK, length 0, "", map[Content-Length:[0] X-Two:[1 2]], map[]`},
		{"streamed", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			for range 3 {
				io.WriteString(w, "piece ")
				w.(http.Flusher).Flush()
			}
		}, `200 OK, length -1, "piece piece piece ", map[], map[]`},
		{"trailers", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			w.Header().Set("Trailer", "X-Sum, Keyway-Token")
			io.WriteString(w, "text")
			w.Header().Set("X-Sum", "7")
			w.Header().Set("Keyway-Token", "7")
			w.Header().Set(http.TrailerPrefix+"X-More", "8")
		}, `200 OK, length -1, "text", map[], map[X-More:[8] X-Sum:[7]]`},
		{"trailers alone", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			w.(http.Flusher).Flush()
			w.Header().Set("X-Sum", "7")
		}, `200 OK, length -1, "", map[], map[X-Sum:[7]]`},
		{"large", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			io.WriteString(w, big)
		}, fmt.Sprintf(`200 OK, length -1, %q, map[], map[]`, big)},
		{"large, of known length", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			w.Header().Set("Content-Length", fmt.Sprint(len(big)))
			io.WriteString(w, big)
		}, fmt.Sprintf(`200 OK, length %d, %q, map[Content-Length:[%[1]d]], map[]`, len(big), big)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			app.Store(&tt.app)
			for way, c := range ways {
				res, err := c.RoundTrip(keyed(t, tt.method, "/", nil))
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				if err != nil {
					t.Error(err)
				}
				if err := res.Body.Close(); err != nil {
					t.Error(err)
				}
				for _, name := range []string{"Date", "X-Content-Type-Options"} {
					res.Header.Del(name)
				}
				if got := fmt.Sprintf("%s, length %d, %q, %v, %v", res.Status, res.ContentLength, body, res.Header, res.Trailer); got != tt.want {
					t.Errorf("%s: %.500s\nwant %.500s", way, got, tt.want)
				}
			}
		})
	}
}
