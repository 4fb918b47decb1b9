package keyway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/offered"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/certs"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/memstore"
	"github.com/keyway-go/keyway/ring"
)

// quick are settings of which a session TTL is short.
var quick = ring.Settings{TTL: 2 * time.Second, Ring: ring.Config{Partitions: 64}}

// config is that of a node which meets the others at an address.
func config(t *testing.T, name, at string) keyway.Config {
	return keyway.Config{
		Name: name, Join: []string{at}, Settings: quick, DrainTimeout: 5 * time.Second,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)).With("node", name),
	}
}

// start starts a node that is closed when the test ends.
func start(t *testing.T, cfg keyway.Config) *keyway.Node {
	t.Helper()
	node, err := keyway.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	return node
}

// offers returns the stores that a node sees on offer.
func offers(n *keyway.Node) (urls []string) {
	for _, m := range n.Members().View().Members {
		if m.Store != "" {
			urls = append(urls, m.Store)
		}
	}
	return urls
}

// do runs an execution of a key on the node that owns it, and returns its name.
func do(t *testing.T, key string, nodes ...*keyway.Node) (name string) {
	t.Helper()
	kit.Eventually(t, key+" has an owner", func() bool {
		for _, n := range nodes {
			err := n.Local().Do(t.Context(), key, func(x keyway.Execution) error {
				if x.Key() != key || x.Token() == 0 {
					t.Errorf("execution of %q with token %d", x.Key(), x.Token())
				}
				name = n.Members().Self().Name
				return nil
			})
			_, other := errors.AsType[*keyway.NotOwnerError](err)
			if err != nil && !other && !errors.Is(err, keyway.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		return name != ""
	})
	return name
}

// A node whose start fails once it is a member leaves: the others do not wait for its death.
func TestFailedStartLeaves(t *testing.T) {
	at, log := kit.FreeAddr(t), new(kit.Buffer)
	cfg := config(t, "first", at)
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	start(t, cfg)
	cfg = config(t, "second", at)
	cfg.Limits.Queue = -1
	if node, err := keyway.Start(t.Context(), cfg); err == nil {
		node.Close()
		t.Fatal("it starts with a queue of -1")
	}
	kit.Eventually(t, "the second node is gone", func() bool {
		return strings.Contains(log.String(), "member left") || strings.Contains(log.String(), "member lost")
	})
	if text := log.String(); strings.Contains(text, "member lost") {
		t.Error(text)
	}
}

// renewing is a store that tells of its first renewal, and which incarnations were released.
type renewing struct {
	*memstore.Store
	renewed  chan struct{}
	once     sync.Once
	released atomic.Int64
}

func (s *renewing) Ping(context.Context) error              { return nil }
func (s *renewing) Peers(context.Context) ([]string, error) { return nil, nil }

func (s *renewing) Renew(ctx context.Context, gen, incarnation string, ttl time.Duration) (records.Snapshot, error) {
	snapshot, err := s.Store.Renew(ctx, gen, incarnation, ttl)
	if err == nil {
		s.once.Do(func() { close(s.renewed) })
	}
	return snapshot, err
}

func (s *renewing) Release(ctx context.Context, incarnation string) error {
	err := s.Store.Release(ctx, incarnation)
	if err == nil {
		s.released.Add(1)
	}
	return err
}

// A node whose start is cancelled, by SIGTERM say, leaves in order: what it has taken over waits for no session, and
// the store counts no death of its name.
func TestCancelledStartLeavesInOrder(t *testing.T) {
	s := &renewing{renewed: make(chan struct{})}
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.Store = func(c store.Config) (keyway.Store, error) {
		s.Store = memstore.New(memstore.Config{Settings: c.Settings}) // it begins with a quarantine
		return s, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-s.renewed
		cancel()
	}()
	if _, err := keyway.Start(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Fatalf("Start: %v", err)
	}
	if n := s.released.Load(); n != 1 {
		t.Errorf("sessions released: %d, want 1", n)
	}
}

// Nodes of a machine that say nothing of a store use one: the first has it.
func TestNodesOfOneMachine(t *testing.T) {
	at := kit.FreeAddr(t)
	cfg := config(t, "a", at)
	cfg.NewCluster = true
	a := start(t, cfg)
	b := start(t, config(t, "b", at))
	if len(offers(b)) != 1 {
		t.Errorf("b sees stores %q, want one", offers(b))
	}
	nothing := func(keyway.Execution, []*keyway.Item[int, int]) error { return nil }
	owners := make(map[string]int)
	for i := range 40 {
		key := fmt.Sprint("order-", i)
		name := do(t, key, a, b)
		owners[name]++
		for _, n := range []*keyway.Node{a, b} {
			owner, err := n.Owner(key)
			if err != nil || owner.Name != name {
				t.Errorf("%s says %q, %v of %s, which %s has run", n.Members().Self().Name, owner.Name, err, key, name)
			}
			_, _, shared := keyway.Share(t.Context(), n, key, "read", func(keyway.Execution) (int, error) { return 0, nil })
			_, batched := kit.Must(keyway.NewBatcher(n, keyway.BatchConfig{}, nothing)).Do(t.Context(), key, 0)
			for call, err := range map[string]error{
				"Local": n.Local().Do(t.Context(), key, func(keyway.Execution) error { return nil }), "Share": shared, "Batcher": batched,
			} {
				notOwner, other := errors.AsType[*keyway.NotOwnerError](err)
				if other == (n.Members().Self().Name == name) || other && (notOwner.Worker != owner.Name || !strings.Contains(err.Error(), owner.Name)) {
					t.Errorf("%s of %s at %s: %v", call, key, n.Addr(), err)
				}
			}
		}
	}
	if len(owners) != 2 {
		t.Errorf("owners %v, want both nodes", owners)
	}
}

// Nodes, a client and their calls go over TLS, where that is asked for; whoever does not
// speak it is no member.
func TestNodesOverTLS(t *testing.T) {
	at, ca := kit.FreeAddr(t), kit.Must(certs.NewCA(t.TempDir(), "ours"))
	var nodes []*keyway.Node
	for _, name := range []string{"a", "b"} {
		cfg := config(t, name, at)
		cfg.NewCluster, cfg.PeerTLS, cfg.Handler = name == "a", kit.PeerTLS(t, ca, nil), named(name)
		nodes = append(nodes, start(t, cfg))
	}
	client, err := keyway.NewClient(t.Context(), keyway.ClientConfig{Join: []string{at}, Settings: quick, PeerTLS: kit.PeerTLS(t, ca, nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	met := make(map[string]bool)
	for i := range 20 {
		key := fmt.Sprint("order-", i)
		req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", "http://app/", nil))
		req.Header.Set(gateway.HeaderKey, key)
		res, name := kit.Do(t, &http.Client{Transport: client}, req)
		if owner := do(t, key, nodes...); res.StatusCode != 200 || name != owner+" has "+key {
			t.Errorf("%d %q for a key of %s", res.StatusCode, name, owner)
		}
		met[strings.Fields(name)[0]] = true
	}
	if len(met) != 2 {
		t.Errorf("requests went to %v", met)
	}
	if _, err := keyway.NewClient(t.Context(), keyway.ClientConfig{Join: []string{at}, Settings: quick}); err == nil || !strings.Contains(err.Error(), "--peer-cert") {
		t.Errorf("without TLS: %v", err)
	}
}

// The rule of one store: any number of processes that start at once, and when
// the one that has the store dies, use one store.
func TestTrapStartedAtOnce(t *testing.T) {
	at := kit.FreeAddr(t)
	nodes := make([]*keyway.Node, 4)
	var starting sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range nodes {
		starting.Go(func() {
			node, err := keyway.Start(ctx, config(t, fmt.Sprint("n", i), at))
			if err != nil {
				t.Error(err)
				return
			}
			nodes[i] = node
		})
	}
	starting.Wait()
	for _, n := range nodes {
		if n == nil {
			t.FailNow()
		}
		defer n.Close()
	}
	kit.Eventually(t, "all see all, and one store", func() bool {
		for _, n := range nodes {
			if len(ring.ActiveWorkers(n.Members().View().Members)) != len(nodes) || len(offers(n)) != 1 {
				return false
			}
		}
		return true
	})
	for i := range 20 {
		do(t, fmt.Sprint("k", i), nodes...)
	}
}

// When the node with the store ends, another one keeps a store and all go on,
// as the incarnations that they were.
func TestAnotherNodeKeepsTheStore(t *testing.T) {
	at := kit.FreeAddr(t)
	settings := quick
	settings.TTL = 10 * time.Second // of which they have 0.7 to find the new one
	begin := func(name string, newCluster bool) *keyway.Node {
		cfg := config(t, name, at)
		cfg.Settings, cfg.NewCluster = settings, newCluster
		return start(t, cfg)
	}
	a := begin("a", true)
	b, c := begin("b", false), begin("c", false)
	was, incarnation := offers(b)[0], b.Local().Incarnation()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	kit.Eventually(t, "b and c see one store, another one", func() bool {
		return len(offers(b)) == 1 && len(offers(c)) == 1 && offers(b)[0] != was && offers(c)[0] == offers(b)[0]
	})
	for i := range 20 {
		do(t, fmt.Sprint("k", i), b, c)
	}
	if b.Local().Incarnation() != incarnation {
		t.Error("b has begun anew")
	}
	d := begin("d", false)
	do(t, "k", b, c, d)
}

// A store that was begun before, and whose quarantine is over, makes nobody wait.
func TestServesAtOnceWhereAStoreHasBegun(t *testing.T) {
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.Settings.TTL = time.Hour
	host, err := offered.StartHost(t.Context(), offered.HostConfig{Name: "router", Addr: cfg.Join[0], Settings: cfg.Settings, NewCluster: true, Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	node, err := keyway.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	do(t, "k", node)
}
