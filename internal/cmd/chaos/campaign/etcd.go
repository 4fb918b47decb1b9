package main

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// etcdDisk is room for the two files of 64 MB that an etcd writes ahead, in bytes.
const etcdDisk = 256 << 20

// etcdURL is what the programs get.
func (c *cast) etcdURL() string {
	var list []string
	for _, name := range c.names("r") {
		list = append(list, c.at(name, etcdPort))
	}
	return "etcd://" + strings.Join(list, ",")
}

// startEtcd starts an etcd with its default elections on each host.
func (c *cast) startEtcd(ctx context.Context) error {
	var peers []string
	for _, name := range c.names("r") {
		peers = append(peers, name+"=http://"+c.at(name, etcdPeerPort))
	}
	for _, name := range c.names("r") {
		n := &node{cast: c, name: name, dir: filepath.Join(c.dir, name, "data")}
		if err := c.mountTmpfs(n.dir, etcdDisk); err != nil {
			return err
		}
		client, peer := "http://"+c.at(name, etcdPort), "http://"+c.at(name, etcdPeerPort)
		n.server = &trial.Daemon{In: c.hosts[name].Do, Log: n.file("etcd.log"), Args: []string{"etcd", "--name", name, "--data-dir", filepath.Join(n.dir, "etcd"), "--logger", "zap",
			"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(peers, ",")}}
		c.nodes = append(c.nodes, n)
		if err := n.server.Start(); err != nil {
			return err
		}
	}
	return trial.Await(ctx, "three etcd have a leader", c.etcdWhole)
}

// ask returns what the node answers, on its host.
func (n *node) ask(path string) string {
	host := n.cast.hosts[n.name]
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		return conn, host.Do(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, addr)
			return err
		})
	}}
	return trial.Get(&http.Client{Timeout: time.Second, Transport: transport}, n.cast.at(n.name, etcdPort), path)
}

// etcdLeader returns the node that alone says that it leads, or nil.
func (c *cast) etcdLeader() (leader *node) {
	for _, n := range c.nodes {
		if strings.Contains(n.ask("/metrics"), "\netcd_server_is_leader 1\n") {
			if leader != nil {
				return nil
			}
			leader = n
		}
	}
	return leader
}

func (c *cast) etcdWhole() bool {
	for _, n := range c.nodes {
		if !strings.Contains(n.ask("/health"), `"true"`) {
			return false
		}
	}
	return c.etcdLeader() != nil
}
