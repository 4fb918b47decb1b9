package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/test/redistest"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// stage is the cluster that is tried: a redis-server, a router, workers as
// sidecars, and the observer behind them.
type stage struct {
	cfg      config
	dir      string // of logs and data
	host     *host
	programs cluster.Programs
	redis    *redistest.Server
	router   *process
	observer *trial.Observer
	links    *links // nil unless they are troubled

	mu      sync.Mutex
	workers map[string]*process // by name; those meant to run
	started map[string]int      // by name; how often
	deaths  []string            // of processes that were not meant to end
}

// process is one life of a router or worker.
type process struct {
	*cluster.Process
	name     string
	label    string        // w2#1 is the first process with the name w2
	ready    chan struct{} // closed when it is ready, or has failed to be
	err      error         // set before ready is closed
	expected chan struct{} // closed when its end is meant
	log      *os.File
}

// newStage builds the programs and starts redis-server.
func newStage(ctx context.Context, cfg config, dir string) (*stage, error) {
	s := &stage{cfg: cfg, dir: dir, host: &host{dir: dir}, observer: trial.NewObserver(),
		workers: make(map[string]*process), started: make(map[string]int)}
	if cfg.Links {
		s.links = &links{start: s.observer.Start}
	}
	var err error
	if s.programs, err = cfg.build(ctx, dir); err != nil {
		return nil, err
	}
	// A kill -9 after an answer loses nothing that was answered.
	return s, catch(func() {
		s.redis = redistest.Start(s.host, "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")
	})
}

// build builds the programs, unless there are some already.
func (c config) build(ctx context.Context, dir string) (cluster.Programs, error) {
	if c.Programs != "" {
		return cluster.Programs{Router: filepath.Join(c.Programs, "router"), Worker: filepath.Join(c.Programs, "worker")}, nil
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
	router, err := s.launch(ctx, "router", s.programs.Router,
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0",
		"--redis", s.redis.URL(), "--session-ttl", s.cfg.TTL.String(), "--hold", s.cfg.Hold.String(),
		"--locks", "unix://"+s.locks())
	if err != nil {
		return err
	}
	<-router.ready
	if router.err != nil {
		return router.err
	}
	s.router = router
	for _, name := range names {
		if _, err := s.startWorker(ctx, name, "--new-cluster"); err != nil {
			return err
		}
	}
	for _, name := range names {
		if _, err := s.worker(name); err != nil {
			return err
		}
	}
	return trial.WarmUp(ctx, trial.To(s.router.Listen))
}

// locks is the socket of the router's lock service.
func (s *stage) locks() string { return filepath.Join(s.dir, "locks") }

// startWorker starts a worker; see [process.ready].
func (s *stage) startWorker(ctx context.Context, name string, args ...string) (*process, error) {
	s.mu.Lock()
	label := fmt.Sprintf("%s#%d", name, s.started[name]+1)
	s.mu.Unlock()
	url, err := s.observer.Listen(label, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if s.links != nil {
		listen, err := s.links.add(label)
		if err != nil {
			return nil, err
		}
		args = append(args, listen...)
	}
	return s.launch(ctx, name, s.programs.Worker, append([]string{
		"--name", name, "--admin", "127.0.0.1:0", "--join", s.router.Gossip, "--upstream", url,
		"--redis", s.redis.URL(), "--session-ttl", s.cfg.TTL.String(),
		"--lock-file", filepath.Join(s.dir, name+".lock"),
	}, args...)...)
}

func (s *stage) launch(ctx context.Context, name, program string, args ...string) (*process, error) {
	s.mu.Lock()
	s.started[name]++
	label := fmt.Sprintf("%s#%d", name, s.started[name])
	s.mu.Unlock()
	log, err := os.Create(filepath.Join(s.dir, label+".log"))
	if err != nil {
		return nil, err
	}
	p := &process{name: name, label: label, ready: make(chan struct{}), expected: make(chan struct{}), log: log}
	if program == s.programs.Worker {
		s.mu.Lock()
		s.workers[name] = p
		s.mu.Unlock()
	}
	out := io.Writer(p.log)
	if s.cfg.Verbose {
		out = io.MultiWriter(p.log, s.cfg.Out)
		args = append(args, "--log-level", "debug")
	}
	go func() {
		defer close(p.ready)
		p.Process, p.err = cluster.Start(ctx, p.label, program, cluster.LockedWriter(out), args...)
		if p.err == nil {
			go s.watch(p)
		}
	}()
	return p, nil
}

// watch notes a process that ends by itself.
func (s *stage) watch(p *process) {
	<-p.Done()
	defer p.log.Close()
	select {
	case <-p.expected:
		return
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaths = append(s.deaths, fmt.Sprintf("%s ended by itself: %v", p.label, p.Err()))
}

// worker returns the worker that is meant to run under a name, once it is
// ready.
func (s *stage) worker(name string) (*process, error) {
	s.mu.Lock()
	p := s.workers[name]
	s.mu.Unlock()
	if p == nil {
		return nil, fmt.Errorf("no worker %s runs", name)
	}
	<-p.ready
	return p, p.err
}

// remove takes a worker off those that are meant to run.
func (s *stage) remove(p *process) {
	close(p.expected)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers[p.name] == p {
		delete(s.workers, p.name)
	}
}

// running returns the workers that are meant to run.
func (s *stage) running() []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*process
	for _, p := range s.workers {
		all = append(all, p)
	}
	return all
}

// exitTimeout is a little more than the grace period of a worker.
const exitTimeout = 35 * time.Second

// terminate ends a process with SIGTERM; it has to exit with 0.
func (s *stage) terminate(p *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), exitTimeout)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		return fmt.Errorf("%s after SIGTERM: %w", p.label, err)
	}
	return nil
}

