// Package admintest has a router, workers and their admin addresses in one process, for
// tests of what operators see.
package admintest

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/gateway/admin"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/routes"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/clienttest"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/workertest"
	"github.com/keyway-go/keyway/ring"
)

// Partitions is how many a [Site] has.
const Partitions = clienttest.Partitions

// Site is a router and workers.
type Site struct {
	*clienttest.Site
	Router *router.Router
	Member *hub.Handle // of the router
	Admin  string      // URL of the router's admin address

	blocked sync.WaitGroup
	release sync.Once
	app     *kit.Blocking
}

// Worker is a worker of a [Site], with an app whose requests for /block run until
// [Site.Release].
type Worker struct {
	*workertest.Worker
	Admin  string         // URL of its admin address
	Client *client.Client // that calls over the link
}

// New starts a router without workers, whose admin address wants the token if it is not "".
func New(t *testing.T, token string) *Site {
	t.Helper()
	s := &Site{Site: clienttest.NewSite(t), app: &kit.Blocking{Release: make(chan struct{})}}
	s.App = s.app
	s.Member = kit.Must(s.Hub.Join(ring.Member{Name: "router-1", Role: ring.RoleRouter, State: ring.StateActive, Addr: "router:80"}))
	table := kit.Must(routes.Parse("routes.yaml", []byte("routes:\n  - name: orders\n    match: {path: \"/orders/{key}\"}\n    key: path:/orders/{key}\n  - name: rest\n    key: [header:X-Key, query:k]\n")))
	s.Router = kit.Must(router.New(router.Config{Members: s.Member, Routes: table, Dial: s.Dial}))
	t.Cleanup(func() { s.Router.Close() })
	s.Admin = s.serve(admin.Config{
		Members: s.Member, Ready: s.Router.Ready, Lookup: s.Router.Lookup, Operator: s.Router.Operator(), Token: token,
		Routes: func() status.RoutesStatus {
			return status.RoutesStatus{Loaded: time.Now(), Names: []string{"orders", "rest"}}
		},
		Metrics: metrics.NewRegistry([]prometheus.Collector{s.Router}...),
	})
	t.Cleanup(s.Release)
	return s
}

func (s *Site) serve(cfg admin.Config) string {
	server := httptest.NewServer(admin.New(cfg))
	s.T.Cleanup(server.Close)
	return server.URL
}

// Start starts a worker, and waits until it serves what the ring gives it.
func (s *Site) Start(change ...func(*worker.Config)) *Worker {
	s.T.Helper()
	w := &Worker{Worker: s.Site.Start(change...)}
	w.Client = clienttest.NewClient(s.T, client.Config{Members: w.Member, Dial: s.Dial})
	s.T.Cleanup(s.Release) // before the worker ends
	w.Admin = s.serve(admin.Config{Members: w.Member, Ready: w.Ready, Drain: w.LeaveRing, Undrain: w.JoinRing, Operator: w.Client.Operator(w)})
	return w
}

// Cut takes a worker's address away from who would connect to it anew, and ends the
// connections that there are.
func (s *Site) Cut(w *Worker) { s.Sever(w.Worker, true) }

// Kill ends a worker as if its machine were gone.
func (s *Site) Kill(w *Worker) { s.Site.Kill(w.Worker) }

// Block sends a request for a key that runs until [Site.Release], if it gets the key. It
// comes from one of several clients.
func (s *Site) Block(key string, client int) {
	s.blocked.Go(func() {
		r := httptest.NewRequest(http.MethodGet, "http://shop.example/block", nil)
		r.RemoteAddr = net.JoinHostPort("192.0.2."+strconv.Itoa(client), "4711")
		r.Header.Set("X-Key", key)
		s.Router.ServeHTTP(httptest.NewRecorder(), r)
	})
}

// Running returns how many requests of [Site.Block] run.
func (s *Site) Running() int { return int(s.app.Running.Load()) }

// Release lets all requests of [Site.Block] end.
func (s *Site) Release() {
	s.release.Do(func() { close(s.app.Release) })
	s.blocked.Wait()
}

// KeyOf returns a key that the ring gives a worker.
func (s *Site) KeyOf(w *Worker) string {
	for i := 0; ; i++ {
		key := fmt.Sprint("order-", i)
		if m, ok := w.Member.View().Owner(s.Cluster.Ring.Partition(key)); ok && m.Name == w.Member.Self().Name {
			return key
		}
	}
}
