package main

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// A router sends nothing to a worker that is in its gossip and has no session in the
// store: one that never had one, and one that has lost it.
func TestTrapNoSessionNoTraffic(t *testing.T) {
	settings := ring.Settings{TTL: ring.MinSessionTTL}
	for name, lives := range map[string]bool{"never had one": false, "has lost it": true} {
		t.Run(name, func(t *testing.T) {
			redis := kit.Must(store.StartEmbedded("127.0.0.1:0", ""))
			defer redis.Close()
			r := start(t, "--redis", redis.URL(), "--new-cluster", "--session-ttl", settings.TTL.String(), "--hold", "1s")
			if !lives {
				redis.Close()
			}
			l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
			members := kit.Must(gossip.Start(t.Context(), gossip.Config{
				Settings: settings, Seeds: []string{r.gossip}, Self: ring.Member{Name: "w", Role: ring.RoleWorker, Addr: l.Addr().String()},
			}))
			defer members.Close()
			s := kit.Must(store.New(redis.URL(), store.Config{Settings: settings, NewCluster: true}))
			defer s.Close()
			w := kit.Must(worker.Start(t.Context(), worker.Config{Members: members, Store: s, NewCluster: true}))
			defer w.Close()
			var asked atomic.Int64
			server := w.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // whether or not it has a session
				asked.Add(1)
				io.WriteString(w, "served")
			}))
			defer server.Close()
			go server.Serve(l)
			if lives {
				if status, body := fetch(t, r.requests, "k"); status != http.StatusOK {
					t.Fatalf("%d %s", status, body)
				}
				redis.Close()
			}
			kit.Eventually(t, "it is off the ring, and in gossip", func() bool {
				view := members.View()
				return len(view.Members) == 2 && len(ring.ActiveWorkers(view.Members)) == 0
			})
			kit.Eventually(t, "the router knows", func() bool {
				status, _ := fetch(t, r.admin+"/readyz", "")
				return status == http.StatusServiceUnavailable
			})
			before := asked.Load()
			if status, body := fetch(t, r.requests, "k"); status != http.StatusServiceUnavailable {
				t.Errorf("%d %s", status, body)
			}
			if n := asked.Load() - before; n > 0 {
				t.Errorf("the router has asked the worker %d times", n)
			}
		})
	}
}
