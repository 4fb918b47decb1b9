package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/cmd/chaos/clock"
	"github.com/keyway-go/keyway/internal/cmd/chaos/fabric"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// Ports of the services, the same on every host.
const (
	requestPort  = 8080
	adminPort    = 8081
	gossipPort   = 7946
	redisPort    = 6379
	sentinelPort = 26379
)

const (
	redisHosts  = 3
	clientHosts = 2
)

// cast is the cluster and its network.
type cast struct {
	cfg      config
	dir      string
	network  *fabric.Switch
	observer *trial.Observer
	programs cluster.Programs

	hosts   map[string]*fabric.Host // r1…, p1…, w1…, c1… by name
	mounts  []string                // directories that are disks of their own
	redis   []*redisNode            // one on each r
	routers []*program
	workers []*program

	mu     sync.Mutex // guards what follows
	rules  map[pair][]*fabric.Rule
	deaths []string // of processes that were not meant to end
}

// newCast makes the network and builds the programs.
func newCast(ctx context.Context, cfg config, dir string) (*cast, error) {
	c := &cast{cfg: cfg, dir: dir, network: fabric.NewSwitch(cfg.Seed), observer: trial.NewObserver(), hosts: make(map[string]*fabric.Host), rules: make(map[pair][]*fabric.Rule)}
	for _, group := range []struct {
		prefix   string
		n, first int
	}{{"r", redisHosts, 11}, {"p", cfg.Routers, 21}, {"w", cfg.Workers, 31}, {"c", clientHosts, 41}} {
		for i := range group.n {
			name := fmt.Sprint(group.prefix, i+1)
			h, err := fabric.NewHost(c.network, name, netip.AddrFrom4([4]byte{10, 77, 0, byte(group.first + i)}))
			if err != nil {
				return c, err
			}
			c.hosts[name] = h
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				return c, err
			}
		}
	}
	if cfg.Programs != "" {
		c.programs = cluster.Programs{Router: filepath.Join(cfg.Programs, "router"), Worker: filepath.Join(cfg.Programs, "worker")}
		return c, nil
	}
	overlay, err := clock.Overlay(dir)
	if err != nil {
		return c, err
	}
	c.programs, err = cluster.Build(ctx, dir, "-overlay", overlay)
	return c, err
}

// at returns the address of a port of a host.
func (c *cast) at(host string, port uint16) string {
	return netip.AddrPortFrom(c.hosts[host].Addr, port).String()
}

// names returns the hosts whose names begin with one of the letters.
func (c *cast) names(letters string) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(c.hosts)) {
		if strings.Contains(letters, name[:1]) {
			list = append(list, name)
		}
	}
	return list
}

