package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/ring"

	"github.com/keyway-go/keyway/internal/cluster/proc"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// Callers that lock keys of the workers while these come, go and die. Among 20 callers, 12 share a few clients of
// this process, 5 are in processes that are killed with their locks and waits, and 3 use the router's lock service. For
// each of the -languages, one of the 12 uses its client instead, and routers that are killed.
const (
	lockClients   = 4
	lockProcesses = 5
	leastLockers  = 20
	lockThink     = 5 * time.Second // before each lock, at most
	lockDelay     = time.Second     // from the death of a process to its next life, at most
	perLanguage   = 20              // of so many callers, one uses the client in a language
)

// lockStage is what locks keys.
type lockStage struct {
	*lockJudge
	stage  *stage
	seed   uint64
	server *httptest.Server // by which processes tell the judge
	kills  atomic.Int64     // of routers that serve locks to the clients in other languages
}

func newLockStage(s *stage) *lockStage {
	l := &lockStage{lockJudge: newLockJudge(s.cfg.Grant, s.Observer.Now), stage: s, seed: uint64(s.cfg.Seed)}
	l.server = httptest.NewServer(l.lockJudge)
	return l
}

func (j *lockJudge) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.findings = append(j.findings, err.Error())
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
	s := l.stage
	n := s.cfg.Lockers
	processes, overHTTP, each := n/4, 3*n/20, n/perLanguage
	var clients [lockClients]*keyway.Client
	for i := range clients {
		var err error
		if clients[i], err = keyway.NewClient(ctx, keyway.ClientConfig{Join: []string{s.gossip}, Settings: ring.Settings{TTL: s.TTL}}); err != nil {
			l.fail(err)
			return
		}
		defer clients[i].Close()
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.locks())
	}
	service := &lockService{base: "http://locks", http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n, DialContext: dial}}}
	defer service.http.CloseIdleConnections()
	l.start(ctx, &all, "here", n-processes-overHTTP-each*len(s.cfg.Languages), false, func(i int) taker { return byClient(clients[i%lockClients]) })
	l.start(ctx, &all, "http", overHTTP, true, func(int) taker { return service.lock })
	for p := range lockProcesses {
		rng := rand.New(rand.NewPCG(l.seed, 1<<34+uint64(p)))
		all.Go(func() {
			if err := l.lives(ctx, rng, p, cmp.Or(processes/lockProcesses, 1)); err != nil {
				l.fail(err)
			}
		})
	}
	for _, in := range s.cfg.Languages {
		all.Go(func() {
			if err := l.drive(ctx, in, each); err != nil && ctx.Err() == nil {
				l.fail(err)
			}
		})
	}
	if len(s.cfg.Languages) > 0 {
		all.Go(func() {
			if err := l.killRouters(ctx, rand.New(rand.NewPCG(l.seed, 1<<35))); err != nil {
				l.fail(err)
			}
		})
	}
	<-ctx.Done()
	l.finish()
	all.Wait()
}

// start has callers of this life lock keys until ctx ends.
func (l *lockStage) start(ctx context.Context, all *sync.WaitGroup, life string, callers int, forgetful bool, lock func(int) taker) {
	l.born(life)
	c := &lockCallers{life: life, ttl: l.stage.TTL, tell: func(s said) error { l.hear(s); return nil }, forgetful: forgetful}
	for i := range callers {
		rng := rand.New(rand.NewPCG(l.seed, 1<<33+uint64(i)))
		all.Go(func() { c.run(ctx, rng, lock(i)) })
	}
}

// conclude judges, and wants locks of the client in each language, unless the machine was too busy.
func (l *lockStage) conclude(without, forgotten, busy []outage) *lockReport {
	r := l.lockJudge.conclude(without, forgotten, busy, l.stage.TTL)
	for _, in := range l.stage.cfg.Languages {
		taken := r.by[in.name]
		r.languages = append(r.languages, fmt.Sprint(in.name, " ", taken))
		if taken == 0 && len(busy) == 0 {
			r.violations = append(r.violations, "the client in "+in.name+" has locked nothing")
		}
	}
	r.kills = int(l.kills.Load())
	return r
}

// lives has a process of clients killed, and started again, until ctx ends.
func (l *lockStage) lives(ctx context.Context, rng *rand.Rand, number, callers int) error {
	p := &trial.Program{Name: fmt.Sprint("locks", number), Stage: l.stage.Stage, Spec: func(label string, _ int) (proc.Spec, error) {
		l.born(label)
		return (&lockClient{Life: label, Judge: l.server.URL, Join: []string{l.stage.gossip}, TTL: l.stage.TTL, Callers: callers, Seed: rng.Uint64()}).spec()
	}}
	for trial.Sleep(ctx, trial.UpTo(rng, lockDelay)) {
		if err := p.Start(ctx); err != nil {
			return err
		}
		trial.Sleep(ctx, lockThink+trial.UpTo(rng, 2*l.stage.TTL))
		life, err := p.Kill()
		if err != nil {
			return err
		}
		l.died(life.Name)
	}
	return nil
}
