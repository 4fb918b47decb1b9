package main

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

var locksURL = regexp.MustCompile(`the lock service is ready" url=(\S+)`)

// askLocks makes a request to a router's lock service, and returns the status and the lease.
func askLocks(t *testing.T, c *http.Client, r *startRouter, method, path, token string) (status int, lease string) {
	t.Helper()
	found := locksURL.FindStringSubmatch(r.stderr.String())
	if found == nil {
		t.Fatalf("no lock service: %s", r.stderr)
	}
	req := kit.Must(http.NewRequestWithContext(t.Context(), method, found[1]+path, nil))
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body := kit.Must(io.ReadAll(res.Body))
	var lock struct{ Lease string }
	_ = json.Unmarshal(body, &lock)
	return res.StatusCode, lock.Lease
}

// startWithWorker starts a router and a worker that takes the link.
func startWithWorker(t *testing.T, args ...string) (*startRouter, *worker.Worker) {
	t.Helper()
	redis := kit.Must(store.StartEmbedded("127.0.0.1:0", ""))
	t.Cleanup(func() { redis.Close() })
	r := start(t, append(args, "--redis", redis.URL(), "--new-cluster")...)
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	members := kit.Must(gossip.Start(t.Context(), gossip.Config{
		Seeds: []string{r.gossip}, Self: ring.Member{Name: "w", Role: ring.RoleWorker, Addr: l.Addr().String()},
	}))
	t.Cleanup(func() { members.Close() })
	s := kit.Must(store.New(redis.URL(), store.Config{NewCluster: true}))
	t.Cleanup(func() { s.Close() })
	w := kit.Must(worker.Start(t.Context(), worker.Config{Members: members, Store: s, NewCluster: true}))
	t.Cleanup(func() { w.Close() })
	server := w.NewServer(w.Handler(http.NotFoundHandler()))
	t.Cleanup(func() { server.Close() })
	go server.Serve(l)
	return r, w
}

// --locks takes requests for locks, with the token of --locks-token-file, until the router ends:
// then who waits reads 503.
func TestLocks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, w := startWithWorker(t, "--locks", "127.0.0.1:0", "--locks-token-file", file)
	c := kit.Client(t, "HTTP/1.1")
	if status, _ := askLocks(t, c, r, "POST", "k", "wrong"); status != http.StatusUnauthorized {
		t.Errorf("another token: %d", status)
	}
	var status int
	var lease string
	kit.Eventually(t, "the worker serves the key", func() bool {
		status, lease = askLocks(t, c, r, "POST", "k", "s3cret")
		return status != http.StatusServiceUnavailable
	})
	if status != http.StatusOK {
		t.Fatalf("%d", status)
	}
	if status, _ := askLocks(t, c, r, "POST", "k", "s3cret"); status != http.StatusLocked {
		t.Errorf("locked already: %d", status)
	}
	if status, _ := askLocks(t, c, r, "DELETE", "k?lease="+lease, "s3cret"); status != http.StatusNoContent {
		t.Errorf("unlocked: %d", status)
	}
	_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
		waiter := make(chan int)
		go func() {
			status, _ := askLocks(t, c, r, "POST", "k?wait=20s", "s3cret")
			waiter <- status
		}()
		kit.Eventually(t, "one waits", func() bool { return w.Queued("k") == 1 })
		r.stop()
		if status := <-waiter; status != http.StatusServiceUnavailable {
			t.Errorf("who waits while the router ends reads %d", status)
		}
		return nil
	})
}

// With --tls-cert the lock service speaks TLS.
func TestLocksOverTLS(t *testing.T) {
	cert, key, trusted := kit.Certificate(t)
	r, _ := startWithWorker(t, "--locks", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)
	for _, proto := range []string{"HTTP/1.1", "HTTP/2"} {
		transport := kit.Client(t, proto).Transport.(*http.Transport)
		transport.TLSClientConfig = &tls.Config{RootCAs: trusted}
		transport.Protocols.SetHTTP2(proto == "HTTP/2")
		kit.Eventually(t, "a key is locked over "+proto, func() bool {
			status, _ := askLocks(t, &http.Client{Transport: transport}, r, "POST", strings.ReplaceAll(proto, "/", ""), "")
			if status != http.StatusOK && status != http.StatusServiceUnavailable {
				t.Fatalf("%s: %d", proto, status)
			}
			return status == http.StatusOK
		})
	}
}
