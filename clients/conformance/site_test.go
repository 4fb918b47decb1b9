package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	_ "github.com/keyway-go/keyway"                     // what the programs consist of,
	_ "github.com/keyway-go/keyway/gateway/lockservice" // so that go test runs anew
	_ "github.com/keyway-go/keyway/internal/cli"        // when it changes

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/test/kit"
)

var (
	programs cluster.Programs
	classes  string // the directory of the driver in Java
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "clients")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer os.RemoveAll(dir)
	if programs, err = cluster.Build(context.Background(), dir); err != nil {
		log.Print(err)
		return 1
	}
	classes = filepath.Join(dir, "classes")
	if clients[2].installed() {
		javac := exec.Command("javac", "-d", classes, "../java/Keyway.java", "../java/Driver.java")
		if out, err := javac.CombinedOutput(); err != nil {
			log.Printf("%v: %v\n%s", javac.Args, err, out)
			return 1
		}
	}
	return m.Run()
}

const (
	sessionTTL = 2 * time.Second
	token      = "s3cret"
	settled    = time.Minute // bounds what has to happen on this machine alone
)

// site is a router with a lock service, and workers.
type site struct {
	t       *testing.T
	gossip  string
	http    *http.Client // of the lock service
	workers []*cluster.Process
}

func newSite(t *testing.T) *site {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "locks")
	s := &site{t: t}
	router := s.start("router", programs.Router, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--new-cluster",
		"--locks", "unix://"+socket, "--locks-token", token)
	s.gossip = router.Gossip
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	s.http = &http.Client{Transport: &http.Transport{DialContext: dial}}
	t.Cleanup(s.http.CloseIdleConnections)
	for i := range 2 {
		s.startWorker(fmt.Sprint("w", i))
	}
	for i := range 50 {
		kit.Eventually(t, "the keys have owners", func() bool {
			res, err := s.forward(t.Context(), http.MethodGet, fmt.Sprint("/v1/locks/any-", i), authorized)
			if err == nil {
				res.Body.Close()
			}
			return err == nil && res.StatusCode == http.StatusOK
		})
	}
	return s
}

// authorized are the fields of a request that may lock.
var authorized = http.Header{"Authorization": {"Bearer " + token}}

func (s *site) startWorker(name string) {
	s.t.Helper()
	s.workers = append(s.workers, s.start(name, programs.Worker, "--name", name, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--new-cluster", "--join", s.gossip))
}

// killWorkers kills a worker and starts another one, again and again for a time.
func (s *site) killWorkers(pause, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(pause)
		s.workers[0].Kill()
		s.workers = s.workers[1:]
		s.startWorker("w-" + rand.Text())
	}
}

func (s *site) start(name, program string, args ...string) *cluster.Process {
	s.t.Helper()
	args = append(args, "--gossip", "127.0.0.1:0", "--session-ttl", sessionTTL.String(), "--log-level", "error")
	p := kit.Must(cluster.Start(s.t.Context(), name, program, s.t.Output(), args...))
	s.t.Cleanup(p.KillGroup)
	return p
}

// state is what the service says of a key.
type state struct {
	Held    bool
	Token   int64
	Waiting int
}

func (s *site) state(key string) (st state) {
	s.t.Helper()
	res, err := s.forward(s.t.Context(), http.MethodGet, "/v1/locks/"+url.PathEscape(key), authorized)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&st); err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("state of %s: %d, %v", key, res.StatusCode, err)
	}
	return st
}

// forward sends a request to the lock service.
func (s *site) forward(ctx context.Context, method, uri string, h http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://locks"+uri, nil)
	if err != nil {
		return nil, err
	}
	req.Header = h
	return s.http.Do(req)
}

// fate is what becomes of a request on its way.
type fate struct {
	drop    bool          // it does not arrive
	lose    bool          // its answer is lost
	late    time.Duration // of its answer
	repeat  bool          // it arrives a second time, at the same time,
	again   time.Duration // and once more so much later; 0 for never
	silence bool          // it does not arrive, and its client is not told
	garble  *string       // it does not arrive, and this is its answer,
	status  int           // with this status; 0 for 200
	drip    bool          // it does not arrive, and its answer does not end
	hint    bool          // an informational answer comes before its own
}

// proxy is between clients and the lock service. It closes the connections of requests that have no answer.
type proxy struct {
	site *site
	url  string

	copies sync.WaitGroup

	mu   sync.Mutex
	next func(*http.Request) fate
	seen []request
}

// request is a request of a client.
type request struct{ method, id string }

// newProxy starts a proxy. next says what becomes of each request.
func (s *site) newProxy(next func(*http.Request) fate) *proxy {
	p := &proxy{site: s, next: next}
	server := httptest.NewServer(p)
	p.url = server.URL
	s.t.Cleanup(func() {
		server.CloseClientConnections() // of silenced requests
		server.Close()
		p.copies.Wait()
	})
	return p
}

// faithful is the fate of requests without faults.
func faithful(*http.Request) fate { return fate{} }

func (p *proxy) set(next func(*http.Request) fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = next
}

func (p *proxy) requests() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// count returns how many requests of a method have come.
func (p *proxy) count(method string) (n int) {
	for _, r := range p.requests() {
		if r.method == method {
			n++
		}
	}
	return n
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.seen = append(p.seen, request{r.Method, r.Header.Get("Idempotency-Key")})
	f := p.next(r)
	p.mu.Unlock()
	if f.silence {
		<-r.Context().Done()
	}
	if f.drop || f.silence {
		panic(http.ErrAbortHandler)
	}
	if f.drip {
		w.Header().Set("Connection", "close")
		for next := time.Tick(20 * time.Millisecond); ; {
			_, _ = io.WriteString(w, " ") // the client may have left
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-next:
			}
		}
	}
	if f.hint {
		w.WriteHeader(http.StatusEarlyHints)
	}
	if f.garble != nil {
		w.Header().Set("Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT") // as some proxies say it
		w.WriteHeader(cmp.Or(f.status, http.StatusOK))
		_, _ = io.WriteString(w, *f.garble) // the client may have left
		return
	}
	if f.repeat {
		p.copies.Go(func() { p.copy(r) })
	}
	if f.again > 0 {
		p.copies.Go(func() {
			time.Sleep(f.again)
			p.copy(r)
		})
	}
	res, err := p.site.forward(r.Context(), r.Method, r.URL.RequestURI(), r.Header)
	time.Sleep(f.late)
	if err != nil || f.lose {
		panic(http.ErrAbortHandler)
	}
	defer res.Body.Close()
	maps.Copy(w.Header(), res.Header)
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body) // the client may have left
}

// copy sends a copy of a request, whose answer nobody gets.
func (p *proxy) copy(r *http.Request) {
	ctx, cancel := context.WithTimeout(context.Background(), settled)
	defer cancel()
	if res, err := p.site.forward(ctx, r.Method, r.URL.RequestURI(), r.Header.Clone()); err == nil {
		res.Body.Close()
	}
}
