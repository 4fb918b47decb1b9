package router_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// streamApp answers with a stream whose form its path names, and goes on with it
// until its context ends.
func streamApp(rw http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/events":
		rw.Header().Set("Content-Type", "Text/Event-Stream; charset=utf-8")
	case "/long":
		rw.Header().Set("Content-Type", "text/plain")
	case "/socket":
		conn, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x02hi")
		io.Copy(io.Discard, buf)
		return
	default:
		io.WriteString(rw, "served")
		return
	}
	io.WriteString(rw, "data: 1\n\n")
	http.NewResponseController(rw).Flush()
	<-r.Context().Done()
}

// begin opens a stream and reads the beginning of it.
func (e *entrance) begin(t *testing.T, path string) (end func()) {
	t.Helper()
	proto := "HTTP/1.1"
	if e.http2 {
		proto = "HTTP/2"
	}
	ctx, cancel := context.WithCancel(t.Context())
	req := kit.Must(http.NewRequestWithContext(ctx, "GET", e.base+path, nil))
	req.Header.Set("X-Key", "k")
	if path == "/socket" {
		req.Header["Connection"], req.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	}
	res, err := kit.Client(t, proto).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := res.Body.Read(make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	return func() { cancel(); res.Body.Close() }
}

// An open event stream and an open WebSocket hold no key, whichever way they go.
func TestStreamsHoldNoKey(t *testing.T) {
	for _, e := range entrances(t, streamApp, func(rc *router.Config, wc *worker.Config) { wc.MaxWait = 20 * time.Second }) {
		t.Run(e.name, func(t *testing.T) {
			for _, path := range []string{"/events", "/socket"} {
				if e.http2 && path == "/socket" {
					continue
				}
				end := e.begin(t, path)
				if got := e.send(t, "GET", "/", nil, ""); !strings.Contains(got, "200") || !strings.Contains(got, "served") {
					t.Errorf("while %s is open: %s", path, got)
				}
				end()
			}
		})
	}
}

// What a client asks for frees no key: its answer has to be a stream. One whose
// route serializes holds it to its end.
func TestTrapClientsCannotLetKeysGo(t *testing.T) {
	c := site.New(t, 16)
	w := c.StartReady(func(cfg *worker.Config) {
		cfg.Direct, cfg.Keys, cfg.AbandonedTimeout = true, kit.KeySources(t, "header:X-Key"), 50*time.Millisecond
	})
	app := site.Serve(t, http.HandlerFunc(streamApp))
	for name, h := range map[string]http.Handler{
		"sidecar":           kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(app.URL)))),
		"sidecar, net/http": kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(app.URL+"/?app=1")))),
		"handler":           w.Handler(http.HandlerFunc(streamApp)),
	} {
		base := "http://" + w.Listen(t, h)
		for _, header := range []string{"Accept: text/event-stream", "Content-Type: text/event-stream", "Connection: Upgrade\r\nUpgrade: websocket"} {
			conn := kit.Dial(t, base)
			fmt.Fprintf(conn, "GET /long HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n%s\r\n\r\n", header)
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			other := kit.Dial(t, base)
			in := kit.SendRaw(t, other, "/", "k")
			kit.Eventually(t, name+": the next request waits for the key", func() bool { return w.Queued("k") == 1 })
			conn.Close()
			kit.ReadServed(t, in)
		}
	}
}

