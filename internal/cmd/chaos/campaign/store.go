package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/keyway-go/keyway/internal/cmd/chaos/clock"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

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
	return c.Store.Start(ctx)
}

// mend cuts off what a full disk has left of the last write of a Redis.
func mend(n *trial.Node) {
	cmd := exec.Command("redis-check-aof", "--fix", filepath.Join(n.Data, "appendonlydir", "appendonly.aof.manifest"))
	cmd.Stdin = strings.NewReader("y\ny\n")
	_ = cmd.Run()
}
