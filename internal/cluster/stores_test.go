package cluster_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/cluster"
)

// A worker that was given another --redis than the active ones does not become
// ready, and says so.
func TestTwoStores(t *testing.T) {
	programs := programs(t)
	d := &demo{t: t, programs: programs}
	var join string
	for i, name := range []string{"w1", "w2"} {
		redis, err := store.StartEmbedded("127.0.0.1:0", "")
		if err != nil {
			t.Fatal(err)
		}
		defer redis.Close()
		args := []string{"--new-cluster", "--name", name, "--redis", redis.URL(), "--session-ttl", "2s", "--partitions", "256"}
		if i == 0 {
			join = d.start(name, programs.Worker, append(args, "--join", "127.0.0.1:1")...).Gossip
			continue
		}
		p, err := cluster.Start(t.Context(), name, programs.Worker, t.Output(), append(args, "--join", join)...)
		if err == nil {
			t.Cleanup(p.Kill)
			t.Fatal("a worker with a store of its own became ready")
		}
		if !strings.Contains(err.Error(), "store") || !strings.Contains(err.Error(), "--redis") {
			t.Errorf("it does not say why: %v", err)
		}
	}
}

// Routers with a --redis of another cluster, or with none, are not ready beside
// workers that have one, and say why; neither cluster takes notice of the other.
func TestRouterOfAnotherStore(t *testing.T) {
	programs := programs(t)
	d := &demo{t: t, programs: programs}
	var urls []string
	var workers []*cluster.Process
	for _, name := range []string{"w1", "w2"} {
		redis, err := store.StartEmbedded("127.0.0.1:0", "")
		if err != nil {
			t.Fatal(err)
		}
		defer redis.Close()
		urls = append(urls, redis.URL())
		workers = append(workers, d.start(name, programs.Worker, "--new-cluster", "--name", name, "--redis", redis.URL(), "--join", "127.0.0.1:1", "--admin", "127.0.0.1:0", "--session-ttl", "2s", "--partitions", "256"))
	}
	for i, worker := range workers {
		for name, args := range map[string][]string{"right": {"--redis", urls[i]}, "wrong": {"--redis", urls[1-i]}, "without": nil} {
			router := d.start(name, programs.Router, append(args, "--join", worker.Gossip, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--session-ttl", "2s", "--partitions", "256")...)
			if name == "right" {
				awaitReadyz(t, router, http.StatusOK)
			} else {
				awaitReadyz(t, router, http.StatusServiceUnavailable, "store", worker.Name, "--redis")
			}
		}
		awaitReadyz(t, worker, http.StatusOK)
	}
}

// Workers follow a router that was killed and started anew as a new cluster,
// with a store of its own that is another one than before.
func TestRouterStartedAnew(t *testing.T) {
	d := startDemoWith(t, "2s", "w1", "w2")
	before := d.incarnations()
	d.router.Kill()
	d.router = d.start("router", d.programs.Router, "--new-cluster", "--listen", d.router.Listen, "--admin", d.router.Admin, "--gossip", d.router.Gossip, "--session-ttl", d.ttl)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		now := d.incarnations()
		came := func(name string) bool { return now[name] != "" && now[name] != before[name] }
		if came("w1") && came("w2") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not all have come: before %v, now %v", before, now)
		}
	}
}

// incarnations are those of the members that the router sees, by name.
func (d *demo) incarnations() map[string]string {
	d.t.Helper()
	var ring struct {
		Members []struct{ Name, Incarnation string }
	}
	d.admin("/members", &ring)
	all := make(map[string]string)
	for _, m := range ring.Members {
		all[m.Name] = m.Incarnation
	}
	return all
}

// awaitReadyz waits until the process says so at /readyz, with all these words.
func awaitReadyz(t *testing.T, p *cluster.Process, status int, words ...string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		res, err := http.Get("http://" + p.Admin + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		lacks := func(word string) bool { return !strings.Contains(string(body), word) }
		if res.StatusCode == status && !slices.ContainsFunc(words, lacks) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d %s, want %d and %q", p.Name, res.StatusCode, body, status, words)
		}
	}
}
