package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// stores are the kinds of stores, and how one is made in a directory.
var stores = []struct {
	name, title string
	make        func(dir string) (*trial.Store, error)
}{
	{"redis", "Redis", func(dir string) (*trial.Store, error) { return redis(dir, 1) }},
	{"sentinel", "Redis, Sentinel", func(dir string) (*trial.Store, error) { return redis(dir, 3) }},
	{"etcd", "etcd of three", etcd},
}

// settings returns files of deploy/redis, without the names of other files in them.
func settings(names ...string) (string, error) {
	var kept strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "redis", name))
		if err != nil {
			return "", fmt.Errorf("the working directory has to be internal/cmd/chaos: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "aclfile ") && !strings.HasPrefix(line, "include ") {
				kept.WriteString(line)
			}
		}
	}
	return kept.String(), nil
}

// redis makes a Redis, or a primary and replicas with a Sentinel each.
func redis(dir string, n int) (*trial.Store, error) {
	store, files := new(trial.Store), []string{"redis.conf"}
	if n > 1 {
		files = append(files, "replicated.conf")
	}
	server, err := settings(files...)
	if err != nil {
		return nil, err
	}
	sentinel, err := settings("sentinel.conf")
	if err != nil {
		return nil, err
	}
	for i := range n {
		node, err := trial.NewNode(dir, fmt.Sprint("redis-", i+1), n > 1)
		if err != nil {
			return nil, err
		}
		store.Nodes = append(store.Nodes, node)
		first := strings.ReplaceAll(store.Nodes[0].Addr, ":", " ")
		text := fmt.Sprintf("%s\nport %s\nbind 127.0.0.1\ndir %s\nsave \"\"\n", server, port(node.Addr), node.Data)
		if i > 0 {
			text += "replicaof " + first
		}
		beside := ""
		if n > 1 {
			beside = strings.NewReplacer("redis-1 6379", first, "port 26379", "bind 127.0.0.1\nport "+port(node.Beside), "keyway 1000", fmt.Sprint("keyway ", 1000+300*i)).Replace(sentinel)
		}
		if err := node.Redis(text, beside); err != nil {
			return nil, err
		}
	}
	return store, nil
}

func port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// etcd makes an etcd of three.
func etcd(dir string) (*trial.Store, error) {
	var nodes []*trial.Node
	for i := range 3 {
		n, err := trial.NewNode(dir, fmt.Sprint("etcd-", i+1), true)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return trial.NewEtcd(nodes), nil
}
