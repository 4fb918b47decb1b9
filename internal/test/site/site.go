// Package site starts clusters in one process for tests: workers that share a membership and a store in memory,
// routers, clients and admin addresses. All of them run until the test ends.
package site

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/memstore"
	"github.com/keyway-go/keyway/ring"
)

// StartReady starts a worker that logs nothing, and waits until it owns every
// partition.
func (c *Site) StartReady(change ...func(*worker.Config)) *Worker {
	c.T.Helper()
	quiet := func(cfg *worker.Config) { cfg.Logger = slog.New(slog.DiscardHandler) }
	w := c.Start(append([]func(*worker.Config){quiet}, change...)...)
	kit.Eventually(c.T, "it serves all partitions", func() bool { return w.Serving() == c.Ring.Partitions })
	return w
}

// Serve starts an app that runs until the test ends.
func Serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// Listen serves h as a worker does, and returns its address.
func (w *Worker) Listen(t testing.TB, h http.Handler) string {
	t.Helper()
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	w.Serve(t, l, h)
	return l.Addr().String()
}

// Serve serves h at a listener as a worker does, until the test ends.
func (w *Worker) Serve(t testing.TB, l net.Listener, h http.Handler) {
	w.Server = w.NewServer(h)
	kit.Serve(t, w.Server, l)
}

// StartApart starts a worker with a store of its own that the others do not
// see yet.
func (c *Site) StartApart(store worker.Store) *Worker {
	return c.Start(func(cfg *worker.Config) {
		cfg.Store = store
		if err := cfg.Members.(*hub.Handle).Isolate(true); err != nil {
			c.T.Fatal(err)
		}
	})
}

// Meet lets a worker of [Site.StartApart] and the others see each other.
func (w *Worker) Meet(t *testing.T) {
	t.Helper()
	if err := w.Member.Isolate(false); err != nil {
		t.Fatal(err)
	}
}

// Site is workers that share a hub and a store in memory.
type Site struct {
	T        testing.TB
	Settings ring.Settings
	Ring     ring.Config // of Settings
	Hub      *hub.Hub
	Store    worker.Store
	n        int
}

// New makes a Site without workers, whose ring has that many partitions.
func New(t testing.TB, partitions int) *Site {
	t.Helper()
	return NewWith(t, ring.Settings{Ring: ring.Config{Partitions: partitions}})
}

// NewWith makes a Site without workers.
func NewWith(t testing.TB, settings ring.Settings) *Site {
	t.Helper()
	settings.TTL = cmp.Or(settings.TTL, kit.TTL)
	h, err := hub.New(settings)
	if err != nil {
		t.Fatal(err)
	}
	return &Site{T: t, Settings: settings, Ring: settings.Ring, Hub: h, Store: memstore.New(memstore.Config{Settings: settings, NewCluster: true})}
}

// Worker is a worker of a Site.
type Worker struct {
	*worker.Worker
	Ring   ring.Config
	Member *hub.Handle
	Server *worker.Server // of the last Serve
}

// Start starts a worker named by its number, whose Config the changes have been
// applied to. It runs until the test ends.
func (c *Site) Start(change ...func(*worker.Config)) *Worker {
	c.T.Helper()
	c.n++
	return c.StartNamed(fmt.Sprintf("w%d", c.n), change...)
}

// StartNamed is [Site.Start] with a name.
func (c *Site) StartNamed(name string, change ...func(*worker.Config)) *Worker {
	c.T.Helper()
	member, err := c.Hub.Join(ring.Member{Name: name, Role: ring.RoleWorker, State: ring.StateJoining, Addr: name + ":80"})
	if err != nil {
		c.T.Fatal(err)
	}
	cfg := worker.Config{
		Members: member, Store: c.Store, NewCluster: true, OnPlacements: member.Place,
		Logger: slog.New(slog.NewTextHandler(c.T.Output(), nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	w, err := worker.Start(c.T.Context(), cfg)
	if err != nil {
		c.T.Fatal(err)
	}
	c.T.Cleanup(func() { w.Close() })
	return &Worker{Worker: w, Ring: c.Ring, Member: member}
}

// AwaitServing waits until w owns every partition.
func (w *Worker) AwaitServing(t testing.TB, partitions int) {
	t.Helper()
	for w.Serving() < partitions {
		time.Sleep(10 * time.Millisecond) // of a bubble's clock
	}
}

// IsActive reports whether the worker has a place on the ring.
func (w *Worker) IsActive() bool { return w.Member.Self().State == ring.StateActive }

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

// Ask sends a request for a key to a handler and returns the answer.
func Ask(t testing.TB, h http.Handler, path, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
	r.Header.Set(gateway.HeaderKey, key)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// Post sends one POST for the key k.
func Post(t testing.TB, client *http.Client, target, contentType, body string) (int, http.Header, string) {
	t.Helper()
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body)))
	req.Header.Set("X-Key", "k")
	req.Header.Set(gateway.HeaderKey, "k")
	req.Header.Set("Content-Type", contentType)
	res, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return 0, nil, ""
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, res.Header, string(got)
}
