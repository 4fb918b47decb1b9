package router_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// grpcApp answers as servers of gRPC do: over HTTP/2 without TLS, with the status in
// trailers. A message is a line.
type grpcApp struct {
	begun, left chan string // keys of calls that wait for their clients to leave
}

func (a *grpcApp) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(rw)
	head := func() {
		rw.Header().Set("Content-Type", "application/grpc")
		rw.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		rw.WriteHeader(200)
		rc.Flush()
	}
	status := func(code string) {
		rw.Header().Set("Grpc-Status", code)
		rw.Header().Set("Grpc-Message", r.Header.Get("Grpc-Timeout")+" "+r.Header.Get("Te"))
	}
	switch r.URL.Path {
	case "/unary", "/client":
		b, _ := io.ReadAll(r.Body)
		head()
		rw.Write(b)
		status("0")
	case "/server":
		io.Copy(io.Discard, r.Body)
		head()
		for i := range 3 {
			fmt.Fprintln(rw, i)
			rc.Flush()
		}
		status("0")
	case "/bidi":
		head()
		line := make([]byte, 2)
		for {
			if _, err := io.ReadFull(r.Body, line); err != nil {
				break
			}
			rw.Write(line)
			rc.Flush()
		}
		status("0")
	case "/only":
		rw.Header().Set("Content-Type", "application/grpc")
		rw.Header().Set("Grpc-Status", "5")
		rw.WriteHeader(200)
	case "/early":
		head()
		fmt.Fprintln(rw, "e")
		status("8")
	case "/messages", "/half":
		head()
		io.WriteString(rw, "\x00\x00\x00\x00\x02hi")
		if r.URL.Path == "/half" {
			io.WriteString(rw, "\x00\x00\x00\x00\x02h")
		}
		rc.Flush()
		<-r.Context().Done()
	case "/wait":
		a.begun <- r.Header.Get("Keyway-Key")
		head()
		<-r.Context().Done()
		a.left <- r.Header.Get("Keyway-Key")
	}
}

func startGRPC(t *testing.T, change ...func(*worker.Config)) (*grpcApp, *site.Front, *http.Client) {
	app := &grpcApp{make(chan string, 10), make(chan string, 10)}
	server := httptest.NewUnstartedServer(app)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	s, _ := site.InFrontOf(t, "h2c://"+server.Listener.Addr().String(), func(cfg *worker.Config) {
		for _, f := range change {
			f(cfg)
		}
	})
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(h2.CloseIdleConnections)
	return app, s, &http.Client{Transport: h2}
}

func grpcCall(ctx context.Context, s *site.Front, path string, body io.Reader) *http.Request {
	req := kit.Must(http.NewRequestWithContext(ctx, "POST", s.URL+path, body))
	req.Header = http.Header{"X-Key": {"k"}, "Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Grpc-Timeout": {"5S"}}
	return req
}

// All kinds of calls of gRPC get through to an app that speaks HTTP/2, with their
// trailers.
func TestGRPCToTheApp(t *testing.T) {
	_, s, client := startGRPC(t)
	for _, tc := range []struct{ path, body, want, status string }{
		{"/unary", "hello\n", "hello\n", "0"},
		{"/client", "1\n2\n3\n", "1\n2\n3\n", "0"},
		{"/server", "x\n", "0\n1\n2\n", "0"},
		{"/bidi", "a\nb\n", "a\nb\n", "0"},
		{"/only", "x\n", "", "5"},
	} {
		res, err := client.Do(grpcCall(t.Context(), s, tc.path, io.NopCloser(strings.NewReader(tc.body))))
		if err != nil {
			t.Errorf("%s: %v", tc.path, err)
			continue
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		status := res.Trailer.Get("Grpc-Status") + res.Header.Get("Grpc-Status")
		if string(b) != tc.want || err != nil || status != tc.status || res.StatusCode != 200 || res.ProtoMajor != 2 {
			t.Errorf("%s: %d %q, %v, grpc-status %q", tc.path, res.StatusCode, b, err, status)
		}
		if m := res.Trailer.Get("Grpc-Message"); tc.status == "0" && m != "5S trailers" {
			t.Errorf("%s: the app got grpc-timeout and te %q", tc.path, m)
		}
	}
}

// Messages go both ways while a call goes on, and an app may answer before the call's
// own end.
func TestGRPCBothWays(t *testing.T) {
	_, s, client := startGRPC(t)
	r, w := io.Pipe()
	res, err := client.Do(grpcCall(t.Context(), s, "/bidi", r))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		io.WriteString(w, "m\n")
		b := make([]byte, 2)
		if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != "m\n" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	w.Close()
	if _, err := io.ReadAll(res.Body); err != nil || res.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("%v, %v", err, res.Trailer)
	}
	res.Body.Close()
	r, w = io.Pipe()
	defer w.Close()
	if res, err = client.Do(grpcCall(t.Context(), s, "/early", r)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(res.Body); err != nil || string(b) != "e\n" || res.Trailer.Get("Grpc-Status") != "8" {
		t.Errorf("%q, %v, %v", b, err, res.Trailer)
	}
	res.Body.Close()
}

// A call whose client leaves ends at the app, and holds its key until the app has had
// its time to end.
func TestTrapGRPCCancelHoldsTheKeyForTheGrace(t *testing.T) {
	app, s, client := startGRPC(t)
	ctx, cancel := context.WithCancel(t.Context())
	res, err := client.Do(grpcCall(ctx, s, "/wait", nil))
	if err != nil {
		t.Fatal(err)
	}
	<-app.begun
	left := time.Now()
	cancel()
	res.Body.Close()
	<-app.left
	if res, err = client.Do(grpcCall(t.Context(), s, "/unary", strings.NewReader("x\n"))); err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if d := time.Since(left); d < time.Second { // 0.15 of the TTL of 10 s
		t.Errorf("the next call ran %v after the client had left", d)
	}
}

// A call that takes too long after its answer has begun ends with a status of gRPC, unless that
// is in the midst of a message, which nobody may take for a whole one.
func TestGRPCTakesTooLong(t *testing.T) {
	_, s, client := startGRPC(t, func(cfg *worker.Config) { cfg.Timeout = time.Second })
	for path, whole := range map[string]bool{"/messages": true, "/half": false} {
		res, err := client.Do(grpcCall(t.Context(), s, path, nil))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if (err == nil) != whole || !strings.HasPrefix(string(body), "\x00\x00\x00\x00\x02hi") {
			t.Errorf("%s: %q, %v", path, body, err)
		}
		if status := res.Trailer.Get("Grpc-Status"); (status == "4") != whole {
			t.Errorf("%s: grpc-status %q, %v", path, status, res.Trailer)
		}
	}
}

// A client cannot have its body streamed to an app of HTTP/1.1, and its key held meanwhile, by the
// type that it gives the body.
func TestTrapNoBodyStreamsByItsTypeAlone(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { io.Copy(rw, r.Body) }))
	defer app.Close()
	s, _ := site.InFrontOf(t, app.URL)
	client := kit.Client(t, "HTTP/2")
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		if res, err := client.Do(grpcCall(ctx, s, "/", r)); err == nil {
			res.Body.Close()
		}
	}()
	io.WriteString(w, "x") // its head has been sent
	res, err := client.Do(grpcCall(ctx, s, "/", strings.NewReader("y")))
	if err != nil {
		t.Fatalf("the key is held for a client that sends nothing: %v", err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); string(b) != "y" || err != nil {
		t.Errorf("%d %q, %v", res.StatusCode, b, err)
	}
}
