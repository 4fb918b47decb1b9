package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/redistest"
)

// doorWorker is a worker with --public that runs inside the test.
type doorWorker struct {
	url, admin string
	log        *kit.Buffer
	stop       context.CancelFunc
	ended      chan error
}

// lines is where a worker says that it is ready.
type lines struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ready chan struct{}
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	if strings.Contains(string(b), " ready: ") {
		close(l.ready)
	}
	return len(b), nil
}

func startDoor(t *testing.T, args ...string) *doorWorker {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, w := &lines{ready: make(chan struct{})}, &doorWorker{log: new(kit.Buffer), stop: cancel, ended: make(chan error, 1)}
	args = append([]string{"--public", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--session-ttl", "2s", "--partitions", "64", "--drain-timeout", "20s", "--drain-notice", "0s", "--log", "text"}, args...)
	go func() { w.ended <- run(ctx, args, out, w.log) }()
	select {
	case <-out.ready:
	case err := <-w.ended:
		t.Fatalf("ended: %v\n%s", err, w.log)
	case <-time.After(time.Minute):
		t.Fatalf("not ready\n%s", w.log)
	}
	m := regexp.MustCompile(`^keyway worker ready: requests (https?://\S+), admin (http://\S+), gossip \S+\n$`).FindStringSubmatch(out.text.String())
	if m == nil {
		t.Fatalf("not one clear line: %q", &out.text)
	}
	w.url, w.admin = m[1], m[2]
	t.Cleanup(func() { w.finish(t) })
	return w
}

// finish stops the worker and returns when it has ended.
func (w *doorWorker) finish(t *testing.T) {
	w.stop()
	if err, first := <-w.ended; first {
		if err != nil {
			t.Errorf("ended with %v\n%s", err, w.log)
		}
		close(w.ended)
	}
}

// Workers alone take the keys of all of them, by routes, each at its own public address; one that is
// told to end finishes its clients' requests first.
func TestPublic(t *testing.T) {
	redis, gossip := redistest.Start(t), kit.FreeAddr(t)
	file := filepath.Join(t.TempDir(), "routes.yaml")
	if err := os.WriteFile(file, []byte("routes:\n  - {name: orders, match: {path: \"/orders/{order}\"}, key: path:order}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	common := []string{"--redis", redis.URL(), "--join", gossip, "--routes", file}
	first := startDoor(t, append(common, "--gossip", gossip, "--name", "w1", "--new-cluster", "--access-log", filepath.Join(t.TempDir(), "log"))...)
	second := startDoor(t, append(common, "--name", "w2")...)
	third := startDoor(t, append(common, "--name", "w3")...)
	ask := func(w *doorWorker, key, query string) demoAnswer {
		t.Helper()
		res, body := kit.Fetch(t, w.url+"/orders/"+key+query)
		var a demoAnswer
		if err := json.Unmarshal([]byte(body), &a); err != nil || res.StatusCode != http.StatusOK || a.Key != key || a.Token == 0 || a.Overlap {
			t.Errorf("%s at %s: %s %q", key, w.url, res.Status, body)
		}
		return a
	}
	ran := make(map[string]int)
	for i := range 30 {
		key := fmt.Sprint("o", i)
		a := ask(first, key, "")
		ran[a.Worker]++
		for _, w := range []*doorWorker{second, third} {
			if b := ask(w, key, ""); b.Worker != a.Worker || b.Count <= a.Count {
				t.Errorf("%s: %+v after %+v", key, b, a)
			}
		}
	}
	if len(ran) != 3 {
		t.Errorf("owners %v, want all three", ran)
	}
	if res, _ := kit.Fetch(t, first.url+"/elsewhere"); res.StatusCode != http.StatusNotFound {
		t.Errorf("no route: %s", res.Status)
	}
	if res, body := kit.Fetch(t, first.admin+"/routes"); res.StatusCode != http.StatusOK || !strings.Contains(body, file) {
		t.Errorf("/routes: %s %s", res.Status, body)
	}
	if err := os.WriteFile(file, []byte("routes: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "/routes says that the file is not in force", func() bool {
		_, body := kit.Fetch(t, first.admin+"/routes")
		return strings.Contains(body, `"error"`)
	})

	slow := make(chan demoAnswer, 8)
	for i := range cap(slow) {
		go func() { slow <- ask(second, fmt.Sprint("s", i), "?hold=3s") }()
	}
	kit.Eventually(t, "the door has the requests", func() bool {
		_, body := kit.Fetch(t, second.admin+"/metrics")
		return strings.Contains(body, fmt.Sprintf("\nkeyway_router_requests_in_flight %d\n", cap(slow)))
	})
	second.finish(t)
	for range cap(slow) {
		<-slow
	}
	var graces time.Duration
	for _, m := range regexp.MustCompile(`grace=(\S+)`).FindAllStringSubmatch(second.log.String(), -1) {
		graces += kit.Must(time.ParseDuration(m[1]))
	}
	if graces != 20*time.Second {
		t.Errorf("its door and its node had %v to leave, want the 20s of --drain-timeout together\n%s", graces, second.log)
	}
	for i := range 30 {
		if a := ask(third, fmt.Sprint("o", i), ""); a.Worker == "w2" {
			t.Errorf("a worker that has left answers: %+v", a)
		}
	}
}

// A door with a certificate speaks TLS alone, HTTP/2 and HTTP/1.1.
func TestPublicTLS(t *testing.T) {
	cert, key, trusted := kit.Certificate(t)
	redis, gossip := redistest.Start(t), kit.FreeAddr(t)
	w := startDoor(t, "--redis", redis.URL(), "--join", gossip, "--gossip", gossip, "--name", "w1", "--new-cluster", "--tls-cert", cert, "--tls-key", key)
	for protocol, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: h2}
		defer transport.CloseIdleConnections()
		req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", w.url, nil))
		req.Header.Set("X-Key", "k")
		res, body := kit.Do(t, &http.Client{Transport: transport}, req)
		if res.StatusCode != http.StatusOK || res.Proto != protocol || !strings.Contains(body, `"key":"k"`) {
			t.Errorf("%s: %s %s %q", protocol, res.Proto, res.Status, body)
		}
	}
	if res, err := http.Get("http" + strings.TrimPrefix(w.url, "https")); err == nil {
		res.Body.Close()
		t.Errorf("without TLS: %s", res.Status)
	}
}

func TestPublicUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--public nowhere":                        "host:port",
		"--public 127.0.0.1:0 --routes /none":     "--routes",
		"--public 127.0.0.1:0 --tls-cert /none":   "--tls-key",
		"--public 127.0.0.1:0 --without-key ftp:": "--without-key",
		"--routes /none":                          "--routes has no effect without --public",
		"--drain-notice 1s":                       "--drain-notice has no effect without --public",
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); cli.ExitCode(err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error of usage with %s", args, err, want)
		}
	}
}
