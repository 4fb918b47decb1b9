//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// zookeeperJar is where Debian's package has it; it names all others.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

// zookeeperServer is one without others, which writes to the disk before it
// answers.
var zookeeperServer = server{
	pkg: "zookeeper",
	programs: func() []string {
		jar := zookeeperJar
		if _, err := os.Stat(jar); err != nil {
			jar = ""
		}
		return []string{proc.Find("java"), jar}
	},
	start:    startZooKeeper,
	url:      func(addr string) string { return addr },
	commands: zookeeperPackets,
}

// zookeeperPackets returns how many packets the server has received. It fails
// while the server does not serve yet: it accepts connections before, but drops
// what comes, and the client then waits for minutes.
func zookeeperPackets(ctx context.Context, addr string) (int64, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(c, "mntr"); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if n, ok := strings.CutPrefix(lines.Text(), "zk_packets_received\t"); ok {
			return strconv.ParseInt(n, 10, 64)
		}
	}
	return 0, fmt.Errorf("it does not say (%v)", lines.Err())
}

func startZooKeeper(l *launch) (spec proc.Spec, err error) {
	config := fmt.Sprintf("dataDir=%s\nclientPort=%s\nclientPortAddress=%s\ntickTime=500\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=mntr\n",
		filepath.Join(l.dir, "data"), l.port, l.host)
	path := filepath.Join(l.dir, "zoo.cfg")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return spec, err
	}
	serves := func(ctx context.Context) error {
		_, err := zookeeperPackets(ctx, net.JoinHostPort(l.host, l.port))
		return err
	}
	return proc.Spec{Program: proc.Find("java"), Args: []string{"-cp", zookeeperJar, "org.apache.zookeeper.server.ZooKeeperServerMain", path}, Serves: serves}, nil
}

// zookeeper is the lock of ZooKeeper's recipe: a sequential ephemeral node, and
// a watch on the one before. It waits without a context; what ends it early is
// the end of the connection.
func (a *app) zookeeper() (enter, func(), error) {
	conn, _, err := zk.Connect([]string{a.Stores[storeZooKeeper]}, a.TTL, zk.WithLogInfo(false))
	if err != nil {
		return nil, nil, err
	}
	lock := func(ctx context.Context, key string) (context.Context, int64, func(), error) {
		l := zk.NewLock(conn, "/"+a.lockName(key), zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return nil, 0, nil, err
		}
		return ctx, 0, func() { _ = l.Unlock() }, nil // its node ends with the session at the latest
	}
	return lock, conn.Close, nil
}
