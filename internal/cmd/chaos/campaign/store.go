package main

import (
	"context"
	"path/filepath"
	"syscall"

	"github.com/keyway-go/keyway/internal/cmd/chaos/clock"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// The stores that a campaign can run over.
const (
	overRedis = "redis" // three Redis with Sentinels
	overEtcd  = "etcd"  // three etcd
)

// node is one of the store's servers on its host.
type node struct {
	cast     *cast
	name     string // of the host
	dir      string // on a disk of its own
	server   *trial.Daemon
	clock    *clock.Clock  // of a redis-server; nil over etcd
	sentinel *trial.Daemon // nil over etcd
}

func (n *node) file(name string) string { return filepath.Join(n.cast.dir, n.name, name) }

// daemons are the node's processes.
func (n *node) daemons() []*trial.Daemon {
	if n.sentinel == nil {
		return []*trial.Daemon{n.server}
	}
	return []*trial.Daemon{n.server, n.sentinel}
}

func (n *node) close() {
	for _, d := range n.daemons() {
		d.End(syscall.SIGKILL)
	}
	if n.clock != nil {
		_ = n.clock.Close()
	}
}

// startStore starts a node on each host and returns when the store is whole.
func (c *cast) startStore(ctx context.Context) error {
	if c.cfg.Store == overEtcd {
		return c.startEtcd(ctx)
	}
	return c.startRedis(ctx)
}

// storeURL is what the programs get.
func (c *cast) storeURL() string {
	if c.cfg.Store == overEtcd {
		return c.etcdURL()
	}
	return c.redisURL()
}

// leader returns the node that leads the store, once there is one.
func (c *cast) leader(ctx context.Context) (n *node, err error) {
	err = trial.Await(ctx, "the store has a leader", func() bool { n = c.elected(); return n != nil })
	return n, err
}

// elected returns the node that leads the store, or nil.
func (c *cast) elected() *node {
	if c.cfg.Store == overEtcd {
		return c.etcdLeader()
	}
	return c.redisMaster()
}

// whole reports whether the store has a leader and all other nodes follow it.
func (c *cast) whole() bool {
	if c.cfg.Store == overEtcd {
		return c.etcdWhole()
	}
	return c.redisWhole()
}
