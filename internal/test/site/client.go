package site

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// Bubble is workers that take the link over connections in memory, and clients of
// them, in a bubble.
type Bubble struct {
	*Site
	T       *testing.T
	App     http.Handler // of workers; may be nil
	pipes   Pipes
	clients int
	mu      sync.Mutex
	deaf    map[string]bool // addresses of which nothing is heard, by connections that are there

	Slow time.Duration // what the answer to a call of the method late takes longer; see delay
	late string
}

// Delay lets the answers to calls of a method take longer from now on.
func (s *Bubble) Delay(method string, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Slow, s.late = by, method
}

// wire is a client's end of a connection.
type wire struct {
	net.Conn
	site *Bubble
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
func (s *Bubble) Mute(w *Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf[w.Member.Self().Addr] = true
}

// Unmute lets clients hear a worker again, by other connections.
func (s *Bubble) Unmute(w *Worker) {
	s.mu.Lock()
	s.deaf[w.Member.Self().Addr] = false
	s.mu.Unlock()
	s.Sever(w, false)
}

// Partitions is how many a [Bubble] has.
const Partitions = 16

// NewInBubble makes a site without workers.
func NewInBubble(t *testing.T) *Bubble {
	kit.EmptyPools(t)
	return &Bubble{Site: New(t, Partitions), T: t, deaf: make(map[string]bool)}
}

// Start starts a worker and waits until it serves.
func (s *Bubble) StartServing(change ...func(*worker.Config)) *Worker {
	s.T.Helper()
	w := s.Site.Start(change...)
	w.Serve(s.T, s.pipes.Listen(w.Member.Self().Addr), w.Handler(s.App))
	for w.Serving() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	return w
}

// NewClient returns a client that owns nothing.
func (s *Bubble) NewClient(change ...func(*client.Config)) *client.Client {
	s.T.Helper()
	s.mu.Lock()
	s.clients++
	name := fmt.Sprint("client", s.clients)
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
func (s *Bubble) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	near, err := s.pipes.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: near, site: s, addr: addr}, nil
}

// Sever ends all connections to a worker, and allows new ones or not.
func (s *Bubble) Sever(w *Worker, cut bool) { s.pipes.Sever(w.Member.Self().Addr, cut) }

// Kill ends a worker as the death of its process does.
func (s *Bubble) Kill(w *Worker) {
	s.Sever(w, true)
	w.Close()
	_ = w.Member.Vanish()
}

// KeyOf returns a key that a worker owns.
func (s *Bubble) KeyOf(w *Worker, prefix string) string {
	for i := 0; ; i++ {
		key := fmt.Sprintf("%s%d", prefix, i)
		if err := w.Do(s.T.Context(), key, func(gateway.Execution) error { return nil }); err == nil {
			return key
		}
	}
}

// IsFree reports whether a key of w is held by nobody.
func IsFree(t *testing.T, w *Worker, key string) bool {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	return w.Do(ctx, key, func(gateway.Execution) error { return nil }) == nil
}

// ClientOf returns a client whose only worker answers calls as handler does.
func ClientOf(t *testing.T, handler link.HandlerFunc) *client.Client {
	server := &link.Server{Config: link.Config{Cluster: "keyway", Digest: ring.Settings{TTL: kit.TTL}.Digest()}, Handler: handler}
	n := new(Pipes)
	go server.Serve(n.Listen("owner"))
	m := Member("owner", "owner")
	m.Link = true
	c := NewClient(t, client.Config{Members: NewMembers(t, m), Dial: n.Dial})
	t.Cleanup(func() {
		c.Close()
		server.Close()
	})
	return c
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
