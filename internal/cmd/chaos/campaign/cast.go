package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/cluster/proc"
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
	etcdPort     = 2379
	etcdPeerPort = 2380
)

const (
	storeHosts  = 3
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
	store   *trial.Store            // a node on each r
	clocks  map[string]*clock.Clock // of programs, and of each redis-server, by host
	routers []*program
	workers []*program
	lives   trial.Lives

	mu    sync.Mutex // guards what follows
	rules map[pair][]*fabric.Rule
}

// newCast makes the network and builds the programs.
func newCast(ctx context.Context, cfg config, dir string) (*cast, error) {
	c := &cast{cfg: cfg, dir: dir, network: fabric.NewSwitch(uint64(cfg.Seed)), observer: trial.NewObserver(), lives: trial.Lives{Dir: dir}, hosts: make(map[string]*fabric.Host), store: new(trial.Store), clocks: make(map[string]*clock.Clock), rules: make(map[pair][]*fabric.Rule)}
	for _, group := range []struct {
		prefix   string
		n, first int
	}{{"r", storeHosts, 11}, {"p", cfg.Routers, 21}, {"w", cfg.Workers, 31}, {"c", clientHosts, 41}} {
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
		c.programs = cluster.In(cfg.Programs)
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

// names returns the hosts whose names begin with one of the letters, except those of but.
func (c *cast) names(letters string, but ...string) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(c.hosts)) {
		if strings.Contains(letters, name[:1]) && !slices.Contains(but, name) {
			list = append(list, name)
		}
	}
	return list
}

// start starts everything, and returns when every program is ready.
func (c *cast) start(ctx context.Context) error {
	if err := c.startStore(ctx); err != nil {
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
	all := slices.Concat(c.routers, c.workers)
	for _, p := range all {
		p.begin(ctx)
	}
	var errs []error
	for _, p := range all {
		_, err := p.Alive()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// program is a router or worker on its host, whose name it has.
type program struct {
	*trial.Program
	cast  *cast
	limit atomic.Value // GOMEMLIMIT
}

// newClock makes the clock of what runs on a host.
func (c *cast) newClock(host string) (file string, err error) {
	file = filepath.Join(c.dir, host, "clock")
	made, err := clock.New(file)
	if err == nil {
		c.clocks[host] = made
	}
	return file, err
}

func (c *cast) newProgram(name, path string, args ...string) (*program, error) {
	dir := filepath.Join(c.dir, name)
	file, err := c.newClock(name)
	if err != nil {
		return nil, err
	}
	var seeds []string
	for _, other := range c.names("pw") {
		seeds = append(seeds, c.at(other, gossipPort))
	}
	args = append(args, "--store", c.store.URL(), "--session-ttl", c.cfg.TTL.String(), "--gossip", c.at(name, gossipPort),
		"--gossip-open", "--join", strings.Join(seeds, ","))
	if c.cfg.Verbose {
		args = append(args, "--log-level", "debug")
	}
	p := &program{cast: c}
	p.limit.Store("off")
	p.Program = &trial.Program{Name: name, Lives: &c.lives, Spec: func(label string, life int) (proc.Spec, error) {
		more := []string{clock.Env + "=" + file, "GOMAXPROCS=2", "GOMEMLIMIT=" + p.limit.Load().(string), path}
		more = append(more, args...)
		if path == c.programs.Worker {
			url, err := c.observer.Listen(label, "unix", filepath.Join(dir, fmt.Sprintf("app-%d.sock", life)))
			if err != nil {
				return proc.Spec{}, err
			}
			more = append(more, "--upstream", url)
		}
		return proc.Spec{
			Program: "env", Args: more, Ready: cluster.ReadyLine,
			Stamp: func() string { return fmt.Sprintf("%9.3f ", c.observer.Now().Seconds()) },
			Run:   func(cmd *exec.Cmd) error { return c.hosts[name].Do(cmd.Start) },
		}, nil
	}}
	return p, nil
}

// begin starts the program. A worker whose name has died several times in a row stays off the ring for up to 10 TTLs.
func (p *program) begin(ctx context.Context) *trial.Life {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second+11*p.cast.cfg.TTL)
	l := p.Begin(ctx)
	go func() {
		defer cancel()
		_ = l.Ready()
	}()
	return l
}

// start starts the program and returns when it is ready.
func (p *program) start(ctx context.Context) error { return p.begin(ctx).Ready() }

// stop ends workers and routers in this order, and returns what did not go well.
func (c *cast) stop() (errs []error) {
	for _, group := range [][]*program{c.workers, c.routers} {
		var programs []*trial.Program
		for _, p := range group {
			programs = append(programs, p.Program)
		}
		errs = append(errs, trial.StopAll(programs)...)
	}
	return errs
}

// close ends everything that still runs.
func (c *cast) close() {
	c.lives.Kill()
	c.store.Kill()
	for _, clk := range c.clocks {
		_ = clk.Close()
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
	var addrs []string
	for _, name := range c.names("p") {
		addrs = append(addrs, c.at(name, requestPort))
	}
	return trial.Turns(addrs, func(ctx context.Context, addr string) (conn net.Conn, err error) {
		return conn, c.hosts[host].Do(func() error {
			conn, err = (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", addr)
			return err
		})
	})
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
