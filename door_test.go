package keyway_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// In servers of their own, nodes take the keys of all nodes, and say so to operators.
func TestHandler(t *testing.T) {
	at, keys := kit.FreeAddr(t), kit.KeySources(t, "header:X-Key")
	var nodes []*keyway.Node
	var doors []string
	for i, name := range []string{"a", "b", "c"} {
		cfg := config(t, name, at)
		cfg.NewCluster, cfg.Admin = i == 0, "127.0.0.1:0"
		node := start(t, cfg)
		handler, err := node.Handler(named(name), router.Config{Keys: keys})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		nodes, doors = append(nodes, node), append(doors, server.URL)
	}
	ran := make(map[string]int)
	for i := range 30 {
		key := fmt.Sprint("order-", i)
		owner := do(t, key, nodes...)
		ran[owner]++
		for _, url := range doors {
			if res, body := kit.Fetch(t, url, "X-Key", key, "Keyway-Key", "forged"); res.StatusCode != http.StatusOK || body != owner+" has "+key {
				t.Errorf("%s at %s: %s %q, want %s", key, url, res.Status, body, owner)
			}
		}
	}
	if len(ran) != len(nodes) {
		t.Errorf("owners %v, want all nodes", ran)
	}
	admin := "http://" + nodes[0].AdminAddr()
	for path, want := range map[string]string{"/routes": `"digest"`, "/metrics": "keyway_router_requests_total", "/readyz": "ready"} {
		if res, body := kit.Fetch(t, admin+path); res.StatusCode != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %s %.200s", path, res.Status, body)
		}
	}
	if _, err := nodes[0].Handler(nil, router.Config{Keys: keys}); err == nil || errors.Is(err, keyway.ErrConfig) {
		t.Errorf("a second handler: %v", err)
	}
}

// The handlers of a cluster take keys from one place, and leave to their nodes what these say.
func TestHandlerRefuses(t *testing.T) {
	at := kit.FreeAddr(t)
	cfg := config(t, "a", at)
	cfg.NewCluster = true
	a, b := start(t, cfg), start(t, config(t, "b", at))
	for name, cfg := range map[string]router.Config{
		"no keys": {}, "members": {Members: a.Members(), Keys: kit.KeySources(t, "host")}, "own": {Own: func(context.Context) (net.Conn, error) { return nil, net.ErrClosed }, Keys: kit.KeySources(t, "host")},
	} {
		if _, err := a.Handler(nil, cfg); !errors.Is(err, keyway.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.Handler(named("a"), router.Config{Keys: kit.KeySources(t, "header:X-Key")}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Handler(named("b"), router.Config{Keys: kit.KeySources(t, "header:X-Other")}); err == nil || !strings.Contains(err.Error(), "X-Key") {
		t.Errorf("another key source: %v", err)
	}
	if _, err := b.Handler(named("b"), router.Config{Keys: kit.KeySources(t, "header:X-Key")}); err != nil {
		t.Errorf("the same keys: %v", err)
	}
}

// A router.Server of the handler lets running requests end with their keys held, and load balancers
// know, before the node hands its keys over.
func TestHandlerLeavesFirst(t *testing.T) {
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.NewCluster, cfg.Admin = true, "127.0.0.1:0"
	node := start(t, cfg)
	app := &kit.Blocking{Release: make(chan struct{})}
	handler, err := node.Handler(app, router.Config{Keys: kit.KeySources(t, "header:X-Key")})
	if err != nil {
		t.Fatal(err)
	}
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	server := router.NewServer(handler, new(http.Server))
	defer server.Close()
	go server.Serve(l)
	answer := make(chan string, 1)
	go func() {
		_, body := kit.Fetch(t, "http://"+l.Addr().String()+"/block", "X-Key", "k")
		answer <- body
	}()
	kit.Eventually(t, "it runs", func() bool { return app.Running.Load() == 1 })
	server.Leave()
	if res, body := kit.Fetch(t, "http://"+node.AdminAddr()+"/readyz"); res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "leaving") {
		t.Errorf("/readyz while the server leaves: %s %s", res.Status, body)
	}
	shut := make(chan error, 1)
	go func() { shut <- server.Shutdown(t.Context()) }()
	if err := node.Local().TryDo(t.Context(), "k", func(keyway.Execution) error { return nil }); !errors.Is(err, keyway.ErrLocked) {
		t.Errorf("the key of a running request: %v", err)
	}
	close(app.Release)
	if body := <-answer; body != "served" {
		t.Errorf("a request that ran when the server was told to leave: %q", body)
	}
	if err := <-shut; err != nil {
		t.Error(err)
	}
	if err := node.Close(); err != nil {
		t.Error(err)
	}
}
