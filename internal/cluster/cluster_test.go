package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
)

// answer is what the demo app says.
type answer struct {
	Key       string
	Worker    string
	Partition int
	Count     int64
	Token     int64
	Overlap   bool
}

// demo is a router and workers with the demo app, as make run starts them.
type demo struct {
	t        *testing.T
	programs cluster.Programs
	ttl      string // of sessions
	router   *cluster.Process
	workers  map[string]*cluster.Process
}

func startDemo(t *testing.T, names ...string) *demo {
	t.Helper()
	return startDemoWith(t, "5s", names...)
}

// startDemoWith starts one with that session TTL.
func startDemoWith(t *testing.T, ttl string, names ...string) *demo {
	t.Helper()
	programs := programs(t)
	d := &demo{t: t, programs: programs, ttl: ttl, workers: make(map[string]*cluster.Process)}
	d.router = d.start("router", programs.Router, "--new-cluster", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--session-ttl", ttl)
	for _, name := range names {
		d.add(name)
	}
	return d
}

func (d *demo) add(name string, args ...string) *cluster.Process {
	d.t.Helper()
	args = append([]string{"--new-cluster", "--name", name, "--join", d.router.Gossip, "--admin", "127.0.0.1:0", "--session-ttl", d.ttl}, args...)
	d.workers[name] = d.start(name, d.programs.Worker, args...)
	return d.workers[name]
}

func (d *demo) start(name, program string, args ...string) *cluster.Process {
	d.t.Helper()
	p, err := cluster.Start(d.t.Context(), name, program, d.t.Output(), args...)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(p.Kill)
	return p
}

func (d *demo) send(key, query string) (answer, error) {
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, "http://"+d.router.Listen+"/"+query, nil)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("X-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("status %d: %s (%v)", res.StatusCode, body, err)
	}
	var a answer
	if err := json.Unmarshal(body, &a); err != nil || a.Key != key {
		return answer{}, fmt.Errorf("answer %q: %w", body, err)
	}
	return a, nil
}

// sendAll sends n requests over the keys from 16 clients and returns which
// workers answered each key.
func (d *demo) sendAll(n, keys int, query string) map[string]map[string]bool {
	d.t.Helper()
	var mu sync.Mutex
	owners := make(map[string]map[string]bool)
	work := make(chan int)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range work {
				a, err := d.send(fmt.Sprintf("order-%d", i%keys), query)
				if err != nil {
					d.t.Error(err)
					continue
				}
				mu.Lock()
				if owners[a.Key] == nil {
					owners[a.Key] = make(map[string]bool)
				}
				owners[a.Key][a.Worker] = true
				if a.Overlap {
					d.t.Errorf("two requests of %s ran at once", a.Key)
				}
				mu.Unlock()
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
	return owners
}

func (d *demo) eachKeyHasOneWorker(owners map[string]map[string]bool) {
	d.t.Helper()
	for key, workers := range owners {
		if len(workers) != 1 {
			d.t.Errorf("%s was answered by %v", key, workers)
		}
	}
}

// A thousand requests over a hundred keys: each key is answered by one worker
// only, and no two requests of a key overlap.
func TestEachKeyHasOneWorker(t *testing.T) {
	d := startDemo(t, "w1", "w2", "w3")
	d.settle(3)
	owners := d.sendAll(1000, 100, "")
	d.eachKeyHasOneWorker(owners)
	if len(owners) != 100 {
		t.Errorf("%d keys, want 100", len(owners))
	}
	d.eachKeyHasOneWorker(d.sendAll(60, 3, "?hold=5ms"))

	// One worker joins, another leaves, while requests run.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond): // the processors are the programs'
			}
			if _, err := d.send(fmt.Sprintf("order-%d", i%100), ""); err != nil {
				t.Errorf("while members change: %v", err)
			}
		}
	})
	d.add("w4")
	d.settle(4)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := d.workers["w1"].Stop(ctx); err != nil {
		t.Errorf("w1 ended with %v", err)
	}
	d.settle(3)
	close(stop)
	wg.Wait()
	owners = d.sendAll(1000, 100, "")
	d.eachKeyHasOneWorker(owners)
	for key, workers := range owners {
		if workers["w1"] {
			t.Errorf("%s is still answered by w1", key)
		}
	}
}

