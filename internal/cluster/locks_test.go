package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/localmutex/locking"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// lockAsker asks the lock service of a router on a Unix socket.
type lockAsker struct {
	t    *testing.T
	http *http.Client
}

// ask makes a request with an Idempotency-Key until it is answered with that status, and returns the token.
func (a *lockAsker) ask(status int, method, path, id string) (token int64) {
	a.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		req := kit.Must(http.NewRequestWithContext(a.t.Context(), method, "http://locks/v1/locks/"+path, nil))
		req.Header.Set("Idempotency-Key", id)
		res := kit.Must(a.http.Do(req))
		var answer struct{ Token int64 }
		_ = json.NewDecoder(res.Body).Decode(&answer) // there is none with 204
		res.Body.Close()
		switch {
		case res.StatusCode == status:
			return answer.Token
		case res.StatusCode != http.StatusServiceUnavailable || time.Now().After(deadline):
			a.t.Fatalf("%s %s: %d, want %d", method, path, res.StatusCode, status)
		}
	}
}

// Locks of long leases outlive the owner of their keys, whatever kind of Redis keeps them, and move along
// after that: each is the same at the next owner, and nobody else gets its key.
func TestLongLocksOutliveTheirOwners(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) (url string){
		"Redis":    func(t *testing.T) string { return redistest.Start(t).URL() },
		"Sentinel": func(t *testing.T) string { return redistest.StartSentinel(t).URL() },
		"Cluster":  func(t *testing.T) string { return redistest.StartCluster(t, 3).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Require(t)
			const ttl = 3 * time.Second
			p := &pair{t: t, programs: programs(t), redis: start(t), workers: make(map[string]*cluster.Process)}
			socket := filepath.Join(t.TempDir(), "locks")
			r := p.start("router", p.programs.Router, "--redis", p.redis, "--new-cluster", "--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0",
				"--session-ttl", ttl.String(), "--locks", "unix://"+socket)
			p.routers = [2]*cluster.Process{r, r}
			for _, name := range []string{"w1", "w2"} {
				p.startWorker(name, "--session-ttl", ttl.String())
			}
			dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			}
			locks := &lockAsker{t, &http.Client{Transport: &http.Transport{DialContext: dial}}}
			defer locks.http.CloseIdleConnections()
			members := kit.Must(gossip.Start(t.Context(), gossip.Config{
				Self:     ring.Member{Name: "client", Role: ring.RoleRouter, State: ring.StateActive},
				Settings: ring.Settings{Ring: ring.Config{Partitions: partitions}, TTL: ttl}, Seeds: []string{r.Gossip},
			}))
			defer members.Close()
			client := kit.Must(router.NewClient(router.ClientConfig{Members: members}))
			defer client.Close()

			const lease = 20 * ttl
			tokens, held := make(map[string]int64), make(map[string]*router.Lock)
			for i := range 8 { // some of each worker's
				key := fmt.Sprint("http-", i)
				tokens[key] = locks.ask(http.StatusOK, http.MethodPost, fmt.Sprintf("%s?ttl=%v", key, lease), "mine")
				key = fmt.Sprint("client-", i)
				held[key] = kit.Must(client.Lock(t.Context(), key, locking.TTL(lease)))
			}
			same := func(when string) {
				t.Helper()
				for key, token := range tokens {
					if got := locks.ask(http.StatusOK, http.MethodPut, fmt.Sprintf("%s?ttl=%v", key, lease), "mine"); got != token {
						t.Errorf("%s: %s token %d became %d", key, when, token, got)
					}
				}
			}
			p.workers["w1"].Kill()
			same("after a death")
			p.startWorker("w3", "--session-ttl", ttl.String())
			stopCleanly(t, p.workers["w2"])
			same("after a move")
			for key, token := range tokens {
				locks.ask(http.StatusLocked, http.MethodPost, key, "another's")
				locks.ask(http.StatusNoContent, http.MethodDelete, key, "mine")
				if next := locks.ask(http.StatusOK, http.MethodPost, key, "another's"); next <= token {
					t.Errorf("%s: token %d after %d", key, next, token)
				}
			}
			for key, l := range held {
				locks.ask(http.StatusLocked, http.MethodPost, key, "another's")
				if err := l.Unlock(t.Context()); err != nil || l.Context().Err() == nil {
					t.Errorf("%s: unlocked with %v", key, err)
				}
			}
		})
	}
}
