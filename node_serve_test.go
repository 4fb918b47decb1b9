package keyway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// Requests come from Start on, and are refused as a router understands it until
// there is a handler.
func TestServe(t *testing.T) {
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.NewCluster, cfg.Admin, cfg.Direct = true, "127.0.0.1:0", true
	cfg.Keys = kit.KeySources(t, "header:X-Key")
	node := start(t, cfg)
	res, body := kit.Fetch(t, "http://"+node.Addr(), "X-Key", "k")
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Errorf("without a handler: %d %s", res.StatusCode, body)
	}
	if res, body := kit.Fetch(t, "http://"+node.AdminAddr()+"/readyz"); res.StatusCode != http.StatusOK {
		t.Errorf("/readyz: %d %s", res.StatusCode, body)
	}
	running, finish := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- node.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				close(running)
				<-finish
			}
			key, _ := gateway.KeyFromHeader(r.Header)
			fmt.Fprint(w, "served ", key)
		}))
	}()
	kit.Eventually(t, "it is served", func() bool {
		_, body := kit.Fetch(t, "http://"+node.Addr(), "X-Key", "k")
		return body == "served k"
	})
	slow := make(chan string, 1)
	go func() {
		_, body := kit.Fetch(t, "http://"+node.Addr()+"/slow", "X-Key", "s")
		slow <- body
	}()
	<-running
	cancel() // it finishes what runs
	close(finish)
	if body := <-slow; body != "served s" {
		t.Errorf("a request that ran when ctx ended: %q", body)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	for range 2 {
		if err := node.Close(); err != nil {
			t.Errorf("Close after Serve: %v", err)
		}
	}
	if _, err := net.Dial("tcp", node.Addr()); err == nil {
		t.Error("a closed node takes connections")
	}
	if err := node.Do(t.Context(), "k", func(keyway.Execution) error { return nil }); !errors.Is(err, keyway.ErrUnavailable) {
		t.Errorf("Do after Close: %v", err)
	}
}

// A node that still starts tells at Config.Admin what it waits for, and that it lives: a probe of its
// liveness must not end it.
func TestAdminFromTheBegin(t *testing.T) {
	cfg := config(t, "a", kit.FreeAddr(t)) // where nobody is
	cfg.Admin, cfg.Offered = kit.FreeAddr(t), true
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() {
		node, err := keyway.Start(ctx, cfg)
		if err == nil {
			node.Close()
		}
		started <- err
	}()
	kit.Eventually(t, "the admin address answers", func() bool {
		c, err := net.Dial("tcp", cfg.Admin)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	if res, body := kit.Fetch(t, "http://"+cfg.Admin+"/healthz"); res.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %d %s", res.StatusCode, body)
	}
	kit.Eventually(t, "it waits for a store", func() bool {
		res, body := kit.Fetch(t, "http://"+cfg.Admin+"/readyz")
		return res.StatusCode == http.StatusServiceUnavailable && strings.Contains(body, "offers a store") && strings.Contains(body, "--join")
	})
	if res, _ := kit.Fetch(t, "http://"+cfg.Admin+"/metrics"); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Errorf("/metrics: %d %v", res.StatusCode, res.Header)
	}
	cancel()
	if err := <-started; !errors.Is(err, context.Canceled) {
		t.Errorf("Start: %v", err)
	}
	if c, err := net.Dial("tcp", cfg.Admin); err == nil {
		c.Close()
		t.Error("the admin address is open after Start has failed")
	}
}

