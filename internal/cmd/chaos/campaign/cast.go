package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// hostNames are those of the store's hosts, the routers', the workers' and the clients'.
var hostNames = []string{"r1", "r2", "r3", "p1", "p2", "w1", "w2", "w3", "w4", "c1", "c2"}

// cast is the cluster and its network.
type cast struct {
	*trial.Site // of which each store node, router and worker has the name of its host
	cfg         config
	network     *fabric.Switch
	hosts       map[string]*fabric.Host // r1…, p1…, w1…, c1… by name
	mounts      []string                // directories that are disks of their own
	clocks      map[string]*clock.Clock // of programs, and of each redis-server, by host
	tight       atomic.Value            // host whose program gets little memory
}

// build makes the hosts and the programs.
func (c *cast) build(ctx context.Context) error {
	c.hosts, c.clocks = make(map[string]*fabric.Host), make(map[string]*clock.Clock)
	first := map[byte]byte{'r': 10, 'p': 20, 'w': 30, 'c': 40}
	for _, name := range hostNames {
		h, err := fabric.NewHost(c.network, name, netip.AddrFrom4([4]byte{10, 77, 0, first[name[0]] + name[1] - '0'}))
		if err != nil {
			return err
		}
		c.hosts[name] = h
		if err := os.Mkdir(filepath.Join(c.Stage.Dir, name), 0o755); err != nil {
			return err
		}
	}
	var flags []string
	if slices.ContainsFunc(c.deck(), func(k *trial.Kind) bool { return strings.HasPrefix(k.Name, "clock-") && k.Target == "w" }) {
		overlay, err := clock.Overlay(c.Stage.Dir) // with which everything is compiled anew
		if err != nil {
			return err
		}
		flags = []string{"-overlay", overlay}
	}
	var err error
	c.Programs, err = cluster.Build(ctx, c.Stage.Dir, flags...)
	return err
}

// at returns the address of a port of a host.
func (c *cast) at(host string, port uint16) string {
	return netip.AddrPortFrom(c.hosts[host].Addr, port).String()
}

// names returns the hosts whose names begin with one of the letters, except those of but.
func (c *cast) names(letters string, but ...string) (list []string) {
	for _, name := range hostNames {
		if strings.Contains(letters, name[:1]) && !slices.Contains(but, name) {
			list = append(list, name)
		}
	}
	return list
}

// addMembers starts the store, and makes the routers and workers.
func (c *cast) addMembers(ctx context.Context) error {
	if err := c.startStore(ctx); err != nil {
		return err
	}
	var seeds []string
	for _, name := range c.names("pw") {
		seeds = append(seeds, c.at(name, gossipPort))
		if err := c.newClock(name); err != nil {
			return err
		}
	}
	c.Args, c.Adapt = []string{"--gossip-open", "--join", strings.Join(seeds, ",")}, c.adapt
	if c.cfg.Verbose {
		c.Args = append(c.Args, "--log-level", "debug")
	}
	args := func(host string, more ...string) []string {
		return append(more, "--listen", c.at(host, requestPort), "--admin", c.at(host, adminPort), "--gossip", c.at(host, gossipPort))
	}
	for _, name := range c.names("p") {
		bodies := filepath.Join(c.Stage.Dir, name, "bodies")
		if err := c.mountTmpfs(bodies, 8<<20); err != nil {
			return err
		}
		c.AddRouter(name, args(name, "--hold", hold.String(), "--body-dir", bodies, "--drain-notice", "500ms")...)
	}
	for _, name := range c.names("w") {
		c.AddWorker(name, func(string) ([]string, error) {
			return args(name, "--lock-file", filepath.Join(c.Stage.Dir, name, "lock")), nil
		})
	}
	return nil
}

