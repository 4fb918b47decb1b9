package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/ring"

	"github.com/keyway-go/keyway/internal/cluster/proc"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// Callers that lock keys of the workers while these come, go and die. Of 20 callers 12 share a few clients of this
// process, 5 are in processes that are killed with their locks and waits, and 3 use the router's lock service.
const (
	lockClients   = 4
	lockProcesses = 5
	leastLockers  = 20
	lockThink     = 5 * time.Second
)

// lockEnv says to a process that it is one of these clients: a [lockClient].
const lockEnv = "KEYWAY_CHAOS_LOCKS"

type lockClient struct {
	Life, Judge string
	Join        []string
	TTL         time.Duration
	Callers     int
	Seed        uint64
}

// lockStage is what locks keys.
type lockStage struct {
	*lockJudge
	stage   *stage
	seed    uint64
	http    *http.Client
	server  *httptest.Server // by which processes tell the judge
	clients []*keyway.Client

	mu   sync.Mutex
	errs []string
}

// newLockStage makes the clients of this process.
func newLockStage(ctx context.Context, s *stage, seed uint64) (*lockStage, error) {
	l := &lockStage{lockJudge: newLockJudge(s.cfg.Grant, s.observer.Now), stage: s, seed: seed}
	l.server = httptest.NewServer(l.lockJudge)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.locks())
	}
	l.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: s.cfg.Lockers, DialContext: dial}}
	for range lockClients {
		client, err := keyway.NewClient(ctx, keyway.ClientConfig{Join: []string{s.at.Gossip}, Settings: ring.Settings{TTL: s.cfg.TTL}})
		if err != nil {
			l.close()
			return nil, err
		}
		l.clients = append(l.clients, client)
	}
	return l, nil
}

func (l *lockStage) close() {
	for _, c := range l.clients {
		_ = c.Close()
	}
	l.http.CloseIdleConnections()
	l.server.Close()
}

// ServeHTTP takes what a caller of another process says.
func (j *lockJudge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var s said
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&s); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	j.hear(s)
}

// run has all callers lock keys until ctx ends.
func (l *lockStage) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	defer l.finish()
	all.Go(func() { l.watch(ctx) })
	n := l.stage.cfg.Lockers
	processes, overHTTP := n/4, 3*n/20
	start := func(life string, callers int, forgetful bool, lock func(int) taker) {
		l.born(life)
		c := &lockCallers{life: life, ttl: l.stage.cfg.TTL, think: lockThink, tell: func(s said) error { l.hear(s); return nil }, forgetful: forgetful}
		for i := range callers {
			rng := rand.New(rand.NewPCG(l.seed, 1<<33+uint64(i)))
			all.Go(func() { c.run(ctx, rng, lock(i)) })
		}
	}
	service := &lockService{base: "http://locks", http: l.http}
	start("here", n-processes-overHTTP, false, func(i int) taker { return byClient(l.clients[i%lockClients]) })
	start("http", overHTTP, true, func(int) taker { return service.lock })
	for p := range lockProcesses {
		rng := rand.New(rand.NewPCG(l.seed, 1<<34+uint64(p)))
		all.Go(func() {
			if err := l.lives(ctx, rng, p, cmp.Or(processes/lockProcesses, 1)); err != nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.errs = append(l.errs, err.Error())
			}
		})
	}
	<-ctx.Done()
}

// lives has a process of clients killed, and started again, until ctx ends.
func (l *lockStage) lives(ctx context.Context, rng *rand.Rand, number, callers int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p := &trial.Program{Name: fmt.Sprint("locks", number), Lives: l.stage.lives, Spec: func(label string, _ int) (proc.Spec, error) {
		env, err := json.Marshal(lockClient{Life: label, Judge: l.server.URL, Join: []string{l.stage.at.Gossip}, TTL: l.stage.cfg.TTL, Callers: callers, Seed: rng.Uint64()})
		l.born(label)
		return proc.Spec{Program: self, Env: []string{lockEnv + "=" + string(env)}}, err
	}}
	for trial.Sleep(ctx, trial.UpTo(rng, restartDelay)) {
		if err := p.Start(ctx); err != nil {
			return err
		}
		trial.Sleep(ctx, lockThink+trial.UpTo(rng, 2*l.stage.cfg.TTL))
		life, err := p.Kill()
		if err != nil {
			return err
		}
		l.died(life.Label)
	}
	return nil
}

// runLockClient is such a process.
func runLockClient(ctx context.Context, settings string) error {
	var me lockClient
	if err := json.Unmarshal([]byte(settings), &me); err != nil {
		return err
	}
	client, err := keyway.NewClient(ctx, keyway.ClientConfig{Join: me.Join, Settings: ring.Settings{TTL: me.TTL}})
	if err != nil {
		return err
	}
	defer client.Close()
	judge := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: me.Callers}}
	c := &lockCallers{life: me.Life, ttl: me.TTL, think: lockThink, tell: func(s said) error {
		body, err := json.Marshal(s)
		if err != nil {
			return err
		}
		res, err := judge.Post(me.Judge, "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		res.Body.Close()
		return nil
	}}
	var callers sync.WaitGroup
	for i := range me.Callers {
		callers.Go(func() { c.run(ctx, rand.New(rand.NewPCG(me.Seed, uint64(i))), byClient(client)) })
	}
	callers.Wait()
	return errors.New("the judge has gone")
}
