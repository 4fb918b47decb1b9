//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/delay"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/resource"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

// Groups of processes, by which CPU time is told.
const (
	groupFront = "front"
	groupApp   = "app"
	groupStore = "store"
)

// stage is what all stacks share.
type stage struct {
	*proc.Stage
	*options
	dir     string // of records, configurations and logs
	run     string // distinguishes the run from others
	self    string // this program
	built   cluster.Programs
	started int            // stacks
	network *delay.Network // between the processes; nil for the loopback
}

// stack is a contender that takes requests.
type stack struct {
	contender
	*stage
	scenes   []scene // that it was started for
	ttl      time.Duration
	wait     time.Duration // of workWait
	name     string        // unique in the run
	cluster  string        // unique
	addr     string        // ip:port for requests
	table    *resource.Table
	judged   resource.Verdict  // up to now
	sold     map[string]int64  // up to now, by work
	stores   []*proc.Process   // of Redis
	redis    []string          // host:port of each
	urls     map[string]string // of other stores
	remote   remote            // where the stack's processes reach the stores
	balancer *balancer
	gossip   string

	mu        sync.Mutex // guards what follows
	processes map[*proc.Process]string
	retired   map[string]time.Duration // CPU time of those that have ended, by group
	members   []*member
	forwarded []string // addresses in the network
	restarted bool     // a store was, so that its counters are not its own any more
}

// remote is where processes reach stores over the network.
type remote struct {
	redis []string
	urls  map[string]string
}

// member is one of the processes that events are about.
type member struct {
	name    string
	process *proc.Process // worker, or app behind a load balancer
	addr    string        // where it is reached over the network
}

// startStack starts a contender for some scenes, which may be none, and waits
// until it answers.
func (g *stage) startStack(ctx context.Context, c contender, scenes []scene) (s *stack, err error) {
	g.started++
	name := c.id + "-" + strconv.Itoa(g.started)
	s = &stack{
		contender: c, stage: g, scenes: scenes, ttl: g.ttl, wait: g.wait, name: name, cluster: name + "-" + g.run, sold: make(map[string]int64), urls: make(map[string]string), remote: remote{urls: make(map[string]string)},
		processes: make(map[*proc.Process]string), retired: make(map[string]time.Duration),
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

func (s *stack) records() string { return filepath.Join(s.dir, "records-"+s.name) }

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
	if s.guard == guardService {
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
		if err := s.startBalancer(s.upstreams()); err != nil {
			return err
		}
	}
	var err error
	if s.addr, err = s.through(s.addr); err != nil {
		return err
	}
	return s.awaitAnswers(ctx)
}

// through returns where an address is reached over the network.
func (s *stack) through(addr string) (string, error) {
	if s.network == nil {
		return addr, nil
	}
	addr, err := s.network.Forward(addr)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forwarded = append(s.forwarded, addr)
	}
	return addr, err
}

// place returns where a process is to listen, and where others reach it.
func (s *stack) place() (listen, reached string, err error) {
	if s.network == nil {
		return "127.0.0.1:0", "", nil
	}
	if listen, err = proc.FreeAddr(); err != nil {
		return "", "", err
	}
	reached, err = s.through(listen)
	return listen, reached, err
}

// cut lets connections to a member be refused.
func (s *stack) cut(m *member) {
	if s.network != nil {
		s.network.Remove(m.addr)
	}
}

// start starts a process of a group.
func (s *stack) start(group string, spec proc.Spec) (*proc.Process, error) {
	p, err := s.Start(context.Background(), spec) // bounded by the stage
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes[p] = group
	return p, nil
}

// retire notes the CPU time of a process that is about to end.
func (s *stack) retire(p *proc.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired[s.processes[p]] += p.CPU()
	delete(s.processes, p)
}

// cpu returns the CPU time that each group has used so far.
func (s *stack) cpu() map[string]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := make(map[string]time.Duration)
	for group, d := range s.retired {
		sum[group] += d
	}
	for p, group := range s.processes {
		sum[group] += p.CPU()
	}
	return sum
}

func (s *stack) startRouter() error {
	args := []string{"--log-level", "warn", "--session-ttl", s.ttl.String()}
	if s.guard == guardUnkeyed {
		args = append(args, "--key", "header:X-None", "--without-key", "any")
	}
	p, err := s.start(groupFront, servers.Router("router-"+s.name, s.built.Router, s.cluster, s.remote.redis[0], args...))
	if err != nil {
		return err
	}
	s.addr, s.gossip = servers.Addrs(p)
	return nil
}

// startService starts the worker that keeps the apps' locks.
func (s *stack) startService() error {
	listen, reached, err := s.place()
	if err != nil {
		return err
	}
	p, err := s.start(groupStore, servers.Worker("locks-"+s.name, s.built.Worker, s.cluster, s.remote.redis[0], "",
		"--listen", listen, "--advertise", reached, "--session-ttl", s.ttl.String(), "--log-level", "warn"))
	if err != nil {
		return err
	}
	_, s.gossip = servers.Addrs(p)
	return nil
}

