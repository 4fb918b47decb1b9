package conformance

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tell is an app that says what it got, and has a file for those who want a part
// of it.
func tell(t *testing.T) *httptest.Server {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/file":
			http.ServeContent(w, r, "file.txt", fileTime, strings.NewReader("0123456789"))
			return
		case "/early":
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
		case "/trailer":
			w.Header().Set("Trailer", "X-Sum")
			defer w.Header().Set("X-Sum", "42")
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, "%s %s %s %d %x", r.Method, r.RequestURI, r.Host, len(body), sha256.Sum256(body))
	}))
	t.Cleanup(app.Close)
	return app
}

// TestCurl has curl send requests in its many ways, over HTTP/1.1 and HTTP/2,
// through router and sidecar.
func TestCurl(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is missing: install it, on Debian: apt-get install curl")
	}
	app := tell(t)
	cert, key, ca := certificate(t)
	plain, secure := newCluster(t, app.URL), newCluster(t, app.URL, "--tls-cert", cert, "--tls-key", key)
	big := bytes.Repeat([]byte("Keyway."), 1<<20)
	bigFile := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(bigFile, big, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := func(body []byte) string { return fmt.Sprintf("%d %x", len(body), sha256.Sum256(body)) }
	small := []byte("a=1&b=2")
	ways := []struct {
		name string
		base string
		args []string
		h2   bool
	}{
		{"http1.0", "http://" + plain.router, []string{"--http1.0"}, false},
		{"http1.1", "http://" + plain.router, []string{"--http1.1"}, false},
		{"h2c", "http://" + plain.router, []string{"--http2-prior-knowledge"}, true},
		{"upgrade to h2c is declined", "http://" + plain.router, []string{"--http2"}, false},
		{"https1.1", "https://" + secure.router, []string{"--http1.1", "--cacert", ca}, false},
		{"https2", "https://" + secure.router, []string{"--http2", "--cacert", ca}, true},
	}
	tests := []struct {
		name string
		path string
		args []string
		want string // in what curl prints; HOST is the router's address, and "" a refusal of any kind
	}{
		{"get", "/orders/42?x=%20y", nil, "GET /orders/42?x=%20y HOST " + sum(nil)},
		{"head", "/orders/42", []string{"--head"}, " 200"},
		{"post", "/", []string{"--data", string(small)}, "POST / HOST " + sum(small)},
		{"put a file", "/file.bin", []string{"--upload-file", bigFile}, "PUT /file.bin HOST " + sum(big)},
		{"post a file with Expect", "/", []string{"-H", "Expect: 100-continue", "--data-binary", "@" + bigFile}, "POST / HOST " + sum(big)},
		{"post of unknown length", "/", []string{"-H", "Transfer-Encoding: chunked", "--data-binary", "@" + bigFile}, "POST / HOST " + sum(big)},
		{"delete", "/a%2Fb", []string{"-X", "DELETE"}, "DELETE /a%2Fb HOST " + sum(nil)},
		{"options", "/", []string{"-X", "OPTIONS"}, "OPTIONS / HOST " + sum(nil)},
		{"range", "/file", []string{"--range", "2-4"}, "234"},
		{"not modified", "/file", []string{"--time-cond", fileTime.Format(http.TimeFormat), "--write-out", "%{http_code}"}, "304"},
		{"early hints", "/early", nil, "GET /early HOST " + sum(nil)},
		{"trailer", "/trailer", nil, "GET /trailer HOST " + sum(nil)},
		{"two on one connection", "/1", []string{"--write-out", " %{num_connects};"}, "GET /1 HOST " + sum(nil) + " 1;"},
		{"a long header", "/", []string{"-H", "X-Long: " + strings.Repeat("x", 30_000)}, "GET / HOST " + sum(nil)},
		{"a header that is too long", "/", []string{"-H", "X-Long: " + strings.Repeat("x", 100_000), "--write-out", "%{http_code}", "-o", "/dev/null"}, "431"},
	}
	for _, way := range ways {
		for _, tt := range tests {
			t.Run(way.name+"/"+tt.name, func(t *testing.T) {
				switch {
				case way.name == "http1.0" && tt.name == "post of unknown length": // it has no chunks
					tt.want = ""
				case way.h2 && tt.name == "a header that is too long": // the connection ends
					tt.want = ""
				}
				args := append([]string{"--silent", "--show-error", "--max-time", "60"}, way.args...)
				args = append(append(args, tt.args...), way.base+tt.path)
				out, err := program(t, settled, curl, args...)
				host := strings.SplitAfter(way.base, "//")[1]
				want := strings.ReplaceAll(tt.want, "HOST", host)
				if want == "" {
					if strings.Contains(out, " / "+host) || strings.HasSuffix(out, "200") {
						t.Errorf("%q, want it refused", out)
					}
					return
				}
				if err != nil || !strings.Contains(out, want) {
					t.Errorf("%v %q, want %q", err, out, want)
				}
			})
		}
	}
}
