package sidecar_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

func TestSidecarOverUnixSocket(t *testing.T) {
	w := site.New(t, 16).StartReady()
	path := t.TempDir() + "/app.sock"
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	app := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		rw.Header().Set("Trailer", "X-Sum")
		fmt.Fprintf(rw, "%s %s %s %s %s", r.Method, r.Host, r.URL, r.Header.Get("X-Forwarded-For"), body)
		rw.Header().Set("X-Sum", "1")
	})}
	go app.Serve(l)
	defer app.Close()
	h, err := sidecar.New(w.Worker, kit.Must(url.Parse("unix://"+path)))
	if err != nil {
		t.Fatal(err)
	}
	s := site.Serve(t, h)
	r := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+"/orders/1?x=a%20b", strings.NewReader("body")))
	r.Host = "shop.example"
	r.Header.Set(gateway.HeaderKey, "k")
	r.Header.Set("X-Forwarded-For", "192.0.2.1")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if want := "PUT shop.example /orders/1?x=a%20b 192.0.2.1 body"; string(body) != want || res.Trailer.Get("X-Sum") != "1" {
		t.Errorf("the app saw %q, want %q; trailer %v", body, want, res.Trailer)
	}
}

// The app gets a query as it came, whatever carries it there.
func TestSidecarKeepsTheQuery(t *testing.T) {
	s, _ := site.InFrontOf(t, site.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, r.URL.RawQuery) })).URL)
	const query = "b=%zz&a=1;c=2&a"
	for _, size := range []int{0, 100_000} {
		req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL+"/?"+query, strings.NewReader(strings.Repeat("x", size))))
		req.Header.Set("X-Key", "k")
		if res, got := kit.Do(t, s.HTTP, req); res.StatusCode != 200 || got != query {
			t.Errorf("%d bytes of body: %d, %q, want %q", size, res.StatusCode, got, query)
		}
	}
}

func TestSidecarWithoutApp(t *testing.T) {
	w := site.New(t, 16).StartReady()
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	addr := l.Addr().String()
	l.Close()
	h, err := sidecar.New(w.Worker, kit.Must(url.Parse("http://"+addr)))
	if err != nil {
		t.Fatal(err)
	}
	res, body := kit.Fetch(t, site.Serve(t, h).URL, gateway.HeaderKey, "k")
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Keyway-Refused") != "unavailable" || res.Header.Get("Retry-After") == "" || strings.Contains(body, addr) {
		t.Errorf("status %d, %v, %q; want a refusal, and nothing of the inside", res.StatusCode, res.Header, body)
	}
	if _, err := sidecar.New(w.Worker, kit.Must(url.Parse("ftp://x"))); err == nil {
		t.Error("an ftp URL is taken")
	}
}

// Protocol upgrades pass the worker, with the key held until they end.
func TestSidecarUpgrade(t *testing.T) {
	w := site.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.Upgrades = []string{"echo"} })
	app := site.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := buf.ReadString('\n')
		fmt.Fprint(conn, "echo "+line)
	}))
	h, err := sidecar.New(w.Worker, kit.Must(url.Parse(app.URL)))
	if err != nil {
		t.Fatal(err)
	}
	conn := kit.Must(net.Dial("tcp", strings.TrimPrefix(site.Serve(t, h).URL, "http://")))
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n%s: k\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", gateway.HeaderKey)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", res, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, _ := in.ReadString('\n'); line != "echo hello\n" {
		t.Errorf("got %q", line)
	}
}
