package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

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

// site is a cluster on this machine, and its load.
type site struct {
	*trial.Site
	load   *trial.Load
	paused *trial.Fault // of a worker; nil for none
}

// store is a kind of store, and how it is made of nodes.
type store struct {
	name, title string
	nodes       int
	of          func(nodes []*trial.Node) (*trial.Store, error)
}

var stores = []store{
	{"redis", "Redis", 1, redis},
	{"sentinel", "Redis, Sentinel", 3, redis},
	{"etcd", "etcd of three", 3, func(nodes []*trial.Node) (*trial.Store, error) { return trial.NewEtcd(nodes), nil }},
}

func redis(nodes []*trial.Node) (*trial.Store, error) { return trial.NewRedis(nodes, "") }

// newSite starts a store and members, and returns when requests are answered. more, unless it is nil, returns further
// arguments of a worker.
func newSite(ctx context.Context, cfg config, dir string, kind store, more func(dir, worker string) []string) (*site, error) {
	s := &site{Site: trial.NewSite(dir, cfg.TTL)}
	s.Programs = cfg.programs
	nodes, err := trial.NewNodes(dir, kind.name, kind.nodes)
	if err != nil {
		return s, err
	}
	if s.Store, err = kind.of(nodes); err != nil {
		return s, err
	}
	if err := s.Store.Start(ctx); err != nil {
		return s, err
	}
	var gossip, listen [routers]string
	for i := range routers {
		var errs [2]error
		gossip[i], errs[0] = proc.FreeAddr()
		listen[i], errs[1] = proc.FreeAddr()
		if err := errors.Join(errs[:]...); err != nil {
			return s, err
		}
		s.AddRouter(fmt.Sprint("router-", i+1), "--gossip", gossip[i], "--listen", listen[i], "--admin", "127.0.0.1:0")
	}
	s.Args = []string{"--join", gossip[0] + "," + gossip[1]}
	for i := range workers {
		name := fmt.Sprint("worker-", i+1)
		args := []string{"--gossip", "127.0.0.1:0"}
		if more != nil {
			args = append(args, more(dir, name)...)
		}
		s.AddWorker(name, func(string) ([]string, error) { return args, nil })
	}
	s.load = &trial.Load{
		Dial: trial.Turns(listen[:], func(ctx context.Context, addr string) (net.Conn, error) { return trial.To(addr)(ctx) }),
		Now:  s.Observer.Now, Clients: cfg.clients, Same: true, Jobs: jobs, Retry: 10 * time.Millisecond,
	}
	return s, s.Start(ctx, s.load.Dial)
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
		return trial.Job{Key: key, Work: trial.UpTo(rng, work), Body: 8}, trial.UpTo(rng, think)
	}
}

// calm is for how long all requests are answered at once when a fault is over.
func (s *site) calm() time.Duration { return min(3*time.Second, s.TTL) }

// settle waits until a fault is over, for 4 TTLs and half a minute at most.
func (s *site) settle(ctx context.Context) {
	now := s.Observer.Now
	begin, since, failed := now(), now(), int64(-1)
	for t := begin; t-since < s.calm() && t-begin < 4*s.TTL+30*time.Second && trial.Sleep(ctx, 50*time.Millisecond); t = now() {
		if n := s.load.Failed.Load(); n != failed || s.load.Longest() > stalled {
			since, failed = t, n
		}
	}
}
