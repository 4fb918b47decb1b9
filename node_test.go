package keyway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/offered"
	"github.com/keyway-go/keyway/internal/test/certs"
	"github.com/keyway-go/keyway/internal/test/kit"
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
	t.Cleanup(func() { node.Close(context.Background()) })
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
			err := n.Do(t.Context(), key, func(x keyway.Execution) error {
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
			err = n.Do(t.Context(), key, func(keyway.Execution) error { return nil })
			notOwner, other := errors.AsType[*keyway.NotOwnerError](err)
			if other == (n.Members().Self().Name == name) || other && notOwner.Worker != owner.Name {
				t.Errorf("%s at %s: %v", key, n.Addr(), err)
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
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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
		defer n.Close(context.Background())
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
	was, incarnation := offers(b)[0], b.Worker().Incarnation()
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
	kit.Eventually(t, "b and c see one store, another one", func() bool {
		return len(offers(b)) == 1 && len(offers(c)) == 1 && offers(b)[0] != was && offers(c)[0] == offers(b)[0]
	})
	for i := range 20 {
		do(t, fmt.Sprint("k", i), b, c)
	}
	if b.Worker().Incarnation() != incarnation {
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
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	node, err := keyway.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close(t.Context())
	do(t, "k", node)
}

// Requests come from Start on, and are refused as a router understands it until
// there is a handler.
func TestServe(t *testing.T) {
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.NewCluster, cfg.Admin, cfg.Direct = true, "127.0.0.1:0", true
	cfg.Keys = kit.KeySources(t, "header:X-Key")
	node := start(t, cfg)
	res, body := kit.Fetch(t, "http://"+node.Addr(), "X-Key", "k")
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Errorf("without a handler: %d %s", res.StatusCode, body)
	}
	if res, body := kit.Fetch(t, "http://"+node.AdminAddr()+"/readyz"); res.StatusCode != http.StatusOK {
		t.Errorf("/readyz: %d %s", res.StatusCode, body)
	}
	running, finish := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- node.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				close(running)
				<-finish
			}
			key, _ := gateway.KeyFromHeader(r.Header)
			fmt.Fprint(w, "served ", key)
		}))
	}()
	kit.Eventually(t, "it is served", func() bool {
		_, body := kit.Fetch(t, "http://"+node.Addr(), "X-Key", "k")
		return body == "served k"
	})
	slow := make(chan string, 1)
	go func() {
		_, body := kit.Fetch(t, "http://"+node.Addr()+"/slow", "X-Key", "s")
		slow <- body
	}()
	<-running
	cancel() // it finishes what runs
	close(finish)
	if body := <-slow; body != "served s" {
		t.Errorf("a request that ran when ctx ended: %q", body)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	for range 2 {
		if err := node.Close(t.Context()); err != nil {
			t.Errorf("Close after Serve: %v", err)
		}
	}
	if _, err := net.Dial("tcp", node.Addr()); err == nil {
		t.Error("a closed node takes connections")
	}
	if err := node.Do(t.Context(), "k", func(keyway.Execution) error { return nil }); !errors.Is(err, keyway.ErrUnavailable) {
		t.Errorf("Do after Close: %v", err)
	}
}

