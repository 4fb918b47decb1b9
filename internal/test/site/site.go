// Package site starts clusters in one process for tests. A [Site] has a membership without gossip, and a store and
// a network in memory. Its workers, routers, clients and admin addresses run until the test ends. There are stand-ins
// for workers, too: a [Fake] answers as the test says.
package site

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/memstore"
	"github.com/keyway-go/keyway/ring"
)

// Site is a cluster. Make one with [New], [NewWith] or [NewInBubble].
type Site struct {
	T        testing.TB
	Settings ring.Settings
	Ring     ring.Config // of Settings
	Hub      *hub.Hub
	Store    worker.Store
	Network  Network      // of the workers of [Site.StartServing] and the clients of [Site.NewClient]
	App      http.Handler // of the workers of [Site.StartServing]; may be nil
	workers  int
	clients  atomic.Int64
}

// New makes a Site without members, whose ring has that many partitions.
func New(t testing.TB, partitions int) *Site {
	return NewWith(t, ring.Settings{Ring: ring.Config{Partitions: partitions}})
}

// Partitions is how many a Site of [NewInBubble] has.
const Partitions = 16

// NewInBubble makes a Site without members in a bubble of synctest.
func NewInBubble(t testing.TB) *Site {
	kit.EmptyPools(t)
	return New(t, Partitions)
}

// NewWith makes a Site without members.
func NewWith(t testing.TB, settings ring.Settings) *Site {
	settings.TTL = cmp.Or(settings.TTL, kit.TTL)
	return &Site{
		T: t, Settings: settings, Ring: settings.Ring, Hub: hub.New(settings),
		Store: memstore.New(memstore.Config{Settings: settings, NewCluster: true}),
	}
}

// Join adds a member that owns nothing, such as a router.
func (s *Site) Join(name string) *hub.Handle {
	return s.Hub.Join(ring.Member{Name: name, Role: ring.RoleRouter, State: ring.StateActive})
}

// NewRouter makes a router of the site; see the function NewRouter.
func (s *Site) NewRouter(cfg router.Config) *router.Router {
	s.T.Helper()
	cfg.Members = s.Join("router")
	return NewRouter(s.T, cfg)
}

// NewRouter makes a router. Its key is the field X-Key by default.
func NewRouter(t testing.TB, cfg router.Config) *router.Router {
	t.Helper()
	if cfg.Keys == nil && cfg.Routes == nil {
		cfg.Keys = kit.KeySources(t, "header:X-Key")
	}
	rt, err := router.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close() })
	return rt
}

// NewClient returns a client that owns nothing, and calls over the site's network.
func (s *Site) NewClient(change ...func(*client.Config)) *client.Client {
	s.T.Helper()
	cfg := client.Config{Members: s.Join(fmt.Sprint("client", s.clients.Add(1))), Dial: s.Network.Dial}
	for _, f := range change {
		f(&cfg)
	}
	return NewClient(s.T, cfg)
}