// A POST request empties a node and lets it be: what runs is finished, and the other node
// has the keys until a further one takes it back. Drain is for good.
func TestDrain(t *testing.T) {
	at := kit.FreeAddr(t)
	entered, release := make(chan struct{}), make(chan struct{})
	cfg := config(t, "a", at)
	cfg.Admin, cfg.DrainTimeout = "127.0.0.1:0", 500*time.Millisecond
	a, b := start(t, cfg), start(t, config(t, "b", at))
	admin := "http://" + a.AdminAddr()
	post := func(header ...string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, admin+"/drain", nil)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	key := ""
	for i := 0; key == ""; i++ {
		if k := fmt.Sprint("k", i); do(t, k, a, b) == "a" {
			key = k
		}
	}
	if status, _ := post("Sec-Fetch-Site", "cross-site"); status != http.StatusForbidden {
		t.Errorf("a page of another site: %d", status)
	}
	if res, body := kit.Fetch(t, admin+"/drain"); res.StatusCode != http.StatusMethodNotAllowed || a.Local().Ready() != nil {
		t.Errorf("GET: %d %s, and the node: %v", res.StatusCode, body, a.Local().Ready())
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		err := a.Do(t.Context(), key, func(keyway.Execution) error {
			close(entered)
			<-release
			return nil
		})
		if err != nil {
			t.Errorf("what ran: %v", err)
		}
	})
	<-entered
	if status, body := post(); status != http.StatusServiceUnavailable || !strings.Contains(body, "1 keys busy") {
		t.Errorf("with something that runs: %d %s", status, body)
	}
	if res, body := kit.Fetch(t, admin+"/readyz"); res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "drained") {
		t.Errorf("ready: %d %s", res.StatusCode, body)
	}
	close(release)
	for range 3 {
		running.Go(func() {
			status, body := post()
			for try := 1; status == http.StatusServiceUnavailable && try < 100; try++ { // a busy machine may need longer
				status, body = post()
			}
			if status != http.StatusOK {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	running.Wait()
	if do(t, key, a, b) != "b" {
		t.Error("the other node has not got the key")
	}
	if res, err := http.Post(admin+"/undrain", "", nil); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("undrain: %v %v", err, res)
	}
	kit.Eventually(t, "it has its keys back", func() bool { return do(t, key, a, b) == "a" })
	kit.Eventually(t, "it is drained for good", func() bool { return a.Drain(t.Context()) == nil })
	if do(t, key, a, b) != "b" {
		t.Error("the other node has not got the key again")
	}
	if res, _ := kit.Fetch(t, admin+"/healthz"); res.StatusCode != http.StatusOK {
		t.Errorf("the process: %d", res.StatusCode)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// Config.Handler serves before Start returns; a handler of the worker's own is
// not asked for the key twice.
func TestHandlers(t *testing.T) {
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "app") })
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.NewCluster, cfg.Handler, cfg.Direct, cfg.Keys = true, app, true, kit.KeySources(t, "header:X-Key")
	node := start(t, cfg)
	if _, body := kit.Fetch(t, "http://"+node.Addr(), "X-Key", "k"); body != "app" {
		t.Errorf("Config.Handler: %q", body)
	}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		served <- node.Serve(ctx, node.Local().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "own") })))
	}()
	kit.Eventually(t, "the worker's own handler serves", func() bool {
		_, body := kit.Fetch(t, "http://"+node.Addr(), "X-Key", "k")
		return body == "own"
	})
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Serve ends with its listener, and Close works after that.
func TestServeFails(t *testing.T) {
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.NewCluster, cfg.Listener = true, l
	node := start(t, cfg)
	l.Close()
	if err := node.Serve(t.Context(), nil); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("Serve on a closed listener: %v", err)
	}
	if err := node.Close(); err != nil {
		t.Errorf("Close after that: %v", err)
	}
}

// A node in front of an app that speaks HTTP/2 tells the routers that calls of gRPC may stream to it. A node in
// front of another app does not, whatever its worker is configured for.
func TestTrapOnlyHTTP2TakesGRPC(t *testing.T) {
	app := httptest.NewUnstartedServer(http.NotFoundHandler())
	app.Config.Protocols = new(http.Protocols)
	app.Config.Protocols.SetHTTP1(true)
	app.Config.Protocols.SetUnencryptedHTTP2(true)
	app.Start()
	t.Cleanup(app.Close)
	behind := func(scheme string) keyway.Config {
		cfg := config(t, scheme, kit.FreeAddr(t))
		cfg.NewCluster, cfg.Upstream = true, &url.URL{Scheme: scheme, Host: app.Listener.Addr().String()}
		return cfg
	}
	h2 := start(t, behind("h2c"))
	kit.Eventually(t, "a node behind h2c:// takes gRPC", func() bool { return h2.Members().Self().GRPC })
	cfg := behind("http")
	cfg.App.GRPC = true
	node, err := keyway.Start(t.Context(), cfg)
	if err == nil {
		t.Errorf("a node with App.GRPC behind http:// starts and takes gRPC: %t", node.Members().Self().GRPC)
		node.Close()
	} else if !strings.Contains(err.Error(), "h2c://") {
		t.Error(err)
	}
}
