package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/clock"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

const (
	masterName = "keyway"
	redisDisk  = 48 << 20        // bytes
	downAfter  = 3 * time.Second // until Sentinels take a silent master for dead
	maxLag     = 2               // seconds for which a master without replicas acknowledges writes
)

// redisURL is what the programs get.
func (c *cast) redisURL() string {
	names := c.names("r")
	parts := []string{fmt.Sprintf("redis-sentinel://%s?master=%s", c.at(names[0], sentinelPort), masterName)}
	for _, name := range names[1:] {
		parts = append(parts, c.at(name, sentinelPort))
	}
	return strings.Join(parts, "&addr=")
}

// startRedis starts a master on r1, replicas on the others and a Sentinel beside
// each, and returns when all replicas follow.
func (c *cast) startRedis(ctx context.Context) error {
	preload, err := clock.Preload(c.dir)
	if err != nil {
		return err
	}
	master := c.hosts["r1"].Addr
	for _, name := range c.names("r") {
		host := c.hosts[name]
		n := &node{cast: c, name: name, dir: filepath.Join(c.dir, name, "data")}
		if err := c.mountTmpfs(n.dir, redisDisk); err != nil {
			return err
		}
		server := fmt.Sprintf("port %d\nbind %s\nprotected-mode no\ndir %s\nsave \"\"\nappendonly yes\nappendfsync everysec\n"+
			"maxmemory-policy noeviction\nmin-replicas-to-write 1\nmin-replicas-max-lag %d\nrepl-diskless-sync-delay 0\nrepl-ping-replica-period 1\nrepl-timeout 10\n",
			redisPort, c.hosts[name].Addr, n.dir, maxLag)
		if name != "r1" {
			server += fmt.Sprintf("replicaof %s %d\n", master, redisPort)
		}
		sentinel := fmt.Sprintf("port %d\nbind %s\nprotected-mode no\ndir %s\nsentinel monitor %s %s %d 2\nsentinel down-after-milliseconds %s %d\n"+
			"sentinel failover-timeout %s 10000\nsentinel parallel-syncs %s 2\n",
			sentinelPort, c.hosts[name].Addr, filepath.Join(c.dir, name), masterName, master, redisPort, masterName, downAfter.Milliseconds(), masterName, masterName)
		for file, text := range map[string]string{"redis.conf": server, "sentinel.conf": sentinel} {
			if err := os.WriteFile(n.file(file), []byte(text), 0o600); err != nil {
				return err
			}
		}
		if n.clock, err = clock.New(n.file("clock")); err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
		n.server = &trial.Daemon{In: host.Do, Log: n.file("redis.log"), Args: []string{"LD_PRELOAD=" + preload, clock.Env + "=" + n.file("clock"), "redis-server", n.file("redis.conf")}}
		n.sentinel = &trial.Daemon{In: host.Do, Log: n.file("sentinel.log"), Args: []string{"redis-sentinel", n.file("sentinel.conf")}}
		if err := n.server.Start(); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := n.sentinel.Start(); err != nil {
			return err
		}
	}
	return trial.Await(ctx, "the replicas follow and the Sentinels know each other", func() bool {
		for _, n := range c.nodes {
			info, _ := n.cli(sentinelPort, "sentinel", "master", masterName)
			if !strings.Contains(info, "num-other-sentinels\n2") || !strings.Contains(info, "num-slaves\n2") {
				return false
			}
		}
		info, _ := c.nodes[0].cli(redisPort, "info", "replication")
		return strings.Count(info, "state=online") == storeHosts-1
	})
}

// cli asks the server or the Sentinel, on its host.
func (n *node) cli(port int, args ...string) (out string, err error) {
	err = n.cast.hosts[n.name].Do(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		b, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-h", n.cast.hosts[n.name].Addr.String(), "-p", fmt.Sprint(port)}, args...)...).Output()
		out = strings.TrimSpace(string(b))
		return err
	})
	return out, err
}

// redisMaster returns the node that most Sentinels take for the master, or nil.
func (c *cast) redisMaster() *node {
	votes := make(map[string]int)
	for _, n := range c.nodes {
		out, err := n.cli(sentinelPort, "sentinel", "get-master-addr-by-name", masterName)
		if err == nil {
			addr, _, _ := strings.Cut(out, "\n")
			votes[addr]++
		}
	}
	for _, n := range c.nodes {
		if votes[c.hosts[n.name].Addr.String()] >= 2 {
			return n
		}
	}
	return nil
}

// redisWhole reports whether a master has all other nodes as replicas.
func (c *cast) redisWhole() bool {
	m := c.redisMaster()
	if m == nil {
		return false
	}
	info, err := m.cli(redisPort, "info", "replication")
	return err == nil && strings.Contains(info, "role:master") && strings.Count(info, "state=online") == storeHosts-1
}

// mend cuts off what a full disk has left of the last write.
func (n *node) mend() {
	cmd := exec.Command("redis-check-aof", "--fix", filepath.Join(n.dir, "appendonlydir", "appendonly.aof.manifest"))
	cmd.Stdin = strings.NewReader("y\ny\n")
	_ = cmd.Run()
}
