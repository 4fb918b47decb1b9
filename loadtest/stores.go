//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// Stores beside Redis.
const (
	storePostgres  = "postgres"
	storeMariaDB   = "mariadb"
	storeEtcd      = "etcd"
	storeZooKeeper = "zookeeper"
)

// server is a kind of store beside Redis.
type server struct {
	pkg      string                           // Debian's package
	programs func() (needed []string)         // paths of what start runs; "" for one that is not installed
	start    func(*launch) (proc.Spec, error) // with a Dial of its own, or where the launch says
	url      func(addr string) string
	prepare  func(ctx context.Context, s *stack, url string) error // may be nil
	commands func(ctx context.Context, url string) (int64, error)  // that it has executed so far
}

// launch is what a server is started with.
type launch struct {
	context.Context
	dir        string // its own
	host, port string
	clients    int // connections that it must take
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

// connectionsEach is how many connections each app has to a database.
const connectionsEach = 30

// startStore starts and prepares a store of the stack's own.
func (s *stack) startStore(ctx context.Context, name string) error {
	kind := storeKinds()[name]
	addr, err := proc.FreeAddr()
	if err != nil {
		return err
	}
	l := &launch{Context: ctx, dir: filepath.Join(s.Dir, name+"-"+s.name), clients: connectionsEach*(s.instances+s.newcomers()) + 10}
	l.host, l.port, _ = strings.Cut(addr, ":")
	if err := os.Mkdir(l.dir, 0o700); err != nil {
		return err
	}
	spec, err := kind.start(l)
	if err != nil {
		return err
	}
	spec.Name, spec.Dial = name+"-"+s.name, cmp.Or(spec.Dial, addr)
	if _, err := s.start(groupStore, spec); err != nil {
		return err
	}
	s.urls[name] = kind.url(spec.Dial)
	if kind.prepare == nil {
		return nil
	}
	if err := kind.prepare(ctx, s, s.urls[name]); err != nil {
		return fmt.Errorf("preparing %s: %w", name, err)
	}
	return nil
}

// newcomers is how many workers come during a turn at most.
func (s *stack) newcomers() (n int) {
	for _, sc := range s.scenes {
		n = max(n, len(sc.events))
	}
	return n
}

// commands returns how many commands the stack's stores have executed.
func (s *stack) commands(ctx context.Context) (sum int64, err error) {
	s.mu.Lock()
	redis := slices.Clone(s.redis) // an event may restart them
	s.mu.Unlock()
	for _, p := range redis {
		n, err := redisCommands(ctx, p.Dial)
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