// settle waits until that many workers share the ring and each owns what the
// ring gives it: keys are answered by their owners on the ring.
func (d *demo) settle(workers int) {
	d.t.Helper()
	kit.Eventually(d.t, "workers share the ring, and own what it gives them", func() bool {
		active := 0
		var seen struct {
			Members []struct{ Role, State string }
		}
		d.admin("/members", &seen)
		for _, m := range seen.Members {
			if m.Role == "worker" && m.State == "active" {
				active++
			}
		}
		settled := active == workers
		ringOwner := d.ringOwners()
		for i := 0; settled && i < 100; i++ {
			key := fmt.Sprintf("order-%d", i)
			a, err := d.send(key, "")
			if err != nil {
				d.t.Fatal(err)
			}
			settled = a.Worker == ringOwner(key)
		}
		return settled
	})
}

// ringOwners returns the owners of keys on the ring.
func (d *demo) ringOwners() func(key string) string {
	d.t.Helper()
	var view struct {
		Partitions int
		Owners     []int
		Workers    []struct{ Name string }
	}
	d.admin("/ring", &view)
	return func(key string) string {
		if i := view.Owners[ring.Config{Partitions: view.Partitions}.Partition(key)]; i >= 0 {
			return view.Workers[i].Name
		}
		return ""
	}
}

func (d *demo) admin(path string, v any) {
	d.t.Helper()
	get(d.t, "http://"+d.router.Admin+path, v)
}

func get(t *testing.T, url string, v any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(v); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
}

// A restart that proves the old process dead takes over at once.
func TestLockFileTakesOverAtOnce(t *testing.T) {
	d := startDemoWith(t, "10m")
	lock := filepath.Join(t.TempDir(), "lock")
	w := d.add("w1", "--lock-file", lock)
	before, err := d.send("k", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Start(t.Context(), "second", d.programs.Worker, t.Output(), "--name", "w2", "--join", d.router.Gossip, "--session-ttl", d.ttl, "--lock-file", lock); err == nil || !strings.Contains(err.Error(), lock) {
		t.Errorf("a second worker with the same lock file: %v", err)
	}
	w.Kill()
	d.add("w1", "--lock-file", lock)
	after, err := d.send("k", "") // the router holds it for 15 s; the session would last 10 minutes
	if err != nil || after.Token <= before.Token {
		t.Errorf("token %d after %d, %v", after.Token, before.Token, err)
	}
}

// SIGTERM during a request: it is answered, and the process ends with 0.
func TestWorkerFinishesRequests(t *testing.T) {
	d := startDemo(t, "w1")
	if _, err := d.send("k", ""); err != nil { // it owns the key
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	answered := make(chan error, 1)
	wg.Go(func() {
		_, err := d.send("k", "?hold=2s")
		answered <- err
	})
	for {
		// A second request of the key waits behind the first once that runs.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.router.Listen+"/", nil)
		req.Header.Set("X-Key", "k")
		res, err := http.DefaultClient.Do(req)
		cancel()
		if err != nil {
			break
		}
		res.Body.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := d.workers["w1"].Stop(ctx); err != nil {
		t.Errorf("the worker ended with %v", err)
	}
	wg.Wait()
	if err := <-answered; err != nil {
		t.Errorf("the request that ran: %v", err)
	}
}

// A process that does not become ready says why.
func TestStartSaysWhy(t *testing.T) {
	script := filepath.Join(t.TempDir(), "fails")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho no luck >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := cluster.Start(t.Context(), "p", script, nil)
	if err == nil || !strings.Contains(err.Error(), "no luck") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%v", err)
	}
	if _, err := cluster.Start(t.Context(), "p", "/nonexistent", nil); err == nil {
		t.Error("a missing program starts")
	}
}

func TestSignalAfterEnd(t *testing.T) {
	script := filepath.Join(t.TempDir(), "ready")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho 'x ready: requests http://127.0.0.1:1, admin http://127.0.0.1:2, gossip 127.0.0.1:3'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := cluster.Start(t.Context(), "p", script, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.Listen != "127.0.0.1:1" || p.Admin != "127.0.0.1:2" || p.Gossip != "127.0.0.1:3" {
		t.Errorf("addresses %+v", p)
	}
	<-p.Done()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