// Config.Handler serves before Start returns; a handler of the worker's own is
// not asked for the key twice.
// A POST request empties a node, as Drain does, and lets it be: what runs is finished,
// and the other node has the keys.
func TestDrain(t *testing.T) {
	at := kit.FreeAddr(t)
	entered, release := make(chan struct{}), make(chan struct{})
	cfg := config(t, "a", at)
	cfg.Admin, cfg.DrainTimeout = "127.0.0.1:0", 500*time.Millisecond
	a, b := start(t, cfg), start(t, config(t, "b", at))
	admin := "http://" + a.AdminAddr()
	post := func(header ...string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, admin+"/drain", nil)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	key := ""
	for i := 0; key == ""; i++ {
		if k := fmt.Sprint("k", i); do(t, k, a, b) == "a" {
			key = k
		}
	}
	if status, _ := post("Sec-Fetch-Site", "cross-site"); status != http.StatusForbidden {
		t.Errorf("a page of another site: %d", status)
	}
	if res, body := kit.Fetch(t, admin+"/drain"); res.StatusCode != http.StatusMethodNotAllowed || a.Worker().Ready() != nil {
		t.Errorf("GET: %d %s, and the node: %v", res.StatusCode, body, a.Worker().Ready())
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		err := a.Do(t.Context(), key, func(keyway.Execution) error {
			close(entered)
			<-release
			return nil
		})
		if err != nil {
			t.Errorf("what ran: %v", err)
		}
	})
	<-entered
	if status, body := post(); status != http.StatusServiceUnavailable || !strings.Contains(body, "1 executions running") {
		t.Errorf("with something that runs: %d %s", status, body)
	}
	if res, body := kit.Fetch(t, admin+"/readyz"); res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "leaving") {
		t.Errorf("ready: %d %s", res.StatusCode, body)
	}
	close(release)
	for range 3 {
		running.Go(func() {
			if status, body := post(); status != http.StatusOK {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	running.Wait()
	if err := a.Drain(t.Context()); err != nil || do(t, key, a, b) != "b" {
		t.Errorf("drained: %v", err)
	}
	if res, _ := kit.Fetch(t, admin+"/healthz"); res.StatusCode != http.StatusOK {
		t.Errorf("the process: %d", res.StatusCode)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHandlers(t *testing.T) {
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "app") })
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.NewCluster, cfg.Handler, cfg.Direct, cfg.Keys = true, app, true, kit.KeySources(t, "header:X-Key")
	node := start(t, cfg)
	if _, body := kit.Fetch(t, "http://"+node.Addr(), "X-Key", "k"); body != "app" {
		t.Errorf("Config.Handler: %q", body)
	}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		served <- node.Serve(ctx, node.Worker().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "own") })))
	}()
	kit.Eventually(t, "the worker's own handler serves", func() bool {
		_, body := kit.Fetch(t, "http://"+node.Addr(), "X-Key", "k")
		return body == "own"
	})
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Serve ends with its listener, and Close works after that.
func TestServeFails(t *testing.T) {
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.NewCluster, cfg.Listener = true, l
	node := start(t, cfg)
	l.Close()
	if err := node.Serve(t.Context(), nil); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("Serve on a closed listener: %v", err)
	}
	if err := node.Close(t.Context()); err != nil {
		t.Errorf("Close after that: %v", err)
	}
}

