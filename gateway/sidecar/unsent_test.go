package sidecar_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// lateApp is an app that listens when it is told to.
type lateApp struct {
	addr string
	runs atomic.Int64
}

func (a *lateApp) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.runs.Add(1)
	switch {
	case r.Header.Get("Upgrade") != "":
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err == nil {
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			conn.Close()
		}
	case r.URL.Path == "/batch":
		var items []json.RawMessage
		_ = json.Unmarshal(body, &items)
		io.WriteString(rw, "[")
		for i := range items {
			fmt.Fprint(rw, ","[:min(i, 1)], `{"status":200,"body":"ran"}`)
		}
		io.WriteString(rw, "]")
	default:
		fmt.Fprintf(rw, "ran %d", len(body))
	}
}

func (a *lateApp) listen(t *testing.T) {
	l, err := net.Listen("tcp", a.addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: a}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
}

// A request for which the app cannot be reached has not started: it waits at the
// router, whatever its form, and runs once when the app is there.
func TestTrapRequestsWaitForTheApp(t *testing.T) {
	small := `{"n":1}`
	for name, tt := range map[string]struct {
		request string
		batch   string
		want    string
	}{
		"over the link":           {request: "GET / HTTP/1.1\r\nHost: x\r\nX-Key: k\r\n\r\n", want: "ran 0"},
		"small body":              {request: "POST / HTTP/1.1\r\nHost: x\r\nX-Key: k\r\nContent-Length: 5\r\n\r\nhello", want: "ran 5"},
		"with net/http":           {request: "POST / HTTP/1.1\r\nHost: x\r\nX-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", want: "ran 5"},
		"a connection of its own": {request: "GET / HTTP/1.1\r\nHost: x\r\nX-Key: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", want: "101 Switching"},
		"batch":                   {request: fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nX-Key: k\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(small), small), batch: "/batch", want: "ran"},
	} {
		t.Run(name, func(t *testing.T) {
			app := &lateApp{addr: kit.FreeAddr(t)}
			s, _ := site.InFrontOf(t, "http://"+app.addr, func(cfg *worker.Config) { cfg.Batch = tt.batch })
			conn := kit.Dial(t, s.URL)
			if _, err := io.WriteString(conn, tt.request); err != nil {
				t.Fatal(err)
			}
			kit.Eventually(t, "the router holds the request", func() bool { return metrictest.Gather(t, s.Router)["keyway_router_held_requests"] == 1 })
			app.listen(t)
			in := bufio.NewReader(conn)
			status, _ := in.ReadString('\n')
			answer, _ := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(status), in)), nil)
			if answer != nil && answer.StatusCode != http.StatusSwitchingProtocols {
				body, _ := io.ReadAll(answer.Body)
				status += string(body)
			}
			if !strings.Contains(status, tt.want) || app.runs.Load() != 1 {
				t.Errorf("%q, want %q; it ran %d times", status, tt.want, app.runs.Load())
			}
		})
	}
}

// tryingWriter looks whether a key is free when its answer begins.
type tryingWriter struct {
	*httptest.ResponseRecorder
	try func() error
	err error
}

func (w *tryingWriter) WriteHeader(status int) {
	w.err = w.try()
	w.ResponseRecorder.WriteHeader(status)
}

// The key of a request that has not reached the app is free when the refusal goes
// out: it may come back at once.
func TestUnsentRequestHoldsNoKey(t *testing.T) {
	w := site.New(t, 16).StartReady()
	h := kit.Must(sidecar.Over(w.Worker, func(context.Context) (net.Conn, error) { return nil, errors.New("refused") }))
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	r.Header.Set(gateway.HeaderKey, "k")
	rw := &tryingWriter{ResponseRecorder: httptest.NewRecorder(), try: func() error {
		return w.TryDo(t.Context(), "k", func(gateway.Execution) error { return nil })
	}}
	h.ServeHTTP(rw, r)
	if rw.err != nil || rw.Code != http.StatusServiceUnavailable || rw.Header().Get("Keyway-Refused") != "unavailable" {
		t.Errorf("%d %v; another execution of the key: %v", rw.Code, rw.Header(), rw.err)
	}
}

// A router that wants to know the times of its requests also learns that one has not reached the app.
func TestTrapUnsentRequestIsRefusedToo(t *testing.T) {
	s := site.New(t, 16)
	w := s.StartReady()
	h := kit.Must(sidecar.Over(w.Worker, func(context.Context) (net.Conn, error) { return nil, errors.New("refused") }))
	client := &link.Client{Addr: w.Listen(t, h), Config: link.Config{Cluster: "keyway", Digest: s.Settings.Digest()}}
	t.Cleanup(func() { client.Close() })
	for _, p := range []policy.Policy{{}, {Timed: true}} {
		_, err := client.Do(t.Context(), &link.Request{Method: "GET", Target: "/", Host: "x", Key: "k", Policy: p.Append(nil)})
		if refused, ok := errors.AsType[*link.RefusedError](err); !ok || refused.Reason != link.Unavailable {
			t.Errorf("%+v: %v, want a refusal", p, err)
		}
	}
}
