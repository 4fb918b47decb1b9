//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/resource"
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
	dir      string // of records, configurations and logs
	self     string // this program
	programs cluster.Programs
	keys     int
	settings settings
	started  int // stacks
}

// settings are what apps are started with.
type settings struct {
	Instances int
	TTL, Poll time.Duration
	Wait      time.Duration
}

// stack is a contender that takes requests.
type stack struct {
	contender
	*stage
	name     string // unique
	addr     string // ip:port for requests
	table    *resource.Table
	judged   resource.Verdict // up to now
	stores   []*proc.Process
	redis    []string // host:port of each
	postgres *postgres
	balancer *balancer
	gossip   string

	mu        sync.Mutex // guards what follows
	processes map[*proc.Process]string
	retired   map[string]time.Duration // CPU time of those that have ended, by group
	members   []*member
	restarted bool // a store was, so that its counters are not its own any more
}

// member is one of the processes that events are about.
type member struct {
	name    string
	process *proc.Process // worker, or app behind a load balancer
	app     *proc.Process // behind a sidecar; else nil
	addr    string        // of an app behind a load balancer
}

// startStack starts a contender and waits until it answers.
func (g *stage) startStack(ctx context.Context, c contender) (s *stack, err error) {
	g.started++
	s = &stack{contender: c, stage: g, name: c.id + "-" + strconv.Itoa(g.started), processes: make(map[*proc.Process]string), retired: make(map[string]time.Duration)}
	if s.table, err = resource.Open(s.records(), s.keys); err != nil {
		return nil, err
	}
	if err := s.startAll(ctx); err != nil {
		s.stop()
		return nil, fmt.Errorf("starting %s: %w", c.id, err)
	}
	return s, nil
}

func (s *stack) records() string { return filepath.Join(s.dir, "records-"+s.name) }

func (s *stack) startAll(ctx context.Context) error {
	for i := range s.servers {
		if err := s.startRedis(ctx, i); err != nil {
			return err
		}
	}
	if s.contender.postgres {
		if err := s.startPostgres(ctx); err != nil {
			return err
		}
	}
	if s.keyway() {
		if err := s.startRouter(); err != nil {
			return err
		}
	}
	for range s.settings.Instances {
		if _, err := s.addMember(); err != nil {
			return err
		}
	}
	if !s.keyway() {
		if err := s.startBalancer(s.upstreams()); err != nil {
			return err
		}
	}
	return s.awaitAnswers(ctx)
}

func (s *stack) keyway() bool { return s.front == frontRouter || s.front == frontSidecar }

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

// startRedis starts a redis-server that keeps nothing on the disk.
func (s *stack) startRedis(_ context.Context, i int) error {
	addr, err := proc.FreeAddr()
	if err != nil {
		return err
	}
	_, port, _ := strings.Cut(addr, ":")
	p, err := s.start(groupStore, proc.Spec{
		Name: fmt.Sprintf("redis-%s-%d", s.name, i+1), Program: proc.Find("redis-server"), Dial: addr,
		Args: []string{"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"},
	})
	s.stores, s.redis = append(s.stores, p), append(s.redis, addr)
	return err
}

var readyLine = regexp.MustCompile(`ready: requests http://([^ ,]+), .*gossip ([^ ,]+)`)

func (s *stack) startRouter() error {
	p, err := s.start(groupFront, proc.Spec{
		Name: "router-" + s.name, Program: s.programs.Router, Ready: "router ready",
		Args: []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--log-level", "warn",
			"--redis", "redis://" + s.redis[0], "--cluster", s.name, "--session-ttl", s.settings.TTL.String(), "--new-cluster"},
	})
	if err != nil {
		return err
	}
	m := readyLine.FindStringSubmatch(p.ReadyLine())
	if m == nil {
		return fmt.Errorf("the router's line is not understood: %q", p.ReadyLine())
	}
	s.addr, s.gossip = m[1], m[2]
	return nil
}

