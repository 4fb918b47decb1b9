package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
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
	store    *backend
	observer *trial.Observer
	load     *trial.Load
	routers  []*member
	workers  []*member
	paused   pause
}

// member is a router or worker, which is started again and again.
type member struct {
	*cluster.Process
	program string
	name    string
	listen  string // of a router
	log     *os.File
	args    []string
}

func (m *member) start(ctx context.Context) (err error) {
	m.Process, err = cluster.Start(ctx, m.name, m.program, m.log, m.args...)
	return err
}

// newSite starts a store and members, and returns when requests are answered. more, unless it is nil, returns further
// arguments of a worker.
func newSite(ctx context.Context, cfg config, dir string, store *backend, more func(s *site, name string) []string) (*site, error) {
	s := &site{config: cfg, dir: dir, store: store, observer: trial.NewObserver()}
	if err := store.start(ctx); err != nil {
		return s, err
	}
	var addrs [2 * routers]string // for gossip and requests
	for i := range addrs {
		var err error
		if addrs[i], err = trial.FreeAddr(); err != nil {
			return s, err
		}
	}
	add := func(to *[]*member, m member, args ...string) (err error) {
		m.args = append([]string{"--store", store.url, "--session-ttl", s.TTL.String(), "--join", addrs[0] + "," + addrs[1]}, args...)
		m.log, err = os.Create(filepath.Join(dir, m.name+".log"))
		*to = append(*to, &m)
		return err
	}
	for i := range routers {
		m := member{program: cfg.programs.Router, name: fmt.Sprint("router-", i+1), listen: addrs[routers+i]}
		if err := add(&s.routers, m, "--gossip", addrs[i], "--listen", m.listen, "--admin", "127.0.0.1:0"); err != nil {
			return s, err
		}
	}
	for i := range workers {
		m := member{program: cfg.programs.Worker, name: fmt.Sprint("worker-", i+1)}
		app, err := s.observer.Listen(m.name, "unix", filepath.Join(dir, m.name+".sock"))
		if err != nil {
			return s, err
		}
		args := []string{"--name", m.name, "--upstream", app, "--new-cluster", "--gossip", "127.0.0.1:0"}
		if more != nil {
			args = append(args, more(s, m.name)...)
		}
		if err := add(&s.workers, m, args...); err != nil {
			return s, err
		}
	}
	var starting sync.WaitGroup
	var errs [routers + workers]error
	for i, m := range slices.Concat(s.routers, s.workers) {
		starting.Go(func() { errs[i] = m.start(ctx) })
	}
	starting.Wait()
	s.load = &trial.Load{Dial: s.dial(), Now: s.observer.Now, Clients: clients, Same: true, Jobs: jobs}
	if err := errors.Join(errs[:]...); err != nil {
		return s, err
	}
	return s, trial.WarmUp(ctx, s.load.Dial)
}

// close ends all processes.
func (s *site) close() {
	for _, m := range slices.Concat(s.routers, s.workers) {
		if m.Process != nil {
			_ = syscall.Kill(-m.Pid(), syscall.SIGKILL) // its child, too
			m.Kill()
		}
		m.log.Close()
	}
	s.store.kill()
	s.observer.Close()
}

// dial returns how a client connects: to the routers in turn, and to the other one if one does not answer.
func (s *site) dial() func(context.Context) (net.Conn, error) {
	var turn atomic.Int64
	return func(ctx context.Context) (conn net.Conn, err error) {
		first := int(turn.Add(1))
		for i := range routers {
			if conn, err = trial.To(s.routers[(first+i)%routers].listen)(ctx); err == nil {
				break
			}
		}
		return conn, err
	}
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
