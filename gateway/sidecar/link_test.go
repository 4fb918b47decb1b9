package sidecar_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// What goes to the app on the short way, and what goes by net/http, looks the
// same to it and to the client.
func TestSidecarOverLink(t *testing.T) {
	app := site.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		for _, name := range []string{"Keyway-Token", "Keyway-Epoch", "Keyway-Partition", "X-Forwarded-For", "Forwarded"} {
			if len(r.Header[name]) != 1 || r.Header.Get(name) == "" {
				fmt.Fprintf(rw, "%s: %q ", name, r.Header[name])
			}
		}
		h := rw.Header()
		h.Set("Keyway-Refused", "not-owner")
		h.Add("X-Multi", "a")
		h.Add("X-Multi", "b")
		h.Set("X-Length", fmt.Sprint(r.ContentLength))
		switch r.URL.Path {
		case "/none":
			rw.WriteHeader(http.StatusNoContent)
			return
		case "/trailer":
			h.Set("Trailer", "X-Sum, Keyway-Sum")
			defer h.Set("X-Sum", "42")
			defer h.Set("Keyway-Sum", "1")
		case "/interim":
			rw.WriteHeader(http.StatusEarlyHints)
		case "/large":
			for range 64 {
				rw.Write(bytes.Repeat([]byte("y"), 16<<10))
			}
			return
		}
		fmt.Fprintf(rw, "%s %s %s %s %s %d %v", r.Method, r.Host, r.RequestURI, r.Header.Get("Keyway-Key"), r.Header.Get("Baggage"), len(body), err)
	}))
	for _, base := range []string{"", "/base"} { // with a path it is net/http's way
		s, _ := site.InFrontOf(t, app.URL+base)
		tests := []struct {
			method, target string
			body           int // -1 for one of unknown length
			want           string
		}{
			{"GET", "/", 0, "200 GET shop.example /"},
			{"GET", "/a%20b/?x=1&y=%2F", 0, "200 GET shop.example /a%20b/?x=1&y=%2F"},
			{"DELETE", "/", 0, "200 DELETE"},
			{"POST", "/", 0, "200 POST"},
			{"POST", "/", 10, "200 POST"},
			{"PUT", "/", 64 << 10, "200 PUT"},
			{"PUT", "/", 3 << 20, "200 PUT"},
			{"PUT", "/", -1, "200 PUT"},
			{"HEAD", "/", 0, "200"},
			{"GET", "/none", 0, "204"},
			{"GET", "/trailer", 0, "200 GET"},
			{"GET", "/interim", 0, "200 GET"},
		}
		for _, tt := range tests {
			if base != "" && tt.target != "/" {
				continue // the app's own path is another one then
			}
			t.Run(fmt.Sprint(base, tt.method, tt.target, tt.body), func(t *testing.T) {
				length := max(tt.body, 0)
				var body io.Reader = strings.NewReader(strings.Repeat("x", length))
				if tt.body < 0 {
					length = 1000
					body = io.MultiReader(strings.NewReader(strings.Repeat("x", length)))
				}
				req := kit.Must(http.NewRequestWithContext(t.Context(), tt.method, s.URL+tt.target, body))
				req.Host = "shop.example"
				req.Header.Set("X-Key", "a key")
				req.Header.Set("Baggage", "tenant=7")
				req.Header.Set("Keyway-Token", "forged")
				res, got := kit.Do(t, s.HTTP, req)
				want, _, _ := strings.Cut(tt.want, " shop")
				if got := fmt.Sprint(res.StatusCode, " ", got); !strings.HasPrefix(got, want) {
					t.Errorf("%q, want %q", got, tt.want)
				}
				if strings.Contains(tt.want, "GET") || strings.Contains(tt.want, "P") {
					tail := fmt.Sprintf("a%%20key tenant=7,keyway-held=%s %d <nil>", heldHash(got), length)
					if !strings.HasSuffix(got, tail) {
						t.Errorf("%q, want it to end with %q", got, tail)
					}
					if base == "" && !strings.Contains(got, " shop.example "+tt.target+" ") {
						t.Errorf("%q", got)
					}
				}
				if res.StatusCode == 200 && len(res.Header["X-Multi"]) != 2 {
					t.Errorf("header %v", res.Header)
				}
				if tt.target == "/trailer" && (res.Trailer.Get("X-Sum") != "42" || res.Trailer.Get("Keyway-Sum") != "") {
					t.Errorf("trailer %v", res.Trailer)
				}
			})
		}
	}
	s, _ := site.InFrontOf(t, app.URL)
	req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", s.URL+"/large", nil))
	req.Header.Set("X-Key", "k")
	if _, got := kit.Do(t, s.HTTP, req); len(got) != 1<<20 {
		t.Errorf("%d bytes, want 1 MiB", len(got))
	}
}

