package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/clock"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// The stores that a campaign can run over.
const (
	overRedis = "redis" // three Redis with Sentinels
	overEtcd  = "etcd"  // three etcd
)

const (
	redisDisk = 48 << 20        // bytes
	etcdDisk  = 256 << 20       // bytes: room for the two files of 64 MB that an etcd writes ahead
	downAfter = 3 * time.Second // until Sentinels take a silent master for dead
	maxLag    = 2               // seconds for which a master without replicas acknowledges writes
)

// startStore starts a node on each host, whose data are on a disk of its own, and returns when the store is whole.
func (c *cast) startStore(ctx context.Context) error {
	disk, port, beside := redisDisk, uint16(redisPort), uint16(sentinelPort)
	if c.cfg.Store == overEtcd {
		disk, port, beside = etcdDisk, etcdPort, etcdPeerPort
	}
	for _, name := range c.names("r") {
		n := &trial.Node{Name: name, Dir: filepath.Join(c.Lives.Dir, name), Addr: c.at(name, port), Beside: c.at(name, beside), In: c.hosts[name].Do}
		n.Data = filepath.Join(n.Dir, "data")
		if err := c.mountTmpfs(n.Data, disk); err != nil {
			return err
		}
		c.Store.Nodes = append(c.Store.Nodes, n)
	}
	if c.cfg.Store == overEtcd {
		c.Store = trial.NewEtcd(c.Store.Nodes)
	} else if err := c.setRedis(); err != nil {
		return err
	}
	return c.Store.Start(ctx)
}

// setRedis makes the first node a master, and the others its replicas, with a Sentinel beside each.
func (c *cast) setRedis() error {
	preload, err := clock.Preload(c.Lives.Dir)
	if err != nil {
		return err
	}
	master := c.hosts["r1"].Addr
	for _, n := range c.Store.Nodes {
		addr := c.hosts[n.Name].Addr
		server := fmt.Sprintf("port %d\nbind %s\nprotected-mode no\ndir %s\nsave \"\"\nappendonly yes\nappendfsync everysec\n"+
			"maxmemory-policy noeviction\nmin-replicas-to-write 1\nmin-replicas-max-lag %d\nrepl-diskless-sync-delay 0\nrepl-ping-replica-period 1\nrepl-timeout 10\n",
			redisPort, addr, n.Data, maxLag)
		if addr != master {
			server += fmt.Sprintf("replicaof %s %d\n", master, redisPort)
		}
		sentinel := fmt.Sprintf("port %d\nbind %s\nprotected-mode no\ndir %s\nsentinel monitor %s %s %d 2\nsentinel down-after-milliseconds %s %d\n"+
			"sentinel failover-timeout %s 10000\nsentinel parallel-syncs %s 2\n",
			sentinelPort, addr, n.Dir, trial.MasterName, master, redisPort, trial.MasterName, downAfter.Milliseconds(), trial.MasterName, trial.MasterName)
		if err := c.newClock(n.Name); err != nil {
			return err
		}
		n.Env = []string{"LD_PRELOAD=" + preload, clock.Env + "=" + c.clockFile(n.Name)}
		if err := n.Redis(server, sentinel); err != nil {
			return err
		}
	}
	return nil
}

// mend cuts off what a full disk has left of the last write of a Redis.
func mend(n *trial.Node) {
	cmd := exec.Command("redis-check-aof", "--fix", filepath.Join(n.Data, "appendonlydir", "appendonly.aof.manifest"))
	cmd.Stdin = strings.NewReader("y\ny\n")
	_ = cmd.Run()
}