// stop ends the workers, then the router, and returns what did not go well.
func (s *stage) stop() []error {
	workers := s.running()
	errs := make([]error, len(workers)+1)
	var wg sync.WaitGroup
	for i, p := range workers {
		wg.Go(func() {
			if <-p.ready; p.err != nil {
				errs[i] = p.err
				return
			}
			s.remove(p)
			errs[i] = s.terminate(p)
		})
	}
	wg.Wait()
	if s.router != nil {
		close(s.router.expected)
		errs[len(workers)] = s.terminate(s.router)
	}
	return append(errs, catch(func() { s.redis.Stop() }))
}

// kill ends everything that still runs.
func (s *stage) kill() {
	for _, p := range s.running() {
		if <-p.ready; p.err == nil {
			s.remove(p)
			p.Kill()
		}
	}
	if s.router != nil {
		s.router.Kill()
	}
	if s.links != nil {
		s.links.close()
	}
	s.host.cleanUp()
	s.observer.Close()
}

// host is what redistest needs of a test.
type host struct {
	dir      string
	cleanups []func()
}

// hostFailure is what a host panics with, for [catch].
type hostFailure struct{ why string }

func (f hostFailure) Error() string { return f.why }

// catch returns what failed inside of f by means of a host.
func catch(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			failure, ok := r.(hostFailure)
			if !ok {
				panic(r)
			}
			err = failure
		}
	}()
	f()
	return nil
}

func (h *host) Helper()                   {}
func (h *host) Cleanup(f func())          { h.cleanups = append(h.cleanups, f) }
func (h *host) Fatal(args ...any)         { panic(hostFailure{fmt.Sprint(args...)}) }
func (h *host) Skip(args ...any)          { h.Fatal(args...) }
func (h *host) Fatalf(f string, a ...any) { panic(hostFailure{fmt.Sprintf(f, a...)}) }

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp(h.dir, "redis-")
	if err != nil {
		h.Fatal(err)
	}
	return dir
}

func (h *host) cleanUp() {
	for i := len(h.cleanups) - 1; i >= 0; i-- {
		h.cleanups[i]()
	}
	h.cleanups = nil
}
