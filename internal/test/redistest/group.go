package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Cluster is a Redis Cluster of masters with a replica each.
type Cluster struct {
	t     testing.TB
	Nodes []*Server // masters and replicas
}

// StartCluster starts masters masters and as many replicas. A node that does
// not answer for a second fails over.
func StartCluster(t testing.TB, masters int) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	create := []string{"--cluster", "create"}
	for range 2 * masters {
		n := Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
			"--repl-diskless-sync-delay", "0", "--appendonly", "yes")
		c.Nodes = append(c.Nodes, n)
		create = append(create, n.Addr())
	}
	c.Nodes[0].CLI(append(create, "--cluster-replicas", "1", "--cluster-yes")...)
	eventually(t, "every node of the cluster finds it complete", func() bool {
		for _, n := range c.Nodes {
			if !strings.Contains(n.CLI("cluster", "info"), "cluster_state:ok") ||
				strings.Count(n.CLI("cluster", "nodes"), "connected") != len(c.Nodes) {
				return false
			}
			if !isReplica(n) && !strings.Contains(n.CLI("info", "replication"), "state=online") {
				return false
			}
		}
		return true
	})
	return c
}

// URL is redis+cluster://… with every node.
func (c *Cluster) URL() string {
	var more []string
	for _, n := range c.Nodes[1:] {
		more = append(more, "addr="+n.Addr())
	}
	return "redis+cluster://" + c.Nodes[0].Addr() + "?" + strings.Join(more, "&")
}

// Master is the node that owns a key's slot.
func (c *Cluster) Master(key string) *Server {
	c.t.Helper()
	n := c.serving(key)
	if n == nil {
		c.t.Fatalf("redistest: no node of the cluster serves %q", key)
	}
	return n
}

// serving is the node that owns a key's slot, or nil.
func (c *Cluster) serving(key string) *Server {
	for _, n := range c.Nodes {
		if out, err := n.cli("exists", key); err == nil && (out == "0" || out == "1") {
			return n
		}
	}
	return nil
}

// Failover kills the master of a key's slot, without a loss of data, and waits until its replica has
// taken over.
func (c *Cluster) Failover(key string) {
	c.t.Helper()
	old := c.Master(key)
	awaitReplica(c.t, old)
	old.Kill()
	eventually(c.t, "a replica serves "+key, func() bool { return c.serving(key) != nil })
}

// awaitReplica waits until a master's replica has all of its writes.
func awaitReplica(t testing.TB, master *Server) {
	t.Helper()
	eventually(t, "the replica has caught up", func() bool {
		info := master.CLI("info", "replication")
		_, rest, _ := strings.Cut(info, "master_repl_offset:")
		offset, _, _ := strings.Cut(rest, "\r\n")
		return strings.Contains(info, ",offset="+strings.TrimSpace(offset)+",")
	})
}

func isReplica(n *Server) bool {
	return strings.Contains(n.CLI("info", "replication"), "role:slave")
}

// Sentinel is a master and its replica, watched by one Sentinel.
type Sentinel struct {
	t       testing.TB
	Watcher *Server
	Nodes   [2]*Server // the first one begins as master
}

// masterName is the name under which a Sentinel knows its master.
const masterName = "keyway"

// StartSentinel starts the three. A master that does not answer for a second
// fails over.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	config := []string{"--repl-diskless-sync-delay", "0"}
	master := Start(t, config...)
	replica := Start(t, append(config, "--replicaof", "127.0.0.1 "+strconv.Itoa(master.port))...)
	s := &Sentinel{t: t, Nodes: [2]*Server{master, replica}}
	eventually(t, "the replica follows its master", func() bool {
		return strings.Contains(master.CLI("info", "replication"), "state=online")
	})
	s.Watcher = startSentinelProcess(t, master)
	s.Watcher.CLI("sentinel", "debug", "info-period", "200") // instead of 10 s
	eventually(t, "the sentinel knows the replica", func() bool {
		return strings.Contains(s.Watcher.CLI("sentinel", "replicas", masterName), strconv.Itoa(replica.port))
	})
	return s
}

// startSentinelProcess needs a configuration file that it may write to.
func startSentinelProcess(t testing.TB, master *Server) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir()}
	s.startOnFreePort(func(port int) []string {
		file := filepath.Join(s.dir, "sentinel.conf")
		config := fmt.Sprintf("port %d\nbind 127.0.0.1\nsentinel monitor %[2]s 127.0.0.1 %[3]d 1\n"+
			"sentinel down-after-milliseconds %[2]s 1000\nsentinel failover-timeout %[2]s 3000\n",
			port, masterName, master.port)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{file, "--sentinel"}
	})
	return s
}

// URL is redis-sentinel://…
func (s *Sentinel) URL() string {
	return "redis-sentinel://" + s.Watcher.Addr() + "?master=" + masterName
}

// Master is the node that the Sentinel says is master.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	addr := strings.Fields(s.Watcher.CLI("sentinel", "get-master-addr-by-name", masterName))
	for _, n := range s.Nodes {
		if len(addr) == 2 && net.JoinHostPort(addr[0], addr[1]) == n.Addr() {
			return n
		}
	}
	s.t.Fatalf("redistest: the sentinel names the unknown master %v", addr)
	return nil
}

// Failover kills the master, without a loss of data, and waits until the Sentinel has promoted the
// replica.
func (s *Sentinel) Failover() {
	s.t.Helper()
	old := s.Master()
	awaitReplica(s.t, old)
	old.Kill()
	eventually(s.t, "the sentinel has promoted the replica", func() bool { return s.hasPromoted(old) })
}

// Switchover has the Sentinel promote the replica while both go on running,
// and the old master follow it at once, for which the Sentinel by itself
// takes 8 seconds. Until then both take writes.
func (s *Sentinel) Switchover() {
	s.t.Helper()
	old := s.Master()
	awaitReplica(s.t, old)
	var asked time.Time
	eventually(s.t, "the sentinel has promoted the replica", func() bool {
		if s.hasPromoted(old) {
			return true
		}
		if time.Since(asked) > 10*time.Second && s.Watcher.CLI("sentinel", "failover", masterName) == "OK" { // it may still give up, and does not say so
			asked = time.Now()
		}
		return false
	})
	old.CLI("replicaof", "127.0.0.1", strconv.Itoa(s.Master().port))
}

func (s *Sentinel) hasPromoted(old *Server) bool {
	s.t.Helper()
	now := s.Master()
	return now != old && strings.Contains(now.CLI("info", "replication"), "role:master")
}
