package site

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
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
)

// Operated is a router and workers.
type Operated struct {
	*Bubble
	Router *router.Router
	Member *hub.Handle // of the router
	Admin  string      // URL of the router's admin address

	blocked sync.WaitGroup
	release sync.Once
	app     *kit.Blocking
}

// OperatedWorker is a worker of an [Operated], with an app whose requests for /block run until
// [Operated.Release].
type OperatedWorker struct {
	*Worker
	Admin  string         // URL of its admin address
	Client *client.Client // that calls over the link
}

// NewOperated starts a router without workers, whose admin address wants the token if it is not "".
func NewOperated(t *testing.T, token string) *Operated {
	t.Helper()
	s := &Operated{Bubble: NewInBubble(t), app: &kit.Blocking{Release: make(chan struct{})}}
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

func (s *Operated) serve(cfg admin.Config) string {
	server := httptest.NewServer(admin.New(cfg))
	s.T.Cleanup(server.Close)
	return server.URL
}

// Start starts a worker, and waits until it serves what the ring gives it.
func (s *Operated) Start(change ...func(*worker.Config)) *OperatedWorker {
	s.T.Helper()
	w := &OperatedWorker{Worker: s.Bubble.StartServing(change...)}
	w.Client = NewClient(s.T, client.Config{Members: w.Member, Dial: s.Dial})
	s.T.Cleanup(s.Release) // before the worker ends
	w.Admin = s.serve(admin.Config{Members: w.Member, Ready: w.Ready, Drain: w.LeaveRing, Undrain: w.JoinRing, Operator: w.Client.Operator(w)})
	return w
}

// Cut takes a worker's address away from who would connect to it anew, and ends the
// connections that there are.
func (s *Operated) Cut(w *OperatedWorker) { s.Sever(w.Worker, true) }

// Kill ends a worker as if its machine were gone.
func (s *Operated) Kill(w *OperatedWorker) { s.Bubble.Kill(w.Worker) }

// Block sends a request for a key that runs until [Operated.Release], if it gets the key. It
// comes from one of several clients.
func (s *Operated) Block(key string, client int) {
	s.blocked.Go(func() {
		r := httptest.NewRequest(http.MethodGet, "http://shop.example/block", nil)
		r.RemoteAddr = net.JoinHostPort("192.0.2."+strconv.Itoa(client), "4711")
		r.Header.Set("X-Key", key)
		s.Router.ServeHTTP(httptest.NewRecorder(), r)
	})
}

// Running returns how many requests of [Operated.Block] run.
func (s *Operated) Running() int { return int(s.app.Running.Load()) }

// Release lets all requests of [Operated.Block] end.
func (s *Operated) Release() {
	s.release.Do(func() { close(s.app.Release) })
	s.blocked.Wait()
}

// KeyOf returns a key that the ring gives a worker.
func (s *Operated) KeyOf(w *OperatedWorker) string {
	for i := 0; ; i++ {
		key := fmt.Sprint("order-", i)
		if m, ok := w.Member.View().Owner(s.Ring.Partition(key)); ok && m.Name == w.Member.Self().Name {
			return key
		}
	}
}