// heldHash returns the hash of the key in an app's answer.
func heldHash(answer string) string {
	_, rest, _ := strings.Cut(answer, "keyway-held=")
	hash, _, _ := strings.Cut(rest, " ")
	return hash
}

func TestSidecarOverLinkStreams(t *testing.T) {
	step := make(chan struct{})
	app := site.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprintf(rw, "line %d\n", i)
			http.NewResponseController(rw).Flush()
			<-step
		}
	}))
	s, _ := site.InFrontOf(t, app.URL)
	req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", s.URL, nil))
	req.Header.Set("X-Key", "k")
	res, err := s.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for i := range 3 {
		if line, err := lines.ReadString('\n'); line != fmt.Sprintf("line %d\n", i) || err != nil {
			t.Fatalf("line %d: %q, %v", i, line, err)
		}
		step <- struct{}{}
	}
}

// An answer of the app that breaks off must not look whole.
func TestSidecarOverLinkBrokenAnswer(t *testing.T) {
	app := site.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Write(make([]byte, 100<<10))
		http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	}))
	s, _ := site.InFrontOf(t, app.URL)
	for _, size := range []int{0, 100 << 10} { // by net/http with a large body
		req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, bytes.NewReader(make([]byte, size))))
		req.Header.Set("X-Key", "k")
		res, err := s.HTTP.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if _, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("a broken answer to a body of %d bytes looks whole", size)
		}
	}
}

// The app closes each connection after its answer: no request may notice.
func TestSidecarOverLinkAppClosesConnections(t *testing.T) {
	l := kit.Must(net.Listen("unix", t.TempDir()+"/app.sock"))
	app := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Connection", "close")
		fmt.Fprint(rw, "ok")
	})}
	go app.Serve(l)
	defer app.Close()
	s, _ := site.InFrontOf(t, "unix://"+l.Addr().String())
	for i := range 20 {
		if res, body := site.Get(t, s, "k"); res.StatusCode != 200 || body != "ok" {
			t.Fatalf("request %d: %d %q", i, res.StatusCode, body)
		}
	}
}

// What only Keyway may say, and what concerns one connection, does not reach
// the app even if the other end of the link lets it pass.
func TestSidecarOverLinkDropsForgedFields(t *testing.T) {
	app := site.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, r.Header["Keyway-Forged"], r.Header["Keyway-Key"], r.Header["Keep-Alive"], r.Header["Upgrade"], r.Header["X-Kept"])
	}))
	w := site.New(t, 16).StartReady()
	addr := w.Listen(t, kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(app.URL)))))
	client := &link.Client{Addr: addr, Config: link.Config{Cluster: "keyway", Digest: ring.Settings{Ring: w.Ring, TTL: kit.TTL}.Digest()}}
	defer client.Close()
	r := &link.Request{Method: "GET", Target: "/", Host: "x", Key: "k"}
	for _, f := range [][2]string{{"keyway-forged", "1"}, {"Keyway-Key", "other"}, {"keep-alive", "5"}, {"Upgrade", "echo"}, {"X-Kept", "1"}} {
		r.Fields = link.AppendField(r.Fields, f[0], f[1])
	}
	answer, err := client.Do(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got, _ := io.ReadAll(answer.Body); string(got) != "[] [k] [] [] [1]" {
		t.Errorf("the app saw %s", got)
	}
}
