package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/cluster/proc"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// The size of a site, and of its load. A client that has waited for 2 s leaves that request to itself and sends another
// one for its key, so it knows how long the key is not served. Several clients share a hot or slow key, so that
// executions could overlap.
const (
	routers  = 2
	workers  = 3
	ownKeys  = 120
	hotKeys  = 4
	slowKeys = 8
	sharing  = 4 // clients of a hot key
	waiting  = 2 // clients of a slow key
	clients  = ownKeys + hotKeys*sharing + slowKeys*waiting
)

// site is a cluster on this machine, with its store, its load and the app behind its workers.
type site struct {
	config
	dir      string
	store    *trial.Store
	observer *trial.Observer
	load     *trial.Load
	lives    trial.Lives
	routers  []*trial.Program
	workers  []*trial.Program
	listen   [routers]string // where routers take requests
	paused   pause
}

// newSite starts a store and members, and returns when requests are answered. more, unless it is nil, returns further
// arguments of a worker.
func newSite(ctx context.Context, cfg config, dir string, store *trial.Store, more func(s *site, name string) []string) (*site, error) {
	s := &site{config: cfg, dir: dir, store: store, observer: trial.NewObserver(), lives: trial.Lives{Dir: dir}}
	if err := store.Start(ctx); err != nil {
		return s, err
	}
	var gossip [routers]string
	for i := range routers {
		var errs [2]error
		gossip[i], errs[0] = proc.FreeAddr()
		s.listen[i], errs[1] = proc.FreeAddr()
		if err := errors.Join(errs[:]...); err != nil {
			return s, err
		}
	}
	member := func(name, program string, args ...string) *trial.Program {
		args = append([]string{"--store", store.URL(), "--session-ttl", s.TTL.String(), "--join", gossip[0] + "," + gossip[1]}, args...)
		return &trial.Program{Name: name, Lives: &s.lives, Spec: func(string, int) (proc.Spec, error) {
			return proc.Spec{Program: program, Args: args, Ready: cluster.ReadyLine}, nil
		}}
	}
	for i := range routers {
		s.routers = append(s.routers, member(fmt.Sprint("router-", i+1), cfg.programs.Router, "--gossip", gossip[i], "--listen", s.listen[i], "--admin", "127.0.0.1:0"))
	}
	for i := range workers {
		name := fmt.Sprint("worker-", i+1)
		app, err := s.observer.Listen(name, "unix", filepath.Join(dir, name+".sock"))
		if err != nil {
			return s, err
		}
		args := []string{"--name", name, "--upstream", app, "--new-cluster", "--gossip", "127.0.0.1:0"}
		if more != nil {
			args = append(args, more(s, name)...)
		}
		s.workers = append(s.workers, member(name, cfg.programs.Worker, args...))
	}
	var starting []*trial.Life
	for _, p := range slices.Concat(s.routers, s.workers) {
		starting = append(starting, p.Begin(ctx))
	}
	s.load = &trial.Load{Dial: trial.Turns(s.listen[:], func(ctx context.Context, addr string) (net.Conn, error) { return trial.To(addr)(ctx) }), Now: s.observer.Now, Clients: cfg.clients, Same: true, Jobs: jobs, Retry: 10 * time.Millisecond}
	for _, l := range starting {
		if err := l.Ready(); err != nil {
			return s, err
		}
	}
	return s, trial.WarmUp(ctx, s.load.Dial)
}

// close ends all processes.
func (s *site) close() {
	s.lives.Kill()
	s.store.Kill()
	s.observer.Close()
}

// jobs is what a client asks for. All of it is POST: net/http repeats a GET by itself when a connection breaks.
func jobs(client int) func() (trial.Job, time.Duration) {
	key, work, think := fmt.Sprint("own-", client), 5*time.Millisecond, 400*time.Millisecond
	switch shared := client - ownKeys; {
	case shared >= hotKeys*sharing:
		key, work, think = fmt.Sprint("slow-", shared%slowKeys), 200*time.Millisecond, 100*time.Millisecond
	case shared >= 0:
		key, think = fmt.Sprint("hot-", shared%hotKeys), 100*time.Millisecond
	}
	rng := rand.New(rand.NewPCG(1, uint64(client)))
	return func() (trial.Job, time.Duration) {
		return trial.Job{Key: key, Work: trial.UpTo(rng, work), Post: true}, trial.UpTo(rng, think)
	}
}

// calm is for how long all requests are answered at once when a fault is over.
func (c config) calm() time.Duration { return min(3*time.Second, c.TTL) }

// settle waits until a fault is over, for 4 TTLs and half a minute at most.
func (s *site) settle(ctx context.Context) {
	begin, since, failed := s.observer.Now(), s.observer.Now(), int64(-1)
	for now := begin; now-since < s.calm() && now-begin < 4*s.TTL+30*time.Second && trial.Sleep(ctx, 50*time.Millisecond); now = s.observer.Now() {
		if n := s.load.Failed.Load(); n != failed || s.load.Longest() > stalled {
			since, failed = now, n
		}
	}
}
