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
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
)

// Operated is a site with a router. The app of its workers runs requests for /block until
// [Operated.Release]. All have admin addresses.
type Operated struct {
	*Site
	Router *router.Router
	Member *hub.Handle // of the router
	Admin  string      // URL of the router's admin address

	blocked sync.WaitGroup
	release sync.Once
	app     *kit.Blocking
}

// NewOperated starts a router without workers, whose admin address wants the token if it is not "".
func NewOperated(t testing.TB, token string) *Operated {
	t.Helper()
	s := &Operated{Site: NewInBubble(t), app: &kit.Blocking{Release: make(chan struct{})}}
	s.App = s.app
	s.Member = s.Hub.Join(ring.Member{Name: "router-1", Role: ring.RoleRouter, State: ring.StateActive, Addr: "router:80"})
	table := Routes(t,
		`name: orders, match: {path: "/orders/{key}"}, key: "path:/orders/{key}"`,
		`name: rest, key: ["header:X-Key", "query:k"]`)
	s.Router = NewRouter(t, router.Config{Members: s.Member, Routes: table, Dial: s.Network.Dial})
	s.Admin = s.serve(admin.Config{
		Members: s.Member, Ready: s.Router.Ready, Operator: s.Router.Operator(), Token: token,
		Routes: func() status.RoutesStatus {
			return status.RoutesStatus{Loaded: time.Now(), Names: []string{"orders", "rest"}}
		},
		Metrics: metrics.NewRegistry([]prometheus.Collector{s.Router}...),
	})
	t.Cleanup(s.Release)
	return s
}

func (s *Operated) serve(cfg admin.Config) string { return Serve(s.T, admin.New(cfg)).URL }

// Start starts a worker, and waits until it serves a partition.
func (s *Operated) Start(change ...func(*worker.Config)) *Worker {
	s.T.Helper()
	w := s.StartServing(change...)
	w.Client = NewClient(s.T, client.Config{Members: w.Member, Dial: s.Network.Dial, Local: w.Local(nil)})
	s.T.Cleanup(s.Release) // before the worker ends
	w.Admin = s.serve(admin.Config{Members: w.Member, Ready: w.Ready, Drain: w.LeaveRing, Undrain: w.JoinRing, Operator: w.Client.Operator()})
	return w
}

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
func (s *Operated) KeyOf(w *Worker) string {
	for i := 0; ; i++ {
		key := fmt.Sprint("order-", i)
		if m, ok := w.Member.View().Owner(s.Ring.Partition(key)); ok && m.Name == w.Member.Self().Name {
			return key
		}
	}
}