// A partition that is given away ends its streams so that their clients connect
// again, and no sooner: event streams in order, WebSockets with their connections.
func TestStreamsEndWhenTheirPartitionMoves(t *testing.T) {
	c := site.New(t, 1)
	first := c.StartReady(func(cfg *worker.Config) { cfg.Direct, cfg.Keys = true, kit.KeySources(t, "header:X-Key") })
	app := site.Serve(t, http.HandlerFunc(streamApp))
	var ends []func()
	for name, h := range map[string]http.Handler{
		"sidecar":           kit.Must(sidecar.New(first.Worker, kit.Must(url.Parse(app.URL)))),
		"sidecar, net/http": kit.Must(sidecar.New(first.Worker, kit.Must(url.Parse(app.URL+"/?app=1")))),
		"handler":           first.Handler(http.HandlerFunc(streamApp)),
	} {
		addr := first.Listen(t, h)
		members := c.Join("router " + name)
		for _, e := range append(routerEntrances(t, name, router.Config{Members: members, Keys: kit.KeySources(t, "header:X-Key")}), entrance{name: name + ", own port", base: "http://" + addr}) {
			if e.http2 {
				continue
			}
			conn := kit.Dial(t, e.base)
			fmt.Fprint(conn, "GET /events HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n\r\n")
			res := kit.Must(http.ReadResponse(bufio.NewReader(conn), nil))
			if _, err := res.Body.Read(make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			socket := kit.Dial(t, e.base)
			fmt.Fprint(socket, "GET /socket HTTP/1.1\r\nHost: h\r\nX-Key: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			in := bufio.NewReader(socket)
			if res := kit.Must(http.ReadResponse(in, nil)); res.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%s: %v", e.name, res)
			}
			expect(t, in, []byte("\x81\x02hi"))
			ends = append(ends, func() {
				if rest, err := io.ReadAll(res.Body); err != nil {
					t.Errorf("%s: the event stream ends with %q, %v", e.name, rest, err)
				}
				if _, err := in.ReadByte(); err == nil {
					t.Errorf("%s: the WebSocket goes on", e.name)
				}
			})
		}
	}
	c.Start()
	drained := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { drained <- first.Drain(ctx) }()
	for _, end := range ends {
		end()
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// A body that streams and turns out to be too large is no whole one to the app. The
// client reads 413, or, if the answer has begun, loses it.
func TestStreamsOfBodiesThatAreTooLarge(t *testing.T) {
	came := make(chan error, 1) // of reading the body
	app := func(rw http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(rw)
		_ = rc.EnableFullDuplex() // a worker needs none
		if r.URL.Path == "/early" {
			rw.WriteHeader(http.StatusAccepted)
			_ = rc.Flush()
		}
		_, err := io.Copy(io.Discard, r.Body)
		came <- err
		fmt.Fprint(rw, "whole")
	}
	const most = 100 << 10
	table := site.Routes(t, fmt.Sprintf(`name: a, key: "header:X-Key", body: {max: %d, buffer: false}`, most))
	for _, e := range entrances(t, app, func(rc *router.Config, _ *worker.Config) { rc.Keys, rc.Routes = nil, table }) {
		if !strings.Contains(e.name, ", link") {
			continue // there a worker, or the app, is not asked for less than the whole
		}
		t.Run(e.name, func(t *testing.T) {
			proto := "HTTP/1.1"
			if e.http2 {
				proto = "HTTP/2"
			}
			for _, tt := range []struct {
				path string
				size int
				want int
			}{
				{"/", most, 200}, {"/", most + 1, 413}, {"/early", most + 1, 202},
			} {
				if tt.path == "/early" && !e.http2 {
					continue // net/http reads the body before it answers
				}
				body, rest := io.Pipe()
				answered := make(chan struct{})
				go func() {
					defer rest.Close()
					_, _ = io.WriteString(rest, strings.Repeat("x", most))
					if tt.path == "/early" {
						<-answered
					}
					_, _ = io.WriteString(rest, strings.Repeat("x", tt.size-most))
				}()
				req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", e.base+tt.path, body))
				req.Header.Set("X-Key", "k")
				res, err := kit.Client(t, proto).Do(req)
				if err != nil {
					t.Fatalf("%s with %d bytes: %v", tt.path, tt.size, err)
				}
				close(answered)
				text, err := io.ReadAll(res.Body)
				res.Body.Close()
				if whole := strings.HasSuffix(string(text), "whole") && err == nil; res.StatusCode != tt.want || whole != (tt.size <= most) {
					t.Errorf("%s with %d bytes: %d %q, %v, want %d", tt.path, tt.size, res.StatusCode, text, err, tt.want)
				}
				if err := <-came; (err == nil) != (tt.size <= most) {
					t.Errorf("%s with %d bytes: the app has seen %v", tt.path, tt.size, err)
				}
			}
		})
	}
}
