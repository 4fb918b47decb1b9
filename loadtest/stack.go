//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/report"
	"github.com/keyway-go/keyway/loadtest/internal/resource"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

// Groups of processes, by which CPU time is told.
const (
	groupFront = report.FrontCPU
	groupApp   = report.AppCPU
	groupStore = report.StoreCPU
)

// stage is what all stacks share.
type stage struct {
	*proc.Stage
	*options
	run     string // distinguishes the run from others
	built   cluster.Programs
	started int // stacks
}

// newStage makes a directory and the programs. The caller must call Close.
func newStage(ctx context.Context, o *options) (g *stage, err error) {
	if err := missing(o.requirements()); err != nil {
		return nil, err
	}
	processes, built, err := servers.Open(ctx, "loadtest", o.programs)
	return &stage{Stage: processes, run: strings.ToLower(rand.Text()[:8]), options: o, built: built}, err
}

// stack is a contender that takes requests.
type stack struct {
	contender
	*stage
	scenes     []scene // that it was started for
	ttl        time.Duration
	wait       time.Duration // of workWait
	name       string        // unique in the run
	cluster    string        // unique
	addr       string        // ip:port for requests
	table      *resource.Table
	judged     resource.Verdict // up to now
	sold       int64            // up to now
	redis      []*proc.Process
	redisAddrs []string          // host:port, by redis
	urls       map[string]string // of other stores
	balancer   *proc.Process     // nginx; nil without one
	nginx      cluster.Nginx
	gossip     string

	mu        sync.Mutex // guards what follows
	processes map[*proc.Process]report.Figure
	members   []*member
	restarted bool // a store was, so that its counters are not its own any more
}

// member is one of the processes that events are about.
type member struct {
	name    string
	process *proc.Process // worker, or app behind a load balancer
	addr    string        // host:port that takes requests
}

func (m *member) runs() bool { return m.process != nil && m.process.Ended() == nil }

// startStack starts a contender for some scenes, which may be none, and waits
// until it answers.
func (g *stage) startStack(ctx context.Context, c contender, scenes []scene) (s *stack, err error) {
	g.started++
	name := c.id + "-" + strconv.Itoa(g.started)
	s = &stack{
		contender: c, stage: g, scenes: scenes, ttl: g.ttl, wait: usualWait, name: name, cluster: name + "-" + g.run,
		urls: make(map[string]string), processes: make(map[*proc.Process]report.Figure),
	}
	if len(scenes) > 0 {
		s.ttl, s.wait = scenes[0].ttl, scenes[0].wait
	}
	if s.table, err = resource.Open(s.records(), s.keys); err != nil {
		return nil, err
	}
	if err := s.startAll(ctx); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.id, errors.Join(err, s.stop()))
	}
	return s, nil
}

func (s *stack) records() string { return filepath.Join(s.Dir, "records-"+s.name) }

func (s *stack) startAll(ctx context.Context) error {
	if err := s.startRedis(); err != nil {
		return err
	}
	for _, name := range stores(s.contender, s.scenes) {
		if err := s.startStore(ctx, name); err != nil {
			return err
		}
	}
	if s.keyway() {
		if err := s.startRouter(); err != nil {
			return err
		}
	}
	if s.design() == lockService {
		if err := s.startService(); err != nil {
			return err
		}
	}
	for range s.instances {
		if _, err := s.addMember(); err != nil {
			return err
		}
	}
	if !s.keyway() {
		if err := s.startBalancer(); err != nil {
			return err
		}
	}
	return load.Await(ctx, load.Config{Addr: s.addr, Mix: load.Mix{Keys: s.keys, Path: workNone}})
}

// start starts a process of a group.
func (s *stack) start(group report.Figure, spec proc.Spec) (*proc.Process, error) {
	p, err := s.Start(context.Background(), spec) // bounded by the stage
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes[p] = group
	return p, nil
}

// cpu returns the CPU time that each group has used so far.
func (s *stack) cpu() map[report.Figure]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := make(map[report.Figure]time.Duration)
	for p, group := range s.processes {
		sum[group] += proc.CPU(p)
	}
	return sum
}

func (s *stack) startRouter() error {
	args := []string{"--log-level", "warn", "--session-ttl", s.ttl.String()}
	if s.id == noneRouter {
		args = append(args, "--key", "header:X-None", "--without-key", "any")
	}
	p, err := s.start(groupFront, servers.Router("router-"+s.name, s.built.Router, s.cluster, s.redisAddrs[0], args...))
	if err != nil {
		return err
	}
	router := cluster.Of(p)
	s.addr, s.gossip = router.Listen, router.Gossip
	return nil
}

