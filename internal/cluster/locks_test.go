package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/records"
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

// longLocks are keys of two workers that are locked for long, by way of a router's lock service and by a client of
// the library.
type longLocks struct {
	*pair
	ttl    time.Duration // of sessions
	http   *lockAsker
	tokens map[string]int64        // of those by way of the router
	held   map[string]*client.Lock // the client's
}

// settings are those of the members.
func (l *longLocks) settings() ring.Settings {
	return ring.Settings{Ring: ring.Config{Partitions: partitions}, TTL: l.ttl}
}

func lockForLong(t *testing.T, redis string, ttl time.Duration) *longLocks {
	t.Helper()
	l := &longLocks{ttl: ttl, tokens: make(map[string]int64), held: make(map[string]*client.Lock)}
	l.pair = &pair{t: t, programs: programs(t), redis: redis, workers: make(map[string]*cluster.Process)}
	socket := filepath.Join(t.TempDir(), "locks")
	r := l.start("router", l.programs.Router, "--redis", redis, "--new-cluster", "--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0",
		"--admin", "127.0.0.1:0", "--session-ttl", ttl.String(), "--locks", "unix://"+socket)
	l.routers = [2]*cluster.Process{r, r}
	for _, name := range []string{"w1", "w2"} {
		l.startWorker(name, "--session-ttl", ttl.String())
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	l.http = &lockAsker{t, &http.Client{Transport: &http.Transport{DialContext: dial}}}
	t.Cleanup(l.http.http.CloseIdleConnections)
	members := kit.Must(gossip.Start(t.Context(), gossip.Config{
		Self:     ring.Member{Name: "client", Role: ring.RoleRouter, State: ring.StateActive},
		Settings: l.settings(), Seeds: []string{r.Gossip},
	}))
	t.Cleanup(func() { members.Close() })
	client := kit.Must(client.New(client.Config{Members: members}))
	t.Cleanup(func() { client.Close() })
	for i := range 8 { // some of each worker's
		key := fmt.Sprint("http-", i)
		l.tokens[key] = l.http.ask(http.StatusOK, http.MethodPost, l.extended(key), "mine")
		key = fmt.Sprint("client-", i)
		l.held[key] = kit.Must(client.Lock(t.Context(), key, locking.TTL(20*ttl)))
	}
	return l
}

// extended is the path by which a key is locked for long.
func (l *longLocks) extended(key string) string { return fmt.Sprintf("%s?ttl=%v", key, 20*l.ttl) }

// same sees that all locks are held, and are the same.
func (l *longLocks) same(when string) {
	l.t.Helper()
	for key, token := range l.tokens {
		if got := l.http.ask(http.StatusOK, http.MethodPut, l.extended(key), "mine"); got != token {
			l.t.Errorf("%s: %s token %d became %d", key, when, token, got)
		}
	}
	for key, held := range l.held {
		if err := held.Context().Err(); err != nil {
			l.t.Errorf("%s: lost %s: %v", key, when, context.Cause(held.Context()))
		}
		l.http.ask(http.StatusLocked, http.MethodPost, key, "another's")
	}
}

// release gives all locks back, which nobody else has got before.
func (l *longLocks) release() {
	l.t.Helper()
	for key, token := range l.tokens {
		l.http.ask(http.StatusLocked, http.MethodPost, key, "another's")
		l.http.ask(http.StatusNoContent, http.MethodDelete, key, "mine")
		if next := l.http.ask(http.StatusOK, http.MethodPost, key, "another's"); next <= token {
			l.t.Errorf("%s: token %d after %d", key, next, token)
		}
	}
	for key, held := range l.held {
		l.http.ask(http.StatusLocked, http.MethodPost, key, "another's")
		if err := held.Unlock(l.t.Context()); err != nil || held.Context().Err() == nil {
			l.t.Errorf("%s: unlocked with %v", key, err)
		}
	}
}

// intrude asks for all keys again and again until it is stopped, and sees that none is got.
func (l *longLocks) intrude() (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	var all sync.WaitGroup
	try := func(key string) {
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			req := kit.Must(http.NewRequestWithContext(ctx, http.MethodPost, "http://locks/v1/locks/"+key, nil))
			res, err := l.http.http.Do(req)
			if err != nil {
				continue // the test ends
			}
			if res.Body.Close(); res.StatusCode == http.StatusOK {
				l.t.Errorf("%s: another one has it", key)
			}
		}
	}
	for key := range l.tokens {
		all.Go(func() { try(key) })
	}
	for key := range l.held {
		all.Go(func() { try(key) })
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// written waits until the store keeps all locks in another generation than one, and returns that.
func (l *longLocks) written(s *store.Store, before string) (gen string) {
	l.t.Helper()
	kept, err := 0, error(nil)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if gen, err = s.Generation(l.t.Context(), true); err != nil || gen == before {
			continue
		}
		var all, own records.Snapshot
		all, err = s.Observe(l.t.Context(), gen, "", 0, nil)
		kept = 0
		for _, session := range all.Sessions { // whose locks are told to nobody else
			own, err = s.Observe(l.t.Context(), gen, session.Incarnation, 0, nil)
			for _, p := range own.Partitions {
				kept += len(p.Written)
			}
		}
		if kept == len(l.tokens)+len(l.held) {
			return gen
		}
	}
	l.t.Fatalf("within a minute the store keeps %d locks: %v", kept, err)
	return ""
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
			l := lockForLong(t, start(t), 3*time.Second)
			l.workers["w1"].Kill()
			l.same("after a death")
			l.startWorker("w3", "--session-ttl", l.ttl.String())
			stopCleanly(t, l.workers["w2"])
			l.same("after a move")
			l.release()
		})
	}
}

// Locks of long leases outlive a failover of the store, planned or by a master's death, which begins another
// generation: their owners write them again. So they are held at them, and outlive them after that too; and nobody else gets
// their keys at any time.
func TestLongLocksOutliveAFailover(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) (url string, failover func()){
		"PlannedSentinel": func(t *testing.T) (string, func()) {
			s := redistest.StartSentinel(t)
			return s.URL(), s.Switchover
		},
		"KilledSentinel": func(t *testing.T) (string, func()) {
			s := redistest.StartSentinel(t)
			return s.URL(), s.Failover
		},
		"KilledCluster": func(t *testing.T) (string, func()) {
			c := redistest.StartCluster(t, 3)
			return c.URL(), func() {
				for _, n := range c.Nodes {
					if keys := strings.Fields(n.CLI("keys", "*")); len(keys) > 0 {
						c.Failover(keys[0])
						return
					}
				}
				t.Error("no node has keys")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Require(t)
			url, failover := start(t)
			l := lockForLong(t, url, 10*time.Second)
			s := kit.Must(store.New(url, store.Config{Settings: l.settings()}))
			defer s.Close()
			gen := l.written(s, "")
			stop := l.intrude()
			defer stop()
			failover()
			l.written(s, gen)
			l.same("after a failover")
			l.workers["w1"].Kill()
			l.same("after a failover and a death")
			l.startWorker("w3", "--session-ttl", l.ttl.String())
			stopCleanly(t, l.workers["w2"])
			l.same("after a failover and a move")
			stop()
			l.release()
		})
	}
}
