// Package clienttest has sites of workers in memory, and clients of them, for tests.
package clienttest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/routertest"
	"github.com/keyway-go/keyway/internal/test/workertest"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// Site is workers that take the link over connections in memory, and clients of
// them, in a bubble.
type Site struct {
	*workertest.Cluster
	T    *testing.T
	mu   sync.Mutex
	at   map[string]*pipeListener // by address
	conn map[string][]net.Conn    // clients' ends, by address
	cut  map[string]bool          // addresses that nothing reaches
	deaf map[string]bool          // addresses of which nothing is heard, by connections that are there

	Slow time.Duration // what the answer to a call of the method late takes longer; see delay
	late string
}

// Delay lets the answers to calls of a method take longer from now on.
func (s *Site) Delay(method string, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Slow, s.late = by, method
}

// wire is a client's end of a connection.
type wire struct {
	net.Conn
	site *Site
	addr string
	late atomic.Bool // what is read next comes late
}

func (c *wire) Write(p []byte) (int, error) {
	c.site.mu.Lock()
	late := c.site.late != "" && bytes.Contains(p, []byte(c.site.late))
	c.site.mu.Unlock()
	if late {
		c.late.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *wire) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if c.late.Swap(false) {
			c.site.mu.Lock()
			slow := c.site.Slow
			c.site.mu.Unlock()
			time.Sleep(slow)
		}
		c.site.mu.Lock()
		deaf := c.site.deaf[c.addr]
		c.site.mu.Unlock()
		if !deaf || err != nil {
			return n, err
		}
	}
}

// Mute lets clients hear nothing more of a worker.
func (s *Site) Mute(w *workertest.Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf[w.Member.Self().Addr] = true
}

// Unmute lets clients hear a worker again, by other connections.
func (s *Site) Unmute(w *workertest.Worker) {
	s.mu.Lock()
	s.deaf[w.Member.Self().Addr] = false
	s.mu.Unlock()
	s.Sever(w, false)
}

// NewSite makes a site without workers.
func NewSite(t *testing.T) *Site {
	kit.EmptyPools(t)
	return &Site{Cluster: workertest.New(t, 16), T: t, at: make(map[string]*pipeListener), conn: make(map[string][]net.Conn), cut: make(map[string]bool), deaf: make(map[string]bool)}
}

// Start starts a worker and waits until it serves.
func (s *Site) Start(change ...func(*worker.Config)) *workertest.Worker {
	s.T.Helper()
	w := s.Cluster.Start(change...)
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	s.mu.Lock()
	s.at[w.Member.Self().Addr] = l
	s.mu.Unlock()
	server := w.NewServer(w.Handler(nil))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	s.T.Cleanup(func() {
		server.Close()
		<-ended
	})
	for w.Serving() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	return w
}

// NewClient returns a client that owns nothing.
func (s *Site) NewClient(change ...func(*client.Config)) *client.Client {
	s.T.Helper()
	s.mu.Lock()
	name := fmt.Sprint("client", len(s.conn))
	s.mu.Unlock()
	member := kit.Must(s.Hub.Join(ring.Member{Name: name, Role: ring.RoleRouter, State: ring.StateActive}))
	cfg := client.Config{Members: member, Dial: s.Dial}
	for _, f := range change {
		f(&cfg)
	}
	c := kit.Must(client.New(cfg))
	s.T.Cleanup(func() { c.Close() })
	return c
}

// Dial connects to a worker.
func (s *Site) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	s.mu.Lock()
	l, cut := s.at[addr], s.cut[addr]
	s.mu.Unlock()
	if l == nil || cut {
		return nil, fmt.Errorf("nothing at %s", addr)
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	s.conn[addr] = append(s.conn[addr], near)
	s.mu.Unlock()
	return &wire{Conn: near, site: s, addr: addr}, nil
}

// Sever ends all connections to a worker, and allows new ones or not.
func (s *Site) Sever(w *workertest.Worker, cut bool) {
	addr := w.Member.Self().Addr
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut[addr] = cut
	for _, c := range s.conn[addr] {
		c.Close()
	}
	s.conn[addr] = nil
}

// Kill ends a worker as the death of its process does.
func (s *Site) Kill(w *workertest.Worker) {
	s.Sever(w, true)
	w.Close()
	_ = w.Member.Vanish()
}

// KeyOf returns a key that a worker owns.
func (s *Site) KeyOf(w *workertest.Worker, prefix string) string {
	for i := 0; ; i++ {
		key := fmt.Sprintf("%s%d", prefix, i)
		if err := w.Do(s.T.Context(), key, func(gateway.Execution) error { return nil }); err == nil {
			return key
		}
	}
}

// IsFree reports whether a key of w is held by nobody.
func IsFree(t *testing.T, w *workertest.Worker, key string) bool {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	return w.Do(ctx, key, func(gateway.Execution) error { return nil }) == nil
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// ClientOf returns a client whose only worker answers calls as handler does.
func ClientOf(t *testing.T, handler link.HandlerFunc) *client.Client {
	server := &link.Server{Config: link.Config{Cluster: "keyway", Digest: ring.Settings{TTL: kit.TTL}.Digest()}, Handler: handler}
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	go server.Serve(l)
	m := routertest.Member("owner", "owner")
	m.Link = true
	c := NewClient(t, client.Config{Members: routertest.NewCluster(t, m), Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		l.conns <- far
		return near, nil
	}})
	t.Cleanup(func() {
		c.Close()
		server.Close()
	})
	return c
}

// CutStore is a store that can be cut off from its worker.
type CutStore struct {
	worker.Store
	Cut atomic.Bool
}

// Renew implements [worker.Store].
func (s *CutStore) Renew(ctx context.Context, generation, incarnation string, ttl time.Duration) error {
	if s.Cut.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Store.Renew(ctx, generation, incarnation, ttl)
}

// NewClient makes a client that is closed when the test ends.
func NewClient(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