// startService starts the worker that keeps the apps' locks.
func (s *stack) startService() error {
	p, err := s.start(groupStore, servers.Worker("locks-"+s.name, s.built.Worker, s.cluster, s.redisAddrs[0], "", "--session-ttl", s.ttl.String(), "--log-level", "warn"))
	if err != nil {
		return err
	}
	s.gossip = cluster.Of(p).Gossip
	return nil
}

// addMember starts another worker or app.
func (s *stack) addMember() (*member, error) {
	s.mu.Lock()
	m := &member{name: "w" + strconv.Itoa(len(s.members)+1)}
	instance := len(s.members)
	s.members = append(s.members, m)
	s.mu.Unlock()
	listen, err := proc.FreeAddr()
	if err != nil {
		return nil, err
	}
	at := listen
	if s.front == frontSidecar { // it and its app are on one machine
		at = filepath.Join(s.Dir, "app-"+s.name+"-"+m.name)
	}
	spec, err := proc.Self("app-"+s.name+"-"+m.name, "app", appConfig{
		Design: s.design(), Local: s.local, Records: s.records(), Keys: s.keys, Redis: s.redisAddrs, Stores: s.urls, TTL: s.ttl, Wait: s.wait,
		Instance: instance, Instances: s.instances, Cluster: s.cluster, Name: m.name, Join: s.gossip, Listen: at,
	})
	if err != nil {
		return nil, err
	}
	spec.Ready = "ready"
	app, err := s.start(groupApp, spec)
	if err != nil {
		return nil, err
	}
	m.process, m.addr = app, listen
	if s.front == frontSidecar {
		m.process, err = s.start(groupApp, servers.Worker("sidecar-"+s.name+"-"+m.name, s.built.Worker, s.cluster, s.redisAddrs[0], s.gossip,
			"--listen", listen, "--upstream", "unix://"+at, "--session-ttl", s.ttl.String(), "--log-level", "warn"))
	}
	return m, err
}

// startBalancer starts nginx before the apps. It has few processes: these share the clients' connections unevenly, so with
// many of them the load test would measure their fairness and not the contenders'.
func (s *stack) startBalancer() (err error) {
	const enough = 8192 // connections, for clients and upstreams of any run
	s.nginx = cluster.Nginx{Dir: filepath.Join(s.Dir, "nginx-"+s.name), Workers: max(1, runtime.NumCPU()/4), Connections: enough, Hash: s.front == frontHash, Upstreams: s.upstreams()}
	if s.nginx.HTTP, err = proc.FreeAddr(); err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(s.nginx.Dir, 0o755), s.nginx.Write()); err != nil {
		return err
	}
	s.addr = s.nginx.HTTP
	s.balancer, err = s.start(groupFront, s.nginx.Spec("nginx-"+s.name))
	return err
}

// reload makes nginx take other upstreams.
func (s *stack) reload(upstreams []string) error {
	s.nginx.Upstreams = upstreams
	if err := s.nginx.Write(); err != nil {
		return err
	}
	return s.balancer.Signal(syscall.SIGHUP)
}

// upstreams are the addresses of the apps behind a load balancer.
func (s *stack) upstreams() (addrs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m.runs() {
			addrs = append(addrs, m.addr)
		}
	}
	return addrs
}

// since returns what the resource has seen since the last call, in which there
// was one kind of work. What was executed and is not missing from the stock in PostgreSQL is
// lost, too, whatever the records say.
func (s *stack) since(ctx context.Context, work string) (v resource.Verdict, err error) {
	v = s.table.Verdict()
	before := s.judged
	s.judged = v
	v.Sub(before)
	if work != workStockPostgres && s.id != pgVersion { // which sells whatever the work is
		return v, nil
	}
	sold, err := s.soldInPostgres(ctx)
	v.Lost = max(v.Lost, v.Executions-(sold-s.sold))
	s.sold = sold
	return v, err
}

// stop ends what the stack has started, stores after all others.
func (s *stack) stop() error {
	s.mu.Lock()
	all := maps.Clone(s.processes)
	clear(s.processes)
	s.mu.Unlock()
	for _, stores := range []bool{false, true} {
		how := syscall.SIGKILL
		if stores {
			how = syscall.SIGTERM
		}
		var ending sync.WaitGroup
		for p, group := range all {
			if stores == (group == groupStore) && p.Ended() == nil {
				ending.Go(func() { s.Stop(p, how) })
			}
		}
		ending.Wait()
	}
	return errors.Join(s.table.Close(), os.Remove(s.records()))
}