// NewClient makes a client.
func NewClient(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Worker is a worker of a Site.
type Worker struct {
	*worker.Worker
	Ring   ring.Config
	Member *hub.Handle
	Server *worker.Server // of the last Serve

	Admin  string         // URL of the admin address, and a client that calls
	Client *client.Client // over the link: of [Operated.Start]; otherwise zero
}

// Start starts a worker named by its number, whose Config the changes have been applied to.
func (s *Site) Start(change ...func(*worker.Config)) *Worker {
	s.T.Helper()
	s.workers++
	return s.StartNamed(fmt.Sprintf("w%d", s.workers), change...)
}

// StartNamed is [Site.Start] with a name.
func (s *Site) StartNamed(name string, change ...func(*worker.Config)) *Worker {
	s.T.Helper()
	member := s.Hub.Join(ring.Member{Name: name, Role: ring.RoleWorker, State: ring.StateJoining, Addr: name + ":80"})
	cfg := worker.Config{
		Members: member, Store: s.Store, NewCluster: true, OnPlacements: member.Place,
		Logger: slog.New(slog.NewTextHandler(s.T.Output(), nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	w, err := worker.Start(s.T.Context(), cfg)
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { w.Close() })
	return &Worker{Worker: w, Ring: s.Ring, Member: member}
}

// StartReady starts a worker that logs nothing, and waits until it owns every partition.
func (s *Site) StartReady(change ...func(*worker.Config)) *Worker {
	s.T.Helper()
	quiet := func(cfg *worker.Config) { cfg.Logger = slog.New(slog.DiscardHandler) }
	w := s.Start(append([]func(*worker.Config){quiet}, change...)...)
	kit.Eventually(s.T, "it serves all partitions", func() bool { return w.Serving() == s.Ring.Partitions })
	return w
}

// StartOwner starts a worker in a bubble, and waits until it owns every partition.
func (s *Site) StartOwner(change ...func(*worker.Config)) *Worker {
	s.T.Helper()
	w := s.Start(change...)
	w.AwaitServing(s.T, s.Ring.Partitions)
	return w
}

// StartServing starts a worker that is reached over the site's network, and waits until it serves a partition.
func (s *Site) StartServing(change ...func(*worker.Config)) *Worker {
	s.T.Helper()
	w := s.Start(change...)
	w.Serve(s.T, s.Network.Listen(w.Member.Self().Addr), w.Handler(s.App))
	w.AwaitServing(s.T, 1)
	return w
}

// Sever ends all connections of the site's network to a worker, and allows new ones or not.
func (s *Site) Sever(w *Worker, cut bool) { s.Network.Sever(w.Member.Self().Addr, cut) }

// Mute lets clients on the site's network hear nothing more of a worker.
func (s *Site) Mute(w *Worker) { s.Network.Mute(w.Member.Self().Addr, true) }

// Unmute lets clients hear a worker again, by other connections.
func (s *Site) Unmute(w *Worker) {
	s.Network.Mute(w.Member.Self().Addr, false)
	s.Sever(w, false)
}

// Kill ends a worker as the death of its process does.
func (s *Site) Kill(w *Worker) {
	s.Sever(w, true)
	w.Close()
	w.Member.Vanish()
}

// KeyOf returns a key that a worker owns.
func (s *Site) KeyOf(w *Worker, prefix string) string {
	for i := 0; ; i++ {
		key := fmt.Sprintf("%s%d", prefix, i)
		if err := w.Do(s.T.Context(), key, func(gateway.Execution) error { return nil }); err == nil {
			return key
		}
	}
}

// Listen serves h as a worker does, announces its address and returns it.
func (w *Worker) Listen(t testing.TB, h http.Handler) string {
	t.Helper()
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	w.Serve(t, l, h)
	addr := l.Addr().String()
	_ = w.Member.Announce(func(self *ring.Member) { self.Addr = addr }) // a hub has no errors
	return addr
}

// Serve serves h at a listener as a worker does.
func (w *Worker) Serve(t testing.TB, l net.Listener, h http.Handler) {
	w.Server = w.NewServer(h)
	kit.Serve(t, w.Server, func() error { return w.Server.Serve(l) })
}

// AwaitServing waits in a bubble until w owns that many partitions.
func (w *Worker) AwaitServing(t testing.TB, partitions int) {
	t.Helper()
	for w.Serving() < partitions {
		time.Sleep(10 * time.Millisecond) // of a bubble's clock
	}
}

// IsActive reports whether the worker has a place on the ring.
func (w *Worker) IsActive() bool { return w.Member.Self().State == ring.StateActive }

// IsFree reports whether nobody holds a key of the worker.
func (w *Worker) IsFree(t testing.TB, key string) bool {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	return w.Do(ctx, key, func(gateway.Execution) error { return nil }) == nil
}

// HoldKey holds the key k until n callers wait for it.
func (w *Worker) HoldKey(t testing.TB, n int) (wait func()) {
	held := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := w.Do(t.Context(), "k", func(gateway.Execution) error {
			close(held)
			kit.Eventually(t, "the callers wait", func() bool { return w.Queued("k") == n })
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	<-held
	return func() { <-done }
}
