package etcdtest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/fallback/etcd"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/netproxy"
	"github.com/keyway-go/keyway/ring"
)

// site is a cluster of nodes whose store is an etcd of three members, each behind a proxy.
type site struct {
	*testing.T
	servers []*member
	proxies []*netproxy.Proxy
	raw     *clientv3.Client // not through the proxies
	url     string
	join    string
	nodes   []*keyway.Node
}

func newSite(t *testing.T) *site {
	s := &site{T: t, servers: startMembers(t, 3, func(c *embed.Config) { c.TickMs, c.ElectionMs = 100, 1000 }), join: kit.FreeAddr(t)}
	var direct []string
	s.url = "etcd://"
	for i, m := range s.servers {
		proxy := kit.Must(netproxy.New(m.config.ListenClientUrls[0].Host))
		t.Cleanup(func() { proxy.Close() })
		s.proxies = append(s.proxies, proxy)
		direct = append(direct, m.config.ListenClientUrls[0].String())
		if i > 0 {
			s.url += ","
		}
		s.url += proxy.Addr()
	}
	s.raw = kit.Must(clientv3.New(clientv3.Config{Endpoints: direct, Logger: zap.NewNop()}))
	t.Cleanup(func() { s.raw.Close() })
	return s
}

// start starts a node, which is ready then: it owns what the ring gives it.
func (s *site) start(name string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	gossip := "127.0.0.1:0"
	if len(s.nodes) == 0 {
		gossip = s.join
	}
	node := kit.Must(keyway.Start(ctx, keyway.Config{
		Name: name, Gossip: gossip, Join: []string{s.join}, NewCluster: true, DrainTimeout: 20 * time.Second,
		Settings: ring.Settings{Cluster: "faults", Ring: ring.Config{Partitions: 64}},
		Store:    func(c store.Config) (keyway.Store, error) { return etcd.New(s.url, c) },
		Logger:   slog.New(slog.NewTextHandler(s.Output(), nil)).With("node", name),
	}))
	s.Cleanup(func() { node.Close() })
	s.nodes = append(s.nodes, node)
}

// leader returns the member that leads.
func (s *site) leader() (index int) {
	s.Helper()
	kit.Eventually(s, "a member leads", func() bool {
		for i, m := range s.servers {
			if m.leads() {
				index = i
				return true
			}
		}
		return false
	})
	return index
}

// stamps are the revisions at which each session was renewed last.
func (s *site) stamps() map[string]int64 {
	stamps := map[string]int64{}
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
	defer cancel()
	r, err := s.raw.Get(ctx, "{keyway:faults}/session/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil
	}
	for _, kv := range r.Kvs {
		stamps[string(kv.Key)] = kv.ModRevision
	}
	return stamps
}

// renewed waits until each session has been renewed so many times.
func (s *site) renewed(times int) {
	s.Helper()
	for range times {
		before := s.stamps()
		kit.Eventually(s, "all sessions are renewed", func() bool {
			now := s.stamps()
			for session, stamp := range before {
				if now[session] <= stamp {
					return false
				}
			}
			return len(now) >= len(s.nodes)
		})
	}
}

// TestFaults: whatever happens to one member of etcd, no session is lost, and what runs goes on. Meanwhile a node
// joins, and so partitions move.
func TestFaults(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start("a")
	s.start("b")
	var running sync.WaitGroup
	ends, end := context.WithCancel(t.Context())
	for i := range 8 {
		began := make(chan struct{})
		running.Go(func() {
			err := s.nodes[0].Do(t.Context(), fmt.Sprint("key-", i), func(x keyway.Execution) error {
				close(began)
				select {
				case <-ends.Done():
					return nil
				case <-x.Context().Done():
					return context.Cause(x.Context())
				}
			})
			if err != nil {
				t.Errorf("an execution that runs through the faults: %v", err)
			}
		})
		<-began
	}
	defer running.Wait()
	defer end()

	t.Log("a member does not answer")
	proxy := s.proxies[(s.leader()+1)%3]
	for _, way := range []netproxy.Direction{netproxy.ToServer, netproxy.ToClient} {
		proxy.Set(way, netproxy.Fault{Stall: true})
	}
	s.renewed(2)
	proxy.Heal()

	t.Log("the leader stops, and a node joins without it")
	leader := s.servers[s.leader()]
	leader.kill()
	s.start("c")
	s.renewed(2)
	leader.start(t)

	t.Log("each member restarts")
	for _, m := range s.servers {
		m.stop()
		s.renewed(1)
		m.start(t)
	}
	s.renewed(1)
	if sessions := s.stamps(); len(sessions) != len(s.nodes) {
		t.Errorf("there are the sessions %v, of %d nodes", sessions, len(s.nodes))
	}
}

// TestMemberThatHangs: once a call has met a member of etcd that does not answer, the others do not. A session
// can be renewed and registered in the time that workers give a call, whichever member hangs.
func TestMemberThatHangs(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	for hung := range 3 {
		t.Run(fmt.Sprint(hung), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			handle := kit.Must(etcd.New(s.url, store.Config{Settings: ring.Settings{Cluster: "hangs", TTL: ttl}, NewCluster: true}))
			defer handle.Close()
			gen := kit.Must(handle.Generation(t.Context(), true))
			for _, way := range []netproxy.Direction{netproxy.ToServer, netproxy.ToClient} {
				s.proxies[hung].Set(way, netproxy.Fault{Stall: true})
			}
			failed := 0
			call := func(f func(context.Context) error) {
				ctx, cancel := context.WithTimeout(t.Context(), ttl/5)
				defer cancel()
				if err := f(ctx); err != nil {
					failed++
					t.Log(err)
				}
			}
			for i := range 10 {
				session := records.Session{Name: "a", Incarnation: fmt.Sprint("a", i)}
				call(func(ctx context.Context) error {
					_, err := handle.Register(ctx, gen, session, ttl, nil)
					return err
				})
				call(func(ctx context.Context) error {
					_, err := handle.Renew(ctx, gen, session.Incarnation, ttl)
					return err
				})
			}
			if failed > 3 { // one call of each connection, and a renewal after a registration that has failed
				t.Errorf("%d of 20 calls have failed", failed)
			}
		})
	}
}