// addMember starts another worker or app.
func (s *stack) addMember() (*member, error) {
	s.mu.Lock()
	m := &member{name: "w" + strconv.Itoa(len(s.members)+1)}
	instance := len(s.members)
	s.members = append(s.members, m)
	s.mu.Unlock()
	listen, reached, err := s.place()
	if err != nil {
		return nil, err
	}
	at := listen
	if s.front == frontSidecar { // it and its app are on one machine
		at = filepath.Join(s.dir, "app-"+s.name+"-"+m.name)
	}
	arg, err := json.Marshal(appConfig{
		Guard: s.guard, Local: s.local, Records: s.records(), Keys: s.keys, Redis: s.remote.redis, Stores: s.remote.urls, TTL: s.ttl, Poll: s.poll, Wait: s.wait,
		Instance: instance, Instances: s.instances, Cluster: s.cluster, Name: m.name, Join: s.gossip, Listen: at, Advertise: reached,
	})
	if err != nil {
		return nil, err
	}
	app, err := s.start(groupApp, proc.Spec{Name: "app-" + s.name + "-" + m.name, Program: s.self, Args: []string{"app", string(arg)}, Env: []string{childEnv}, Ready: "ready "})
	if err != nil {
		return nil, err
	}
	_, addr, _ := strings.Cut(app.ReadyLine(), "ready ")
	if s.front != frontSidecar {
		m.process, m.addr = app, cmp.Or(reached, addr)
		return m, nil
	}
	m.addr = reached
	m.process, err = s.start(groupApp, proc.Spec{
		Name: "sidecar-" + s.name + "-" + m.name, Program: s.built.Worker, Ready: "worker ready",
		Args: []string{"--name", m.name, "--cluster", s.cluster, "--join", s.gossip, "--upstream", "unix://" + addr, "--redis", "redis://" + s.remote.redis[0],
			"--listen", listen, "--advertise", reached, "--session-ttl", s.ttl.String(), "--new-cluster", "--log-level", "warn"},
	})
	return m, err
}

// upstreams are the addresses of the apps behind a load balancer.
func (s *stack) upstreams() (addrs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m.process != nil && m.process.Ended() == nil {
			addrs = append(addrs, m.addr)
		}
	}
	return addrs
}

// How many keys must be answered in a row, and how many if each takes a while.
const (
	answerKeys       = 200
	answerKeysRemote = 20
)

// awaitAnswers waits until requests are answered.
func (s *stack) awaitAnswers(ctx context.Context) error {
	var names []string
	n := answerKeys
	if s.network != nil {
		n = answerKeysRemote
	}
	for i := range min(n, s.keys) {
		names = append(names, resource.Name(i*37%s.keys))
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
	return servers.AwaitAnswers(ctx, client, "http://"+s.addr+workNone, load.HeaderKey, names)
}

// check returns an error if a process has ended that was not meant to.
func (s *stack) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.processes {
		if err := p.Ended(); err != nil {
			return err
		}
	}
	return nil
}

// ledger returns the work by whose stock an execution of a work can be judged,
// beside the records; "" if there is none.
func (s *stack) ledger(work string) string {
	switch {
	case s.guard == guardVersion:
		return workStockPostgres // whatever the work is
	case work == workStock && s.restarted:
		return "" // it is gone
	case work == workStock || work == workStockPostgres:
		return work
	}
	return ""
}

// since returns what the resource has seen since the last call, in which there
// was one kind of work. What was executed and is not missing from the stock is
// lost, too, whatever the records say.
func (s *stack) since(ctx context.Context, work string) (v resource.Verdict, err error) {
	v = s.table.Verdict()
	before := s.judged
	s.judged = v
	v.Sub(before)
	var sold int64
	ledger := s.ledger(work)
	switch ledger {
	case workStock:
		sold, err = s.soldInRedis(ctx)
	case workStockPostgres:
		sold, err = s.soldInPostgres(ctx)
	default:
		return v, nil
	}
	v.Lost = max(v.Lost, v.Executions-(sold-s.sold[ledger]))
	s.sold[ledger] = sold
	return v, err
}

// cleanTime bounds the removal of what is left in servers that were given.
const cleanTime = 10 * time.Second

// stop ends what the stack has started, stores after all others.
func (s *stack) stop() error {
	s.mu.Lock()
	all := maps.Clone(s.processes)
	clear(s.processes)
	s.mu.Unlock()
	end := func(how syscall.Signal, chosen func(group string) bool) {
		var ending sync.WaitGroup
		for p, group := range all {
			if chosen(group) {
				ending.Go(func() { s.Stop(p, how) })
			}
		}
		ending.Wait()
	}
	end(sigKill, func(group string) bool { return group != groupStore })
	ctx, cancel := context.WithTimeout(context.Background(), cleanTime)
	defer cancel()
	err := s.cleanStores(ctx)
	end(sigEnd, func(group string) bool { return group == groupStore })
	for _, addr := range s.forwarded {
		s.network.Remove(addr)
	}
	return errors.Join(err, s.table.Close(), os.Remove(s.records()))
}
