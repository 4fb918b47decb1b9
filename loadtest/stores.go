//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// Stores, by the names of the flags that give the address of one.
const (
	storeRedis     = "redis"
	storePostgres  = "postgres"
	storeMariaDB   = "mariadb"
	storeEtcd      = "etcd"
	storeZooKeeper = "zookeeper"
)

// server is a kind of store beside Redis.
type server struct {
	pkg      string                    // Debian's package
	programs func() (needed []string)  // paths of what start runs; "" for one that is not installed
	version  func() (command []string) // prints it
	start    func(*launch) (proc.Spec, error)
	url      func(addr string) string // of a server that was started
	prepare  func(ctx context.Context, s *stack, url string) error
	clean    func(ctx context.Context, s *stack, url string) error
	commands func(ctx context.Context, url string) (int64, error) // that it has executed so far
}

// launch is what a server is started with.
type launch struct {
	context.Context
	dir        string // its own
	host, port string
	more       string // another free port
	clients    int    // connections that it must take
}

// storeKinds are the servers beside Redis, by name.
func storeKinds() map[string]server {
	return map[string]server{
		storePostgres:  postgresServer,
		storeMariaDB:   mariadbServer,
		storeEtcd:      etcdServer,
		storeZooKeeper: zookeeperServer,
	}
}

// startStore starts a store of the stack's own, unless one was given, and
// prepares it.
func (s *stack) startStore(ctx context.Context, name string) error {
	kind := storeKinds()[name]
	url, given := s.given[name]
	reached := url
	if !given {
		addr, err := s.launch(ctx, name, kind)
		if err != nil {
			return err
		}
		url = kind.url(addr)
		if addr, err = s.through(addr); err != nil {
			return err
		}
		reached = kind.url(addr)
	}
	s.urls[name], s.remote.urls[name] = url, reached
	if kind.prepare == nil {
		return nil
	}
	if err := kind.prepare(ctx, s, url); err != nil {
		return fmt.Errorf("preparing %s: %w", name, err)
	}
	return nil
}

// connectionsEach is how many connections each app has to a database.
const connectionsEach = 30

// launch starts a server and returns its host:port.
func (s *stack) launch(ctx context.Context, name string, kind server) (addr string, err error) {
	if addr, err = proc.FreeAddr(); err != nil {
		return "", err
	}
	more, err := proc.FreeAddr()
	if err != nil {
		return "", err
	}
	l := &launch{Context: ctx, dir: filepath.Join(s.dir, name+"-"+s.name), clients: connectionsEach*(s.instances+s.newcomers()) + 10}
	l.host, l.port, _ = strings.Cut(addr, ":")
	_, l.more, _ = strings.Cut(more, ":")
	if err := os.Mkdir(l.dir, 0o700); err != nil {
		return "", err
	}
	spec, err := kind.start(l)
	if err != nil {
		return "", err
	}
	spec.Name, spec.Dial = name+"-"+s.name, addr
	if _, err := s.start(groupStore, spec); err != nil {
		return "", err
	}
	return addr, nil
}

// newcomers is how many workers come during a turn at most.
func (s *stack) newcomers() (n int) {
	for _, sc := range s.scenes {
		n = max(n, len(sc.events))
	}
	return n
}

// isGiven reports whether the stack uses a server that it has not started.
func (s *stack) isGiven() bool {
	for name := range s.given {
		if name == storeRedis || s.urls[name] != "" {
			return true
		}
	}
	return false
}

// commands returns how many commands the stack's stores have executed.
func (s *stack) commands(ctx context.Context) (sum int64, err error) {
	if s.isGiven() {
		return 0, nil // others may use it, too
	}
	for _, addr := range s.redis {
		n, err := redisCommands(ctx, addr)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	for name, url := range s.urls {
		n, err := storeKinds()[name].commands(ctx, url)
		if err != nil {
			return 0, fmt.Errorf("asking %s how many commands it has executed: %w", name, err)
		}
		sum += n
	}
	return sum, nil
}

// cleanStores removes what the stack has left in servers that were given.
func (s *stack) cleanStores(ctx context.Context) error {
	var failed error
	if s.given[storeRedis] != "" {
		for _, addr := range s.redis {
			failed = errors.Join(failed, cleanRedis(ctx, addr, s.cluster))
		}
	}
	for name, url := range s.urls {
		if kind := storeKinds()[name]; kind.clean != nil && s.given[name] != "" {
			failed = errors.Join(failed, kind.clean(ctx, s, url))
		}
	}
	return failed
}

// cleanRedis removes all keys that have a cluster's name in theirs.
func cleanRedis(ctx context.Context, addr, cluster string) error {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	found := client.Scan(ctx, 0, "*"+cluster+"*", 1000).Iterator()
	for found.Next(ctx) {
		if err := client.Unlink(ctx, found.Val()).Err(); err != nil {
			return err
		}
	}
	return found.Err()
}