// adapt has a program run on its host, with its clock and memory.
func (c *cast) adapt(host string, spec *proc.Spec) {
	spec.Env = []string{clock.Env + "=" + c.clockFile(host), "GOMAXPROCS=2"}
	if c.tight.Load() == host {
		spec.Env = append(spec.Env, "GOMEMLIMIT=12MiB")
	}
	spec.Stamp = func() string { return fmt.Sprintf("%9.3f ", c.Observer.Now().Seconds()) }
	spec.Run = func(cmd *exec.Cmd) error { return c.hosts[host].Do(cmd.Start) }
}

func (c *cast) clockFile(host string) string { return filepath.Join(c.Stage.Dir, host, "clock") }

// newClock makes the clock of what runs on a host.
func (c *cast) newClock(host string) error {
	made, err := clock.New(c.clockFile(host))
	if err == nil {
		c.clocks[host] = made
	}
	return err
}

// close ends everything that still runs.
func (c *cast) close() {
	c.Site.Close()
	for _, clk := range c.clocks {
		_ = clk.Close()
	}
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

// dial returns how clients on a host connect: to routers in turn, and to
// the next one if one does not answer.
func (c *cast) dial(host string, routers ...string) trial.Dialer {
	var addrs []string
	for _, name := range routers {
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

// The stores that a campaign can run over.
const (
	overRedis = "redis" // three Redis with Sentinels
	overEtcd  = "etcd"  // three etcd
)

const (
	redisDisk = 48 << 20  // bytes
	etcdDisk  = 256 << 20 // bytes: room for the two files of 64 MB that an etcd writes ahead
)

// startStore starts a node on each host, whose data are on a disk of its own, and returns when the store is whole.
func (c *cast) startStore(ctx context.Context) error {
	disk, port, beside := redisDisk, uint16(redisPort), uint16(sentinelPort)
	if c.cfg.Store == overEtcd {
		disk, port, beside = etcdDisk, etcdPort, etcdPeerPort
	}
	var nodes []*trial.Node
	for _, name := range c.names("r") {
		n := &trial.Node{Name: name, Dir: filepath.Join(c.Stage.Dir, name), Addr: c.at(name, port), Beside: c.at(name, beside), In: c.hosts[name].Do}
		n.Data = filepath.Join(n.Dir, "data")
		if err := c.mountTmpfs(n.Data, disk); err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	if c.cfg.Store == overEtcd {
		c.Store = trial.NewEtcd(nodes)
		return c.Store.Start(ctx)
	}
	preload, err := clock.Preload(c.Stage.Dir)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := c.newClock(n.Name); err != nil {
			return err
		}
		n.Env = []string{"LD_PRELOAD=" + preload, clock.Env + "=" + c.clockFile(n.Name)}
	}
	if c.Store, err = trial.NewRedis(nodes, "repl-timeout 10"); err != nil {
		return err
	}
	if err := c.Store.Start(ctx); err != nil {
		return err
	}
	for _, n := range nodes {
		if err := c.followsClock(n); err != nil {
			return err
		}
	}
	return nil
}

// followsClock returns an error if a Redis does not go by its clock: it would run all the same, without the library.
func (c *cast) followsClock(n *trial.Node) error {
	const ahead = 5 * time.Second // too little for a replica to be taken for lost
	c.clocks[n.Name].Step(ahead)
	answer := n.Ask(n.Addr, "time")
	c.clocks[n.Name].Step(-ahead)
	seconds, _, _ := strings.Cut(answer, "\n")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || time.Until(time.Unix(at, 0)) < 0 {
		return fmt.Errorf("%s does not go by its clock: it says %q", n.Name, answer)
	}
	return nil
}

// mend cuts off what a full disk has left of the last write of a Redis.
func mend(n *trial.Node) {
	cmd := exec.Command("redis-check-aof", "--fix", filepath.Join(n.Data, "appendonlydir", "appendonly.aof.manifest"))
	cmd.Stdin = strings.NewReader("y\ny\n")
	_ = cmd.Run()
}
