package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/cluster/proc"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// The workers are there from the start, and the newcomers for a while.
var (
	workers   = []string{"w1", "w2", "w3", "w4"}
	newcomers = []string{"n1"}
)

// stage is the cluster that is tried: a redis-server, a router, workers as
// sidecars, and the observer behind them.
type stage struct {
	*trial.Site
	cfg    config
	gossip string // host:port of the router
	front  string // host:port that takes requests
	admin  string // host:port of the router's admin address

	lockURLs []string // of the lock services for clients in other languages
	clients  string   // directory of those
}

// plan says which faults come when. No request may fail for want of an owner: they are held for longer than faults at one
// time, such as a killed worker that comes back in a quarantine, keep a partition from others.
func (s *stage) plan() trial.Plan {
	return trial.Plan{
		Time: s.cfg.Time, Seed: s.cfg.Seed, TTL: s.cfg.TTL, Quiet: time.Second, Together: 3,
		Hosts: slices.Concat([]string{"store"}, workers, newcomers),
		Kinds: []*trial.Kind{
			{Name: "kill-worker", Target: "w", Lasts: [2]int{0, 14}, Fails: trial.Broken, Ran: true, Door: s.cfg.Doors, Takes: true, Play: s.Kill},
			{Name: "pause-worker", Target: "w", Lasts: [2]int{3, 16}, Fails: trial.Resumed, Ran: true, Settle: 0.5, Late: true, Takes: true, Play: s.Pause},
			{Name: "restart-worker", Target: "w", Lasts: [2]int{0, 10}, Beside: true, Play: s.Restart},
			{Name: "add-worker", Target: "n", Lasts: [2]int{3, 14}, Beside: true, Play: s.Add},
			{Name: "restart-store", Target: "s", Lasts: [2]int{0, 2}, Beside: true, Ends: true, Play: s.RestartStore},
			{Name: "lose-store", Target: "s", Lasts: [2]int{0, 2}, Beside: true, Ends: true, Play: s.LoseStore},
		},
	}
}

// build builds the programs, starts redis-server, and nginx before the doors of all workers, and makes the members.
func (s *stage) build(ctx context.Context) (err error) {
	if s.Programs, err = cluster.Build(ctx, s.Stage.Dir); err != nil {
		return err
	}
	// A Redis that is killed loses nothing which it has acknowledged: it writes before it answers. It waits for no disk,
	// which would be the slowest part of a trial beside other work.
	nodes, err := trial.NewNodes(s.Stage.Dir, "redis", 1)
	if err != nil {
		return err
	}
	if s.Store, err = trial.NewRedis(nodes, "appendfsync no"); err != nil {
		return err
	}
	if err := s.Store.Start(ctx); err != nil {
		return err
	}
	names := slices.Concat(workers, newcomers)
	addrs := make([]string, 4+len(names))
	for i := range addrs {
		if addrs[i], err = proc.FreeAddr(); err != nil {
			return err
		}
	}
	s.gossip, s.front, s.admin = addrs[0], addrs[1], addrs[3]
	doors, hold := addrs[4:], (3*s.TTL + 5*time.Second).String()
	if s.cfg.Doors {
		s.front = addrs[2]
		if err := s.startNginx(ctx, doors); err != nil {
			return err
		}
	}
	if s.cfg.Verbose {
		s.Args = []string{"--log-level", "debug"}
	}
	s.TCP, s.Later = true, newcomers
	s.AddRouter("router", "--listen", addrs[1], "--admin", s.admin, "--gossip", s.gossip, "--hold", hold, "--locks", "unix://"+s.locks())
	if len(s.cfg.Languages) > 0 {
		if err := s.addLanguages(ctx); err != nil {
			return err
		}
	}
	for i, name := range names {
		s.AddWorker(name, func(string) ([]string, error) {
			args := []string{"--admin", "127.0.0.1:0", "--join", s.gossip, "--lock-file", filepath.Join(s.Stage.Dir, name+".lock")}
			if s.cfg.Doors {
				args = append(args, "--public", doors[i], "--hold", hold)
			}
			return args, nil
		})
	}
	return nil
}

// locks is the socket of the router's lock service.
func (s *stage) locks() string { return filepath.Join(s.Stage.Dir, "locks") }

// startNginx starts nginx at the front, before the doors: a plain round robin, which tries the next server if a connection
// fails.
func (s *stage) startNginx(ctx context.Context, doors []string) error {
	n := &cluster.Nginx{Dir: filepath.Join(s.Stage.Dir, "nginx"), HTTP: s.front, Workers: 1, Connections: 4096, Fresh: true, Upstreams: doors}
	spec := n.Spec("nginx")
	if spec.Program == "" {
		return errors.New("nginx is not installed. As root: scripts/deps nginx (Debian's package)")
	}
	if err := errors.Join(os.Mkdir(n.Dir, 0o755), n.Write()); err != nil {
		return err
	}
	_, err := s.Stage.Start(ctx, spec)
	return err
}
