package caddykeyway_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/redistest"
)

const routes = `
routes:
  - {name: orders, match: {path: "/orders/{order}"}, key: path:order, prefix: "order:"}
  - {name: payments, match: {path: /payments}, key: "json:/order", prefix: "order:"}
  - {name: others, key: header:X-Key}
`

// answer is that of a worker's demo.
type answer struct {
	Key, Worker string
	Token       int64
	Overlap     bool
}

// asked are requests of one key, each made in another way.
var asked = map[string]func(t *testing.T, base string, i int) (key string, r *http.Request){
	"by header": func(t *testing.T, base string, i int) (string, *http.Request) {
		r := request(t, http.MethodGet, base+"/", "")
		r.Header.Set("X-Key", fmt.Sprintf("k%%20%d", i))
		return fmt.Sprint("k ", i), r
	},
	"by path": func(t *testing.T, base string, i int) (string, *http.Request) {
		return fmt.Sprint("order:", i), request(t, http.MethodGet, fmt.Sprint(base, "/orders/", i), "")
	},
	"by body": func(t *testing.T, base string, i int) (string, *http.Request) {
		r := request(t, http.MethodPost, base+"/payments", fmt.Sprintf(`{"order": %d, "note": %q}`, i, strings.Repeat("x", 20_000)))
		r.Header.Set("Content-Type", "application/json")
		return fmt.Sprint("order:", i), r
	},
}

func request(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Caddy sends each request to the door of its key's owner, without a hop, while the workers stay as they are. When a worker
// leaves, or dies, no request fails, and soon none takes a hop again.
func TestRequestsArriveAtTheirOwners(t *testing.T) {
	programs := kit.Must(cluster.Build(t.Context(), t.TempDir()))
	file := filepath.Join(t.TempDir(), "routes.yaml")
	if err := os.WriteFile(file, []byte(routes), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KEYWAY_GOSSIP_KEY", strings.Repeat("0f", 32))
	redis := redistest.Start(t)
	_, port, _ := net.SplitHostPort(kit.FreeAddr(t))
	var workers []*cluster.Process
	doors, seed := make(map[string]string), kit.FreeAddr(t)
	gossip := []string{seed, "127.0.0.2:0", "127.0.0.3:0"}
	for i := range 3 {
		host, name := fmt.Sprint("127.0.0.", i+1), fmt.Sprint("worker-", i+1)
		w, err := cluster.Start(t.Context(), name, programs.Worker, t.Output(), "--name", name, "--public", net.JoinHostPort(host, port), "--listen", host+":0",
			"--routes", file, "--redis", redis.URL(), "--gossip", gossip[i], "--join", seed, "--new-cluster", "--session-ttl", "2s")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.KillGroup)
		workers, doors[net.JoinHostPort(host, port)] = append(workers, w), name
	}
	addr := kit.FreeAddr(t)
	text, err := os.ReadFile("../../deploy/balancers/Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	if err := load(t, global+strings.NewReplacer(":80 {", "http://"+addr+" {", "worker-1:7946 worker-2:7946", seed, "8080", port, "key header:X-Key", "session_ttl 2s\nroutes "+file,
		"0.0.0.0:7946", "127.0.0.1:0", "\t\tfail_duration", "\t\t"+tellsDoor+"\n\t\tfail_duration").Replace(string(text))); err != nil {
		t.Fatal(err)
	}
	base, client := "http://"+addr, kit.Client(t, "HTTP/1.1")
	tokens := make(map[string]int64) // by keys
	// hop asks for a key, and reports whether the request came to another door than its owner's.
	hop := func(t *testing.T, way string, i int) bool {
		t.Helper()
		key, r := asked[way](t, base, i)
		res, body := kit.Do(t, client, r)
		var a answer
		door := doors[res.Header.Get(headerDoor)]
		if res.StatusCode != http.StatusOK || json.Unmarshal([]byte(body), &a) != nil || a.Key != key || a.Overlap || a.Token <= tokens[key] || door == "" {
			t.Fatalf("%s, %s at %q: %s %s, want a token above %d", way, key, door, res.Status, body, tokens[key])
		}
		tokens[key] = a.Token
		return a.Worker != door
	}
	// quiet waits until 200 requests in a row took none: on a busy machine a worker may lose its session, and keys move.
	quiet := func(t *testing.T, way string) {
		t.Helper()
		n := 0
		kit.Eventually(t, "no request takes a hop", func() bool {
			if n++; hop(t, way, n) {
				n = 0
			}
			return n == 200
		})
	}
	for way := range asked {
		t.Run(way, func(t *testing.T) { quiet(t, way) })
	}
	t.Run("two keys", func(t *testing.T) {
		r := request(t, http.MethodGet, base+"/", "")
		r.Header["X-Key"] = []string{"a", "b"}
		if res, body := kit.Do(t, client, r); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "more than once") {
			t.Errorf("%s %s, want the door's 400", res.Status, body)
		}
	})
	t.Run("a worker leaves", func(t *testing.T) {
		if err := workers[2].Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		for i := 0; !ended(workers[2]); i++ {
			hop(t, "by path", i%500)
		}
		quiet(t, "by path")
	})
	t.Run("a worker dies", func(t *testing.T) {
		workers[1].KillGroup()
		for i := range 200 {
			hop(t, "by path", i)
		}
		quiet(t, "by path")
	})
}

func ended(p *cluster.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}
