package main

import (
	"context"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/cluster/proc"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// stage is the cluster that is tried: a redis-server, a router, workers as
// sidecars, and the observer behind them.
type stage struct {
	cfg      config
	dir      string // of logs and data
	programs cluster.Programs
	redis    *trial.Store
	router   *trial.Program
	at       *cluster.Process // the router's
	observer *trial.Observer
	front    string            // host:port that takes requests
	doors    map[string]string // host:port by worker; nil unless requests take these
	links    *links            // nil unless they are troubled
	lives    *trial.Lives
	logs     io.Writer // what prints logs, too; nil for nothing

	mu      sync.Mutex
	workers map[string]*trial.Program // by name
}

// newStage builds the programs and starts redis-server.
func newStage(ctx context.Context, cfg config, dir string) (*stage, error) {
	s := &stage{cfg: cfg, dir: dir, observer: trial.NewObserver(), lives: &trial.Lives{Dir: dir}, workers: make(map[string]*trial.Program)}
	if cfg.Verbose {
		s.logs = cluster.LockedWriter(cfg.Out)
	}
	if cfg.Links {
		s.links = &links{start: s.observer.Start}
	}
	var err error
	if s.programs, err = cfg.build(ctx, dir); err != nil {
		return nil, err
	}
	// A kill -9 after an answer loses nothing that was answered.
	s.redis, err = trial.StartRedis(ctx, dir)
	return s, err
}

// build builds the programs, unless there are some already.
func (c config) build(ctx context.Context, dir string) (cluster.Programs, error) {
	if c.Programs != "" {
		return cluster.In(c.Programs), nil
	}
	var flags []string
	if c.Race {
		flags = append(flags, "-race")
	}
	return cluster.Build(ctx, dir, flags...)
}

// start starts the router and the first workers, and returns when every worker
// is ready and requests are answered.
func (s *stage) start(ctx context.Context, names []string) error {
	s.router = &trial.Program{Name: "router", Lives: s.lives, Spec: func(string, int) (proc.Spec, error) {
		return s.spec(s.programs.Router, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0",
			"--hold", s.cfg.Hold.String(), "--locks", "unix://"+s.locks()), nil
	}}
	if err := s.router.Start(ctx); err != nil {
		return err
	}
	router, err := s.router.Alive()
	if err != nil {
		return err
	}
	s.at = cluster.Of(router.Process)
	s.front = s.at.Listen
	if s.doors != nil {
		if s.front, err = s.startNginx(ctx); err != nil {
			return err
		}
	}
	for _, name := range names {
		s.startWorker(ctx, name)
	}
	for _, name := range names {
		if _, err := s.worker(name).Alive(); err != nil {
			return err
		}
	}
	return trial.WarmUp(ctx, trial.To(s.front))
}

// locks is the socket of the router's lock service.
func (s *stage) locks() string { return filepath.Join(s.dir, "locks") }

func (s *stage) spec(program string, args ...string) proc.Spec {
	args = append(args, "--redis", s.redis.URL(), "--session-ttl", s.cfg.TTL.String())
	if s.cfg.Verbose {
		args = append(args, "--log-level", "debug")
	}
	return proc.Spec{Program: program, Args: args, Out: s.logs, Ready: cluster.ReadyLine}
}

// startWorker starts a worker, and does not wait until it is ready.
func (s *stage) startWorker(ctx context.Context, name string) *trial.Life {
	s.mu.Lock()
	p := s.workers[name]
	if p == nil {
		p = &trial.Program{Name: name, Lives: s.lives, Spec: func(label string, life int) (proc.Spec, error) {
			url, err := s.observer.Listen(label, "tcp", "127.0.0.1:0")
			if err != nil {
				return proc.Spec{}, err
			}
			args := []string{"--name", name, "--admin", "127.0.0.1:0", "--join", s.at.Gossip, "--upstream", url, "--lock-file", filepath.Join(s.dir, name+".lock")}
			if s.doors != nil {
				args = append(args, "--public", s.doors[name], "--hold", s.cfg.Hold.String())
			}
			if s.links != nil {
				listen, err := s.links.add(label)
				if err != nil {
					return proc.Spec{}, err
				}
				args = append(args, listen...)
			}
			if life == 1 && slices.Contains(firstWorkers(), name) {
				args = append(args, "--new-cluster")
			}
			return s.spec(s.programs.Worker, args...), nil
		}}
		s.workers[name] = p
	}
	s.mu.Unlock()
	return p.Begin(ctx)
}

// worker returns the worker with a name, which may not run.
func (s *stage) worker(name string) *trial.Program {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers[name]
}

// running returns the workers that are meant to run.
func (s *stage) running() []*trial.Program {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(s.workers)), func(p *trial.Program) bool { return !p.Runs() })
}

// stop ends the workers, then the router, and returns what did not go well.
func (s *stage) stop() []error {
	return append(trial.StopAll(s.running()), s.router.Stop())
}

// kill ends everything that still runs.
func (s *stage) kill() {
	s.lives.Kill()
	if s.links != nil {
		s.links.close()
	}
	s.redis.Kill()
	s.observer.Close()
}