// addMember starts another worker or app.
func (s *stack) addMember() (*member, error) {
	s.mu.Lock()
	m := &member{name: "w" + strconv.Itoa(len(s.members)+1)}
	instance := len(s.members)
	s.members = append(s.members, m)
	s.mu.Unlock()
	cfg := appConfig{
		Guard: s.guard, Local: s.local, Records: s.records(), Keys: s.keys, Redis: s.redis, TTL: s.settings.TTL, Poll: s.settings.Poll, Wait: s.settings.Wait,
		Instance: instance, Instances: s.settings.Instances, Cluster: s.name, Name: m.name, Join: s.gossip,
	}
	if s.postgres != nil {
		cfg.Postgres = s.postgres.url
	}
	arg, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	app, err := s.start(groupApp, proc.Spec{Name: "app-" + s.name + "-" + m.name, Program: s.self, Args: []string{"app", string(arg)}, Env: []string{childEnv}, Ready: "ready "})
	if err != nil {
		return nil, err
	}
	_, addr, _ := strings.Cut(app.ReadyLine(), "ready ")
	if s.front != frontSidecar {
		m.process, m.addr = app, addr
		return m, nil
	}
	m.app = app
	m.process, err = s.start(groupApp, proc.Spec{
		Name: "sidecar-" + s.name + "-" + m.name, Program: s.programs.Worker, Ready: "worker ready",
		Args: []string{"--name", m.name, "--cluster", s.name, "--join", s.gossip, "--upstream", "http://" + addr, "--redis", "redis://" + s.redis[0],
			"--session-ttl", s.settings.TTL.String(), "--new-cluster", "--log-level", "warn"},
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

// How long a stack may take until it answers for so many keys in a row.
const (
	answerPatience = 60 * time.Second
	answerKeys     = 200
)

var errNoAnswer = errors.New("no answer")

// awaitAnswers waits until requests are answered.
func (s *stack) awaitAnswers(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerPatience, errNoAnswer)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	for good := 0; good < min(answerKeys, s.keys); good++ {
		for {
			err := get(ctx, client, "http://"+s.addr+workNone, resource.Name(good*37%s.keys))
			if err == nil {
				break
			}
			good = 0
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return errors.Join(context.Cause(ctx), err)
			}
		}
	}
	return nil
}

func get(ctx context.Context, client *http.Client, url, key string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set(load.HeaderKey, key)
	res, err := client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, res.Status)
	}
	return nil
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

// verdict is what the resource has seen. Where the database excludes, it has
// the last word: what was answered as written and is not there was lost.
func (s *stack) verdict(ctx context.Context) (resource.Verdict, error) {
	v := s.table.Verdict()
	if s.guard != guardVersion {
		return v, nil
	}
	sold, err := s.postgres.sold(ctx)
	v.Lost += max(0, v.Executions-sold)
	return v, err
}

// commands returns how many commands the stack's Redis servers have executed.
func (s *stack) commands(ctx context.Context) (int64, error) {
	var sum int64
	for _, addr := range s.redis {
		client := redis.NewClient(&redis.Options{Addr: addr})
		info, err := client.Info(ctx, "commandstats").Result()
		client.Close()
		if err != nil {
			return 0, err
		}
		sum += parseCommands(info)
	}
	return sum, nil
}

// ownCommands are those that reading the counters takes, and connecting.
var ownCommands = []string{"info", "hello", "client|setinfo", "client|maint_notifications"}

// parseCommands sums up the calls in the section commandstats of INFO.
func parseCommands(info string) (sum int64) {
	for line := range strings.Lines(info) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok || slices.Contains(ownCommands, name) {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.ParseInt(calls, 10, 64)
		sum += n
	}
	return sum
}

// stop ends what the stack has started: stores in an orderly way, so that they
// leave nothing, and all others at once.
func (s *stack) stop() {
	s.mu.Lock()
	all := maps.Clone(s.processes)
	clear(s.processes)
	s.mu.Unlock()
	var stopping sync.WaitGroup
	for p, group := range all {
		how := sigKill
		if group == groupStore {
			how = sigEnd
		}
		stopping.Go(func() { s.Stop(p, how) })
	}
	stopping.Wait()
	_ = s.table.Close() // it was mapped
	_ = os.Remove(s.records())
}