// start starts everything, and returns when every program is ready.
func (c *cast) start(ctx context.Context) error {
	if err := c.startRedis(ctx); err != nil {
		return err
	}
	for _, name := range c.names("p") {
		bodies := filepath.Join(c.dir, name, "bodies")
		if err := c.mountTmpfs(bodies, 8<<20); err != nil {
			return err
		}
		p, err := c.newProgram(name, c.programs.Router,
			"--listen", c.at(name, requestPort), "--admin", c.at(name, adminPort), "--hold", c.cfg.Hold.String(),
			"--body-dir", bodies, "--drain-notice", "500ms")
		if err != nil {
			return err
		}
		c.routers = append(c.routers, p)
	}
	for _, name := range c.names("w") {
		p, err := c.newProgram(name, c.programs.Worker,
			"--listen", c.at(name, requestPort), "--admin", c.at(name, adminPort), "--name", name, "--new-cluster",
			"--lock-file", filepath.Join(c.dir, name, "lock"))
		if err != nil {
			return err
		}
		c.workers = append(c.workers, p)
	}
	var wg sync.WaitGroup
	errs := make([]error, len(c.routers)+len(c.workers))
	for i, p := range slices.Concat(c.routers, c.workers) {
		wg.Go(func() { errs[i] = p.start(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// program is a router or worker, which is started again and again on its host.
type program struct {
	cast  *cast
	name  string // its host's
	path  string
	args  []string
	clock *clock.Clock
	limit string // GOMEMLIMIT; "" for none

	mu    sync.Mutex
	lives int
	now   *life // nil while it is not meant to run
}

// life is one process of a program.
type life struct {
	*cluster.Process
	label string // w2#1 is the first one on host w2
	meant atomic.Bool
}

func (c *cast) newProgram(name, path string, args ...string) (*program, error) {
	clk, err := clock.New(filepath.Join(c.dir, name, "clock"))
	if err != nil {
		return nil, err
	}
	var seeds []string
	for _, other := range c.names("pw") {
		seeds = append(seeds, c.at(other, gossipPort))
	}
	args = append(args, "--redis", c.redisURL(), "--session-ttl", c.cfg.TTL.String(), "--gossip", c.at(name, gossipPort),
		"--gossip-open", "--join", strings.Join(seeds, ","))
	if c.cfg.Verbose {
		args = append(args, "--log-level", "debug")
	}
	return &program{cast: c, name: name, path: path, args: args, clock: clk}, nil
}

// start starts the program and returns when it is ready.
func (p *program) start(ctx context.Context) error {
	p.mu.Lock()
	p.lives++
	label := fmt.Sprintf("%s#%d", p.name, p.lives)
	limit, socket := p.limit, fmt.Sprintf("app-%d.sock", p.lives)
	p.mu.Unlock()
	dir := filepath.Join(p.cast.dir, p.name)
	args := []string{clock.Env + "=" + filepath.Join(dir, "clock"), "GOMAXPROCS=2", "GOMEMLIMIT=" + cmp.Or(limit, "off"), p.path}
	args = append(args, p.args...)
	if p.path == p.cast.programs.Worker {
		url, err := p.cast.observer.Listen(label, "unix", filepath.Join(dir, socket))
		if err != nil {
			return err
		}
		args = append(args, "--upstream", url)
	}
	log, err := os.Create(filepath.Join(dir, label+".log"))
	if err != nil {
		return err
	}
	// A worker whose name has died several times in a row stays off the ring for up to
	// 10 TTLs.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second+11*p.cast.cfg.TTL)
	defer cancel()
	l := &life{label: label}
	err = p.cast.hosts[p.name].Do(func() (err error) {
		l.Process, err = cluster.Start(ctx, label, "env", stamped{log, p.cast.observer.Now}, args...)
		return err
	})
	if err != nil {
		log.Close()
		return err
	}
	p.mu.Lock()
	p.now = l
	p.mu.Unlock()
	go func() {
		defer log.Close()
		<-l.Done()
		if !l.meant.Load() {
			p.cast.mu.Lock()
			defer p.cast.mu.Unlock()
			p.cast.deaths = append(p.cast.deaths, fmt.Sprintf("%s ended by itself: %v", label, l.Err()))
		}
	}()
	return nil
}

// alive returns the present life.
func (p *program) alive() (*life, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil {
		return nil, fmt.Errorf("%s does not run", p.name)
	}
	return p.now, nil
}

// end takes the present life away, which is meant to end.
func (p *program) end() (*life, error) {
	l, err := p.alive()
	if err != nil {
		return nil, err
	}
	l.meant.Store(true)
	p.mu.Lock()
	p.now = nil
	p.mu.Unlock()
	return l, nil
}

func (p *program) kill() (*life, error) {
	l, err := p.end()
	if err == nil {
		l.Kill()
	}
	return l, err
}

// exitTimeout is a little more than a program's grace period.
const exitTimeout = 35 * time.Second

// stop ends the program by SIGTERM; it has to exit with 0.
func (p *program) stop() error {
	l, err := p.end()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), exitTimeout)
	defer cancel()
	if err := l.Stop(ctx); err != nil {
		return fmt.Errorf("%s after SIGTERM: %w", l.label, err)
	}
	return nil
}

// stop ends workers, routers and Redis in this order, and returns what did not
// go well.
func (c *cast) stop() []error {
	var all []error
	for _, group := range [][]*program{c.workers, c.routers} {
		errs := make([]error, len(group))
		var wg sync.WaitGroup
		for i, p := range group {
			wg.Go(func() { errs[i] = p.stop() })
		}
		wg.Wait()
		all = append(all, errs...)
	}
	return all
}

// close ends everything that still runs.
func (c *cast) close() {
	for _, p := range slices.Concat(c.workers, c.routers) {
		_, _ = p.kill()
		_ = p.clock.Close()
	}
	for _, r := range c.redis {
		r.close()
	}
	c.observer.Close()
	_ = c.network.Close()
	for _, h := range c.hosts {
		_ = h.Close()
	}
	for _, dir := range c.mounts {
		_ = syscall.Unmount(dir, syscall.MNT_DETACH)
	}
}

// dialTimeout is how long a client tries one router.
const dialTimeout = 2 * time.Second

// dial returns how clients on a host connect: to the routers in turn, and to
// the next one if one does not answer.
func (c *cast) dial(host string) func(ctx context.Context) (net.Conn, error) {
	var turn atomic.Int64
	routers := c.names("p")
	return func(ctx context.Context) (conn net.Conn, err error) {
		first := int(turn.Add(1))
		err = c.hosts[host].Do(func() error {
			var errs []error
			for i := range routers {
				d := net.Dialer{Timeout: dialTimeout}
				if conn, err = d.DialContext(ctx, "tcp", c.at(routers[(first+i)%len(routers)], requestPort)); err == nil {
					return nil
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		})
		return conn, err
	}
}

// mountTmpfs makes a disk of its own, of that many bytes.
func (c *cast) mountTmpfs(dir string, size int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		return fmt.Errorf("mounting a tmpfs at %s: %w", dir, err)
	}
	c.mounts = append(c.mounts, dir)
	return nil
}
