package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// output collects what a router prints.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ready chan struct{}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	if strings.Contains(string(b), "ready: ") {
		close(o.ready)
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startRouter is one that runs inside the test, or in a process of its own.
type startRouter struct {
	requests, admin, gossip string
	stdout, stderr          *output
	stop                    context.CancelFunc
	ended                   chan error
}

var free = []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--drain-notice", "0s"}

func start(t *testing.T, args ...string) *startRouter {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &startRouter{stdout: &output{ready: make(chan struct{})}, stderr: &output{}, stop: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- run(ctx, append(free, args...), r.stdout, r.stderr) }()
	r.await(t)
	return r
}

// await waits until the router is ready, and has it stopped when the test ends.
func (r *startRouter) await(t *testing.T) {
	t.Helper()
	select {
	case <-r.stdout.ready:
	case err := <-r.ended:
		t.Fatalf("ended: %v\n%s", err, r.stderr)
	}
	m := regexp.MustCompile(`^keyway router ready: requests (https?://\S+), admin (http://\S+), gossip (\S+)\n$`).FindStringSubmatch(r.stdout.String())
	if m == nil {
		t.Fatalf("not one clear line: %q", r.stdout)
	}
	r.requests, r.admin, r.gossip = m[1], m[2], m[3]
	t.Cleanup(func() { r.finish(t) })
}

// finish stops the router and returns when it has ended.
func (r *startRouter) finish(t *testing.T) {
	r.stop()
	if err, ok := <-r.ended; ok && err != nil {
		t.Errorf("ended with %v\n%s", err, r.stderr)
	}
	select {
	case <-r.ended:
	default:
		close(r.ended)
	}
	if log := r.stderr.String(); strings.Contains(log, "without --store") && strings.Contains(log, "the store cannot be used") {
		t.Errorf("the end of the router's own store is a failure:\n%s", log)
	}
}

// join starts a member that serves plain HTTP as an active worker.
func join(t *testing.T, r *startRouter, h http.Handler) *gossip.Cluster {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	c, err := gossip.Start(t.Context(), gossip.Config{
		Self:  ring.Member{Name: "w", Incarnation: "life", Role: ring.RoleWorker, State: ring.StateActive, Addr: l.Addr().String()},
		Seeds: []string{r.gossip},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func fetch(t *testing.T, url, key string) (int, string) {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	req.Header.Set("X-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

func TestRequestsReachAWorker(t *testing.T) {
	r := start(t)
	if status, body := fetch(t, r.admin+"/readyz", ""); status != 503 {
		t.Errorf("ready without a worker: %d %s", status, body)
	}
	held := make(chan string, 1)
	go func() {
		status, body := fetch(t, r.requests, "held")
		held <- fmt.Sprint(status, body)
	}()
	c := join(t, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("Keyway-Key")) }))
	if got := <-held; got != "200held" {
		t.Errorf("a request from before the first worker: %s", got)
	}
	for _, path := range []string{"/readyz", "/healthz", "/ring", "/metrics"} {
		if status, body := fetch(t, r.admin+path, ""); status != 200 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body := fetch(t, r.requests, ""); status != 400 || !strings.Contains(body, "header:X-Key") {
		t.Errorf("no key: %d %s", status, body)
	}
	if status, _ := fetch(t, r.requests, strings.Repeat("k", 100<<10)); status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 100 KiB: %d", status)
	}
	var offers []string
	for _, m := range c.View().Members {
		if m.Store != "" {
			offers = append(offers, m.Store)
		}
	}
	if len(offers) != 1 || !strings.HasPrefix(offers[0], "redis://") {
		t.Errorf("the worker is offered the stores %q", offers)
	}
	if !strings.Contains(r.stderr.String(), "one machine") {
		t.Errorf("no word that the embedded store is for one machine: %s", r.stderr)
	}
}

// A stop lets the requests that run end, and says so to the load balancer.
func TestStopFinishesRequests(t *testing.T) {
	r := start(t)
	started, release := make(chan struct{}), make(chan struct{})
	join(t, r, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		<-release
		io.WriteString(w, "done")
	}))
	answer := make(chan string, 1)
	go func() {
		_, body := fetch(t, r.requests, "k")
		answer <- body
	}()
	<-started
	r.stop()
	deadline := time.After(time.Minute)
	for {
		if status, _ := fetch(t, r.admin+"/readyz", ""); status == 503 {
			break
		}
		select {
		case <-deadline:
			t.Fatal("still ready")
		default:
		}
	}
	close(release)
	if got := <-answer; got != "done" {
		t.Errorf("the running request ended with %q", got)
	}
	r.finish(t)
}

