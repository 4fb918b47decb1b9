package sidecar_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// visit is the work that a stubbornApp does for one request.
type visit struct {
	key      string
	from, to time.Time
}

// stubbornApp takes one request per connection. It works on the first one until
// it is told to stop, whatever becomes of the connection, and on each other one
// for no time.
type stubbornApp struct {
	site.Listener
	answer  string        // to the first request, at once
	chatter time.Duration // how often it writes on then; 0 for never
	chat    string        // what it writes; default "x"
	entered chan struct{} // receives when work begins
	stop    chan struct{} // ends the work on the first request; closed by end
	obeys   bool          // ends that work itself when its input ends
	once    sync.Once

	mu     sync.Mutex
	visits []visit
}

func startStubbornApp(t *testing.T) *stubbornApp {
	a := &stubbornApp{Listener: site.NewListener(), entered: make(chan struct{}, 10), stop: make(chan struct{})}
	t.Cleanup(func() { a.Close() })
	go func() {
		for {
			c, err := a.Accept()
			if err != nil {
				return
			}
			go a.serve(c)
		}
	}()
	return a
}

func (a *stubbornApp) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	go func() {
		io.Copy(io.Discard, in) // as the system would keep it
		if a.obeys {
			a.end()
		}
	}()
	a.mu.Lock()
	first := len(a.visits) == 0
	a.visits = append(a.visits, visit{key: r.Header.Get(gateway.HeaderKey), from: time.Now()})
	i := len(a.visits) - 1
	a.mu.Unlock()
	a.entered <- struct{}{}
	if first {
		a.insist(c)
	}
	a.mu.Lock()
	a.visits[i].to = time.Now()
	a.mu.Unlock()
	if !first {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}
}

func (a *stubbornApp) end() { a.once.Do(func() { close(a.stop) }) }

// insist answers, and works on.
func (a *stubbornApp) insist(c net.Conn) {
	io.WriteString(c, a.answer)
	every := time.Hour
	if a.chatter > 0 {
		every = a.chatter
	}
	for {
		select {
		case <-a.stop:
			return
		case <-time.After(every):
			io.WriteString(c, cmp.Or(a.chat, "x"))
		}
	}
}

// goneStore is a store whose worker's session can be gone.
type goneStore struct {
	site.CutStore
	mu      sync.Mutex
	gone    bool
	renewed time.Time // when the last renewal that worked was sent
}

func (s *goneStore) Renew(ctx context.Context, generation, incarnation string, ttl time.Duration) (records.Snapshot, error) {
	s.mu.Lock()
	gone := s.gone
	s.gone = false
	s.mu.Unlock()
	if gone {
		return records.Snapshot{}, fmt.Errorf("%w: as the test has it", records.ErrSessionGone)
	}
	sent := time.Now()
	snapshot, err := s.CutStore.Renew(ctx, generation, incarnation, ttl)
	if err == nil {
		s.mu.Lock()
		s.renewed = sent
		s.mu.Unlock()
	}
	return snapshot, err
}

// awaitRenewal waits for a renewal, and then for d after it was sent.
func (s *goneStore) awaitRenewal(d time.Duration) {
	begin := time.Now()
	for {
		s.mu.Lock()
		at := s.renewed
		s.mu.Unlock()
		if at.After(begin) {
			time.Sleep(time.Until(at.Add(d)))
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// awaitLease waits until d after the last renewal was sent.
func (s *goneStore) awaitLease(t *testing.T, d time.Duration) {
	s.mu.Lock()
	at := s.renewed
	s.mu.Unlock()
	time.Sleep(time.Until(at.Add(d)))
}

// sidecarSite is a worker with a sidecar of an app, all in memory.
type sidecarSite struct {
	*site.Worker
	store *goneStore
	front site.Listener
	links *link.Client
	logs  *kit.Buffer
}

func startSidecar(t *testing.T, c *site.Site, app *stubbornApp, change ...func(*worker.Config)) *sidecarSite {
	kit.EmptyPools(t)
	s := &sidecarSite{store: &goneStore{CutStore: site.CutStore{Store: c.Store}}, front: site.NewListener(), logs: new(kit.Buffer)}
	s.Worker = c.Start(append(change, func(cfg *worker.Config) {
		cfg.Direct, cfg.Timeout = true, cmp.Or(cfg.Timeout, time.Hour)
		cfg.Store, cfg.Logger = s.store, slog.New(slog.NewTextHandler(s.logs, nil))
	})...)
	server := s.NewServer(kit.Must(sidecar.Over(s.Worker.Worker, app.Dial)))
	go server.Serve(s.front)
	s.links = &link.Client{Addr: "memory", Dial: s.front.Dial, Config: link.Config{Cluster: "keyway", Digest: c.Settings.Digest()}}
	t.Cleanup(func() {
		s.links.Close()
		s.Worker.Close()
		server.Close()
		app.Close()
		time.Sleep(time.Minute) // of the bubble: whatever is left ends
	})
	return s
}

// raw sends a request as a member does over HTTP, and returns the connection.
func (s *sidecarSite) raw(t *testing.T, request string) net.Conn {
	c := kit.Must(s.links.DialPlain(t.Context()))
	if _, err := io.WriteString(c, request); err != nil {
		t.Error(err)
	}
	return c
}

// until asks for key until the app has answered, for two minutes.
func (s *sidecarSite) until(t *testing.T, key string) {
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		res, err := s.links.Do(t.Context(), &link.Request{Method: "GET", Target: "/", Host: "x", Key: key})
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if res.Status == http.StatusOK {
				return
			}
		}
		if time.Since(begin) > 2*time.Minute {
			t.Errorf("the next request is not answered: %v", err)
			return
		}
	}
}

// brokenOff is a request's body that fails after its beginning.
type brokenOff struct {
	begun bool
	fail  <-chan struct{}
}

func (b *brokenOff) Read(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		return copy(p, "hello"), nil
	}
	<-b.fail
	return 0, errors.New("the client broke off")
}

// upgrade asks for a tunnel that holds its key, by a route that serializes.
var upgrade = "GET / HTTP/1.1\r\nHost: x\r\n" + gateway.HeaderKey + ": %s\r\n" +
	hop.HeaderPolicy + ": " + string(policy.AppendText(nil, (&policy.Policy{Mode: policy.Serialize}).Append(nil))) + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
