package cluster_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// A Client's calls while workers are killed and start again: none fails that has not
// started, as far as the worker has had the time to say so, and none runs twice.
func TestClientsOfWorkersThatDie(t *testing.T) {
	const clients, keys, deaths = 24, 4, 4
	var mu sync.Mutex
	begun := make(map[string]int) // calls, by number
	app := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body := string(kit.Must(io.ReadAll(r.Body)))
		mu.Lock()
		begun[body]++
		mu.Unlock()
		time.Sleep(2 * time.Millisecond) // the others wait for the key
		io.WriteString(rw, body)
	}))
	defer app.Close()
	const ttl = 2 * time.Second
	p := startRouters(t, "--session-ttl", ttl.String())
	args := []string{"--session-ttl", ttl.String(), "--upstream", app.URL}
	members, err := gossip.Start(t.Context(), gossip.Config{
		Self:     ring.Member{Name: "client", Role: ring.RoleRouter, State: ring.StateActive},
		Settings: ring.Settings{Ring: ring.Config{Partitions: partitions}, TTL: ttl}, Seeds: []string{p.routers[0].Gossip},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer members.Close()
	for _, name := range []string{"w1", "w2"} {
		p.startWorker(name, args...)
	}
	client := kit.Must(client.New(client.Config{Members: members}))
	defer client.Close()

	var failed, answered atomic.Int64
	var done atomic.Bool
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for n := 0; !done.Load(); n++ {
				number := fmt.Sprint(i, "-", n)
				r := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://app/", strings.NewReader(number)))
				r.Header.Set(gateway.HeaderKey, fmt.Sprint("k", (i+n)%keys))
				res, err := client.RoundTrip(r)
				switch {
				case errors.Is(err, gateway.ErrMayHaveRun):
					failed.Add(1)
					continue
				case err != nil:
					t.Errorf("call %s, which has not started: %v", number, err)
					return
				}
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || res.StatusCode != http.StatusOK || string(body) != number {
					t.Errorf("call %s: %d %q %v", number, res.StatusCode, body, err)
				}
				answered.Add(1)
			}
		})
	}
	await := func() {
		t.Helper()
		before := answered.Load()
		kit.Eventually(t, "calls are answered", func() bool { return answered.Load() > before+200 })
	}
	await()
	for n := range deaths {
		name := []string{"w1", "w2"}[n%2]
		p.workers[name].Kill()
		await()
		p.startWorker(name, args...)
		await()
	}
	done.Store(true)
	all.Wait()
	t.Logf("%d calls answered, %d may have run", answered.Load(), failed.Load())
	if n := failed.Load(); n > deaths*clients {
		t.Errorf("%d calls may have run, of %d that were under way when a worker died", n, deaths*clients)
	}
	mu.Lock()
	defer mu.Unlock()
	for number, times := range begun {
		if times > 1 {
			t.Errorf("call %s ran %d times", number, times)
		}
	}
}