// Requests are taken at several addresses, and at a socket of the file system
// where an ended process has left one.
func TestSeveralListeners(t *testing.T) {
	path := t.TempDir() + "/front.sock"
	left := kit.Must(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))
	left.SetUnlinkOnClose(false)
	left.Close()
	out := &output{ready: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, append(free, "--hold", "0", "--listen", "127.0.0.1:0,unix://"+path), out, io.Discard)
	}()
	<-out.ready
	m := regexp.MustCompile(`requests (http://\S+) (http://\S+) unix://(\S+), admin`).FindStringSubmatch(out.String())
	if m == nil || m[1] == m[2] || m[3] != path {
		t.Fatalf("%s", out)
	}
	overUnix := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for url, client := range map[string]*http.Client{m[1]: http.DefaultClient, m[2]: http.DefaultClient, "http://front": overUnix} {
		req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", url, nil))
		req.Header.Set("X-Key", "k")
		if res, body := kit.Do(t, client, req); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", url, res.StatusCode, body)
		}
	}
	if err := run(ctx, append(free, "--listen", "unix://"+path), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a socket that is in use: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

func TestDrainTimeoutEndsRequests(t *testing.T) {
	r := start(t, "--drain-timeout", "10ms")
	started := make(chan struct{})
	join(t, r, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		req, _ := http.NewRequest("GET", r.requests, nil)
		req.Header.Set("X-Key", "k")
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
		}
	}()
	<-started
	r.finish(t)
	<-ended
}

func TestUsageErrors(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--lisen :1", "unknown flag --lisen"},
		{"--key body:id", "the forms are header:NAME"},
		{"--hold -1s", "--hold"},
		{"--listen :1,unix://relative", "unix:///path"},
		{"--listen :1,8080", "is not host:port"},
		{"--upgrade websocket,h2c", "h2c"},
		{"--trusted-proxies 10.0.0.1,proxy", "--trusted-proxies"},
		{"--proxy-protocol 10.0.0.0/33", "--proxy-protocol"},
		{"--max-connections-per-client -1", "--max-connections-per-client"},
		{"--partitions 0", "--partitions"},
		{"--gossip-key short", "--gossip-key"},
		{"--gossip 0.0.0.0:0", "--gossip-open"},
		{"--tls-cert x", "without --tls-key"},
		{"--tls-key x", "--tls-key needs --tls-cert"},
		{"--locks 8090", "is not host:port"},
		{"--locks unix:/locks", "unix:///path"},
		{"--locks-token a --locks-token-file b", "--locks-token and --locks-token-file exclude each other"},
		{"--peer-cert x", "--peer-cert, --peer-key and --peer-ca need each other"},
		{"--peer-name x", "--peer-cert, --peer-key and --peer-ca need each other"},
		{"--peer-cert /absent --peer-key /absent --peer-ca /absent", "/absent: no such file"},
		{"--tls-cert /absent --tls-key /absent", "--tls-cert"},
		{"--redis http://x", "--redis"},
		{"--store zk://a:2181", "etcd://host:2379"},
		{"--store etcd://a/b", "--store"},
		{"--store etcd://a --redis redis://b", "exclude each other"},
		{"--body-dir /absent", "/absent"},
		{"extra", "unexpected argument"},
	} {
		err := run(t.Context(), append(free, strings.Fields(tt.args)...), io.Discard, io.Discard)
		if cli.ExitCode(err) != 2 || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want exit code 2 and one line with %q", tt.args, err, tt.want)
		}
	}
}

func TestStartErrorsNameTheFlag(t *testing.T) {
	keyed := start(t, "--gossip-key", strings.Repeat("0f", 16))
	other := start(t)
	for _, tt := range []struct{ args, want, flag string }{
		{"--listen " + strings.TrimPrefix(other.requests, "http://"), other.requests[7:], "--listen"},
		{"--admin " + strings.TrimPrefix(other.admin, "http://"), other.admin[7:], "--admin"},
		{"--gossip " + other.gossip, other.gossip, "--gossip"},
		{"--gossip-key " + strings.Repeat("aa", 16) + " --join " + keyed.gossip, keyed.gossip, "--gossip-key"},
		{"--cluster another --join " + other.gossip, other.gossip, "--cluster"},
		{"--key host --join " + other.gossip, other.gossip, "--key"},
		{"--redis redis://127.0.0.1:1 --new-cluster", "127.0.0.1:1", "--redis"},
	} {
		err := run(t.Context(), append(free, strings.Fields(tt.args)...), io.Discard, io.Discard)
		if cli.ExitCode(err) != 1 || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.flag) {
			t.Errorf("%s: %v, want %s and %s", tt.args, err, tt.want, tt.flag)
		}
	}
}

