package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/status"
)

// pair is two routers, with a store of their own, and the workers behind them.
type pair struct {
	t        *testing.T
	programs cluster.Programs
	redis    string
	routers  [2]*cluster.Process
	workers  map[string]*cluster.Process
	sockets  [2]string // on which the routers take requests, too
	args     []string  // of the routers
}

// partitions of a pair, so few that its store, which runs in the test, has little
// to do when all of them change hands.
const partitions = 256

// startPair starts routers and workers.
func startPair(t *testing.T, args ...string) *pair {
	t.Helper()
	p := startRouters(t, args...)
	for _, name := range []string{"w1", "w2"} {
		p.startWorker(name)
	}
	return p
}

// startRouters starts the routers.
func startRouters(t *testing.T, args ...string) *pair {
	t.Helper()
	programs := programs(t)
	redis, err := store.StartEmbedded("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { redis.Close() })
	p := &pair{t: t, programs: programs, redis: redis.URL(), workers: make(map[string]*cluster.Process), args: args}
	dir := t.TempDir()
	join := "127.0.0.1:1" // where nobody is
	for i := range p.routers {
		p.sockets[i] = filepath.Join(dir, fmt.Sprint("r", i))
		p.startRouter(i, "127.0.0.1:0", "127.0.0.1:0", join)
		join = p.routers[i].Gossip
	}
	return p
}

func (p *pair) startWorker(name string, args ...string) {
	p.t.Helper()
	join := p.routers[0].Gossip + "," + p.routers[1].Gossip
	p.workers[name] = p.start(name, p.programs.Worker, append([]string{"--name", name, "--redis", p.redis, "--new-cluster", "--join", join}, args...)...)
}

func (p *pair) start(name, program string, args ...string) *cluster.Process {
	p.t.Helper()
	args = append(args, "--partitions", strconv.Itoa(partitions))
	started, err := cluster.Start(p.t.Context(), name, program, p.t.Output(), args...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(started.Kill)
	return started
}

func (p *pair) startRouter(i int, listen, gossip, join string) {
	p.t.Helper()
	args := append([]string{"--redis", p.redis, "--new-cluster", "--listen", listen + ",unix://" + p.sockets[i], "--gossip", gossip, "--join", join, "--admin", "127.0.0.1:0"}, p.args...)
	p.routers[i] = p.start(fmt.Sprint("r", i), p.programs.Router, args...)
}

// restart ends a router in order, and starts it again at the same addresses.
func (p *pair) restart(i int) {
	p.t.Helper()
	old := p.routers[i]
	stopCleanly(p.t, old)
	p.startRouter(i, old.Listen, old.Gossip, p.routers[1-i].Gossip)
}

// load is what clients send to both routers until it is stopped. One whose
// connection is refused goes to the other router, as a load balancer does; anything else
// but 200 is a failure.
type load struct {
	pair   *pair
	ended  sync.WaitGroup
	stop   context.CancelFunc
	sent   atomic.Int64
	failed chan error
}

func (p *pair) load(clients int) *load {
	ctx, stop := context.WithCancel(p.t.Context())
	l := &load{pair: p, stop: stop, failed: make(chan error, 1000)}
	h2c := new(http.Protocols)
	h2c.SetUnencryptedHTTP2(true)
	unix := func(ctx context.Context, _, addr string) (net.Conn, error) {
		socket := p.sockets[0]
		if addr == "r1:80" {
			socket = p.sockets[1]
		}
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	tcp := [2]string{p.routers[0].Listen, p.routers[1].Listen}
	for _, way := range []struct {
		transport *http.Transport
		hosts     [2]string
	}{
		{&http.Transport{MaxIdleConnsPerHost: clients}, tcp},
		{&http.Transport{DisableKeepAlives: true}, tcp},
		{&http.Transport{Protocols: h2c}, tcp},
		{&http.Transport{MaxIdleConnsPerHost: clients, DialContext: unix}, [2]string{"r0", "r1"}},
	} {
		p.t.Cleanup(way.transport.CloseIdleConnections)
		for c := range clients {
			l.ended.Go(func() {
				for n := c; ctx.Err() == nil; n++ {
					if err := l.send(way.transport, way.hosts, n); err != nil {
						l.failed <- err
					}
					time.Sleep(20 * time.Millisecond) // so that connections are idle now and then
				}
			})
		}
	}
	return l
}

// send sends one request.
func (l *load) send(t *http.Transport, hosts [2]string, n int) error {
	methods := [...]string{http.MethodGet, http.MethodPost}
	for try := range 2 {
		req, err := http.NewRequest(methods[n/2%2], "http://"+hosts[(n+try)%2]+"/", strings.NewReader("body"))
		if err != nil {
			return err
		}
		req.Header.Set("X-Key", fmt.Sprint("k", n%50))
		res, err := (&http.Client{Transport: t}).Do(req)
		if refused, ok := errors.AsType[*net.OpError](err); ok && refused.Op == "dial" && try == 0 &&
			(errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s %d: %w", req.Method, n, err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %d %s %w", req.Method, res.StatusCode, body, err)
		}
		l.sent.Add(1)
		return nil
	}
	return nil
}

// await waits until that many more requests have been answered.
func (l *load) await(more int64) {
	l.pair.t.Helper()
	for until := l.sent.Load() + more; l.sent.Load() < until; time.Sleep(time.Millisecond) {
		if l.pair.t.Context().Err() != nil {
			l.pair.t.Fatal("no requests are answered")
		}
	}
}

// end ends the load and reports what has failed.
func (l *load) end() {
	l.pair.t.Helper()
	l.stop()
	l.ended.Wait()
	close(l.failed)
	failed := len(l.failed)
	for err := range l.failed {
		l.pair.t.Error(err)
	}
	l.pair.t.Logf("%d requests answered, %d failed", l.sent.Load(), failed)
}

// Nobody notices that one of two routers is restarted.
func TestRouterRestarts(t *testing.T) {
	p := startPair(t)
	l := p.load(4)
	l.await(200)
	for i := range 6 {
		p.restart(i % 2)
		l.await(100)
	}
	l.end()
}

// writeRoutes puts a version of the routes into the file, all at once.
func writeRoutes(t *testing.T, file string, version int) {
	t.Helper()
	text := fmt.Sprintf("routes:\n- {name: all, key: 'header:X-Key', timeout: %ds}\n", 10+version%2)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// Nobody notices that routers read their routes anew, 40 times under load: on SIGHUP, and
// each tenth time because the file has changed.
func TestRoutesAreReadAnew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "routes.yaml")
	writeRoutes(t, file, 0)
	p := startPair(t, "--routes", file)
	routesOf := func(i int) (s status.RoutesStatus) {
		get(t, "http://"+p.routers[i].Admin+"/routes", &s)
		return s
	}
	l := p.load(2)
	for version := 1; version <= 40; version++ {
		var before [2]status.RoutesStatus
		for i := range p.routers {
			before[i] = routesOf(i)
		}
		writeRoutes(t, file, version)
		for i, r := range p.routers {
			if version%10 != 0 {
				if err := r.Signal(syscall.SIGHUP); err != nil {
					t.Fatal(err)
				}
			}
			for now := routesOf(i); now.Digest == before[i].Digest; now = routesOf(i) {
				if now.Error != "" || t.Context().Err() != nil {
					t.Fatalf("the routes are not in force: %+v", now)
				}
				time.Sleep(time.Millisecond)
			}
		}
		l.await(20)
	}
	l.end()
}