// Clients of a node, and of a process that owns nothing, reach every key's owner;
// they hold what comes before there is a handler, or a node.
func TestClients(t *testing.T) {
	at := kit.FreeAddr(t)
	outside, err := keyway.NewClient(t.Context(), keyway.ClientConfig{Join: []string{at}, Settings: quick})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := outside.Owner("k"); !errors.Is(err, keyway.ErrUnavailable) {
		t.Errorf("Owner where nobody is: %v", err)
	}
	send := func(c *keyway.Client, key string) string {
		req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://app/", nil))
		req.Header.Set(gateway.HeaderKey, key)
		res, err := c.RoundTrip(req)
		if err != nil {
			t.Errorf("%s: %v", key, err)
			return ""
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Errorf("%s: %v", key, err)
		}
		return string(body)
	}
	early := make(chan string, 1)
	go func() { early <- send(outside, "early") }()

	cfg := config(t, "a", at)
	cfg.NewCluster = true
	a := start(t, cfg)
	cfg = config(t, "b", at)
	cfg.Handler = named("b")
	b := start(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx, named("a")) }()
	if body := <-early; body != "a has early" && body != "b has early" {
		t.Errorf("a call before there was a node: %q", body)
	}
	seen := make(map[string]bool)
	for i := range 20 {
		key := fmt.Sprint("k", i)
		want := do(t, key, a, b) + " has " + key
		seen[want[:1]] = true
		for from, client := range map[string]*keyway.Client{"a": a.Client(), "b": b.Client(), "outside": outside} {
			if got := send(client, key); got != want {
				t.Errorf("from %s: %q, want %q", from, got, want)
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("only %v have answered", seen)
	}
	for range 2 {
		if err := errors.Join(outside.Close(), b.Client().Close()); err != nil {
			t.Error(err)
		}
	}
	if got := send(b.Client(), "k"); got == "" {
		t.Error("Close of a node's client has closed it")
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := keyway.NewClient(t.Context(), keyway.ClientConfig{Router: router.ClientConfig{Local: nil, Logger: slog.Default()}}); !errors.Is(err, keyway.ErrConfig) {
		t.Errorf("Router.Logger: %v", err)
	}
}

// Nodes that serve nothing over HTTP hold each other's keys: money that is moved
// under two of them stays the same, and no call waits for ever.
func TestDoAll(t *testing.T) {
	at := kit.FreeAddr(t)
	cfg := config(t, "a", at)
	cfg.NewCluster = true
	a := start(t, cfg)
	b := start(t, config(t, "b", at))
	outside, err := keyway.NewClient(t.Context(), keyway.ClientConfig{Join: []string{at}, Settings: quick})
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	const accounts = 6
	balance, owners := make(map[string]int), make(map[string]bool)
	key := func(i int) string { return fmt.Sprint("account-", i%accounts) }
	for i := range accounts {
		owners[do(t, key(i), a, b)] = true
		balance[key(i)] = 100
	}
	if len(owners) != 2 {
		t.Fatalf("the accounts are at %v, want both", owners)
	}
	var mu sync.Mutex // of the map, and not of the balances
	read := func(key string) int { mu.Lock(); defer mu.Unlock(); return balance[key] }
	write := func(key string, n int) { mu.Lock(); defer mu.Unlock(); balance[key] = n }
	ways := []func(context.Context, []string, func(keyway.Executions) error) error{a.DoAll, b.DoAll, outside.DoAll}
	var moving sync.WaitGroup
	for i := range 12 {
		moving.Go(func() {
			for n := range 10 {
				from, to := key(i+n), key(i+2*n+1)
				if from == to {
					continue
				}
				err := ways[i%len(ways)](t.Context(), []string{from, to}, func(xs keyway.Executions) error {
					if len(xs.Keys()) != 2 || xs.Token(from) == 0 || xs.Token(to) == 0 {
						t.Errorf("it holds %q", xs.Keys())
					}
					was, there := read(from), read(to)
					runtime.Gosched()
					write(from, was-1)
					write(to, there+1)
					return xs.Context().Err()
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	moving.Wait()
	sum := 0
	for _, n := range balance {
		sum += n
	}
	if sum != accounts*100 {
		t.Errorf("%d in all, want %d: %v", sum, accounts*100, balance)
	}
}

// What does not wait says that the key is held, equal reads run once, and a call
// of its own key runs at once.
func TestCalls(t *testing.T) {
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.NewCluster = true
	node := start(t, cfg)
	err := node.Do(t.Context(), "k", func(x keyway.Execution) error {
		if err := node.TryDo(t.Context(), "k", func(keyway.Execution) error { return nil }); !errors.Is(err, keyway.ErrHeld) {
			t.Errorf("TryDo of a key that is held: %v", err)
		}
		v, shared, err := keyway.Share(x.Context(), node, "k", "read", func(inner keyway.Execution) (int64, error) { return inner.Token(), nil })
		if v != x.Token() || shared || err != nil {
			t.Errorf("Share of the own key: %d, %v, %v; want %d", v, shared, err, x.Token())
		}
		return node.DoAll(x.Context(), []string{"k", "l"}, func(xs keyway.Executions) error {
			if xs.Token("k") != x.Token() || xs.Token("l") == 0 {
				t.Errorf("DoAll of the own key: token %d, want %d", xs.Token("k"), x.Token())
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// named is an app that says who it is.
func named(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := gateway.KeyFromHeader(r.Header)
		fmt.Fprintf(w, "%s has %s", name, key)
	})
}

// A mistake is an error that names the field.
func TestConfigErrors(t *testing.T) {
	app := http.NotFoundHandler()
	for want, cfg := range map[string]keyway.Config{
		"Config.Listen":             {Listen: "127.0.0.1"},
		"Config.Listener":           {Listen: "127.0.0.1:0", Listener: new(net.TCPListener)},
		"Config.Admin":              {Admin: "x"},
		"Config.Gossip":             {Gossip: "127.0.0.1"},
		"--gossip-open":             {Listen: "127.0.0.1:0", Gossip: "0.0.0.0:0", Redis: "redis://127.0.0.1:1"},
		"Config.Advertise":          {Listen: "0.0.0.0:0", Gossip: "0.0.0.0:0", Redis: "redis://127.0.0.1:1"},
		"Config.Redis":              {Redis: "http://x"},
		"Config.Offered":            {Redis: "redis://x", Offered: true},
		"Config.Upstream":           {Handler: app, Upstream: new(url.URL)},
		"Config.DrainTimeout":       {DrainTimeout: -1},
		"Config.Settings":           {Settings: ring.Settings{TTL: 1}},
		"Config.Settings.KeySource": {Settings: ring.Settings{KeySource: "host"}},
		"Config.Settings.Store":     {Settings: ring.Settings{Store: 1}},
		"Config.Settings.PeerTLS":   {Settings: ring.Settings{PeerTLS: true}},
		"Members":                   {Worker: worker.Config{Store: store.NewMemory(store.MemoryConfig{})}},
		"NewCluster":                {Worker: worker.Config{NewCluster: true}},
		"Config.LockFile":           {LockFile: filepath.Join(t.TempDir(), "none", "lock")},
		"Previous":                  {LockFile: "x", Worker: worker.Config{Previous: []string{"x"}}},
	} {
		if cfg.Join == nil {
			cfg.Join = []string{kit.FreeAddr(t)}
		}
		_, err := keyway.Start(t.Context(), cfg)
		if !errors.Is(err, keyway.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want ErrConfig about %s", err, want)
		}
	}
	_, err := keyway.Start(t.Context(), keyway.Config{Join: []string{kit.FreeAddr(t)}, Worker: worker.Config{Queue: -1}})
	if err == nil || !strings.Contains(err.Error(), "Config.Queue") {
		t.Errorf("%v, want an error about the worker's Config.Queue", err)
	}
}

// Gossip that reaches other machines needs a Redis, and says so soon.
func TestTrapNoStoreInMemoryForManyMachines(t *testing.T) {
	for _, cfg := range []keyway.Config{
		{Gossip: "0.0.0.0:0", Listen: "127.0.0.1:0"},
		{Join: []string{"192.0.2.1:7946"}}, // of a network for documentation
		{GossipAdvertise: "192.0.2.1"},
		{Gossip: "0.0.0.0:0", Listen: "127.0.0.1:0", Join: []string{kit.FreeAddr(t)}, NewCluster: true},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			cfg.Settings, cfg.GossipOpen = quick, true
			_, err := keyway.Start(t.Context(), cfg)
			if !errors.Is(err, keyway.ErrConfig) || !strings.Contains(err.Error(), "Config.Redis") {
				t.Errorf("%v, want an error about Config.Redis", err)
			}
		})
	}
}

// A start that is given up says what it waited for, and leaves nothing open.
func TestStartIsBounded(t *testing.T) {
	kit.NoLeaks(t)
	for want, change := range map[string]func(*keyway.Config){
		"Config.Redis": func(cfg *keyway.Config) { cfg.Offered = true },
		"no session":   func(cfg *keyway.Config) { cfg.Redis = "redis://127.0.0.1:1" },
		"of the 64":    func(cfg *keyway.Config) { cfg.Settings.TTL = time.Hour },
	} {
		cfg := config(t, "a", kit.FreeAddr(t))
		cfg.Listen = kit.FreeAddr(t)
		change(&cfg)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		node, err := keyway.Start(ctx, cfg)
		cancel()
		if node != nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "a ") {
			t.Errorf("%v, want an error about %q", err, want)
		}
		l, err := net.Listen("tcp", cfg.Listen)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