// A router that fails once it is a member leaves: the others do not wait for its death.
func TestFailedStartLeaves(t *testing.T) {
	first := start(t)
	if err := run(t.Context(), append(free, "--join", first.gossip, "--body-dir", "/absent"), io.Discard, io.Discard); cli.ExitCode(err) != 2 {
		t.Fatal(err)
	}
	kit.Eventually(t, "the second router is gone", func() bool {
		return strings.Contains(first.stderr.String(), "member left") || strings.Contains(first.stderr.String(), "member lost")
	})
	if log := first.stderr.String(); strings.Contains(log, "member lost") {
		t.Error(log)
	}
}

// A signal ends a start that waits for its store, in order.
func TestStopWhileTheStoreIsSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		if conn, err := l.Accept(); err == nil {
			defer conn.Close()
			stop()
			<-t.Context().Done()
		}
	}()
	if err := run(ctx, append(free, "--redis", "redis://"+l.Addr().String(), "--new-cluster"), io.Discard, io.Discard); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// A seed that nobody answers at is said, and tried on.
func TestUnreachableSeedIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	r := start(t, "--join", addr)
	if text := r.stderr.String(); !strings.Contains(text, addr) || !strings.Contains(text, "--join") {
		t.Errorf("log: %s", text)
	}
}

// own starts a worker without options, which takes the link and uses the router's store.
func own(t *testing.T, r *startRouter, h http.Handler) {
	t.Helper()
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	members := kit.Must(gossip.Start(t.Context(), gossip.Config{
		Self:  ring.Member{Name: "own", Role: ring.RoleWorker, Addr: l.Addr().String()},
		Seeds: []string{r.gossip},
	}))
	t.Cleanup(func() { members.Close() })
	i := slices.IndexFunc(members.View().Members, func(m ring.Member) bool { return m.Store != "" })
	if i < 0 {
		t.Fatal("the router offers no store")
	}
	store := kit.Must(store.New(members.View().Members[i].Store, store.Config{NewCluster: true}))
	t.Cleanup(func() { store.Close() })
	worker := kit.Must(worker.Start(t.Context(), worker.Config{Members: members, Store: store, NewCluster: true}))
	t.Cleanup(func() { worker.Close() })
	server := worker.NewServer(worker.Handler(h))
	t.Cleanup(func() { server.Close() })
	go server.Serve(l)
}

// A program of one's own whose options are all left out is of one cluster with
// a router whose options are.
func TestWorkerWithoutOptions(t *testing.T) {
	r := start(t)
	own(t, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "own") }))
	var status int
	var body string
	kit.Eventually(t, "the worker serves the key", func() bool {
		status, body = fetch(t, r.requests, "k")
		return status != http.StatusServiceUnavailable
	})
	if status != 200 || body != "own" {
		t.Errorf("%d %s", status, body)
	}
}

// Clients who take all connections leave the rest of the router alone.
func TestConnectionsOfClientsAreBounded(t *testing.T) {
	const bound = 4
	r := start(t, "--max-connections", fmt.Sprint(bound))
	join(t, r, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") }))
	var silent []net.Conn
	for range 3 * bound {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.requests, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	deadline := time.After(time.Minute)
	for !strings.Contains(r.stderr.String(), "no further connections are accepted") {
		select {
		case <-deadline:
			t.Fatalf("no warning: %s", r.stderr)
		case <-time.After(time.Millisecond):
		}
	}
	if status, body := fetch(t, r.admin+"/healthz", ""); status != 200 {
		t.Errorf("/healthz: %d %s", status, body)
	}
	g, err := net.Dial("tcp", r.gossip)
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
	for _, c := range silent {
		c.Close()
	}
	if status, body := fetch(t, r.requests, "k"); status != 200 || body != "served" {
		t.Errorf("when they have gone: %d %s", status, body)
	}
}
