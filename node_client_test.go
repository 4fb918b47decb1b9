package keyway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/localmutex/locking"
)

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
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := outside.Do(soon, "k", nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no worker is on the ring") {
		t.Errorf("a call in vain where nobody is: %v", err)
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
		for from, client := range map[string]*keyway.Client{"a": a.Client, "b": b.Client, "outside": outside} {
			if got := send(client, key); got != want {
				t.Errorf("from %s: %q, want %q", from, got, want)
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("only %v have answered", seen)
	}
	for range 2 {
		if err := errors.Join(outside.Close(), b.Client.Close()); err != nil {
			t.Error(err)
		}
	}
	if got := send(b.Client, "k"); got == "" {
		t.Error("Close of a node's client has closed it")
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := keyway.NewClient(t.Context(), keyway.ClientConfig{Join: []string{at}, Settings: quick, Limits: gateway.Limits{Hold: -1}}); err == nil || !strings.Contains(err.Error(), "Limits.Hold") {
		t.Errorf("%v, want an error about Limits.Hold", err)
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
	ways := []func(context.Context, []string, func(keyway.Execution) error) error{a.DoAll, b.DoAll, outside.DoAll}
	var moving sync.WaitGroup
	for i := range 12 {
		moving.Go(func() {
			for n := range 10 {
				from, to := key(i+n), key(i+2*n+1)
				if from == to {
					continue
				}
				err := ways[i%len(ways)](t.Context(), []string{from, to}, func(xs keyway.Execution) error {
					if len(xs.Keys()) != 2 || xs.TokenOf(from) == 0 || xs.TokenOf(to) == 0 {
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

// Do and TryDo run a function for each of many keys from each of three nodes, one at a
// time per key, with tokens that rise; an error of the function is the call's, also one
// that names another owner.
func TestDoFromAnywhere(t *testing.T) {
	redis := redistest.Start(t)
	var nodes []*keyway.Node
	at := kit.FreeAddr(t)
	for _, name := range []string{"a", "b", "c"} {
		cfg := config(t, name, at)
		cfg.Redis, cfg.NewCluster = redis.URL(), true
		nodes = append(nodes, start(t, cfg))
	}
	const keys = 1000
	tokens := make([]int64, keys) // unguarded: Do excludes
	never := errors.New("it ran twice")
	var calls sync.WaitGroup
	for n, node := range nodes {
		calls.Go(func() {
			for i := range keys {
				ran := false
				err := node.Do(t.Context(), fmt.Sprint("order-", i), func(x keyway.Execution) error {
					if ran || x.Token() <= tokens[i] || x.Context().Err() != nil {
						return never
					}
					ran, tokens[i] = true, x.Token()
					return &keyway.NotOwnerError{Key: x.Key()}
				})
				if other, is := errors.AsType[*keyway.NotOwnerError](err); !ran || !is || other.Key != fmt.Sprint("order-", i) || other.Worker != "" {
					t.Errorf("key %d from node %d: %v, ran: %v", i, n, err, ran)
				}
				if err := node.TryDo(t.Context(), fmt.Sprint(n, "-", i), func(keyway.Execution) error { return nil }); err != nil {
					t.Errorf("TryDo of a key of its own from node %d: %v", n, err)
				}
			}
		})
	}
	calls.Wait()
}

// What does not wait says that the key is held, equal reads run once, and a call
// of its own key runs at once.
func TestCalls(t *testing.T) {
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.NewCluster = true
	node := start(t, cfg)
	err := node.Do(t.Context(), "k", func(x keyway.Execution) error {
		if err := node.TryDo(t.Context(), "k", func(keyway.Execution) error { return nil }); !errors.Is(err, keyway.ErrLocked) || err.Error() != `keyway: key "k" is held or waited for at worker a: wait for it, or try again` {
			t.Errorf("TryDo of a key that is held: %v", err)
		}
		v, shared, err := keyway.Share(x.Context(), node, "k", "read", func(inner keyway.Execution) (int64, error) { return inner.Token(), nil })
		if v != x.Token() || shared || err != nil {
			t.Errorf("Share of the own key: %d, %v, %v; want %d", v, shared, err, x.Token())
		}
		return node.DoAll(x.Context(), []string{"k", "l"}, func(xs keyway.Execution) error {
			if xs.TokenOf("k") != x.Token() || xs.TokenOf("l") == 0 {
				t.Errorf("DoAll of the own key: token %d, want %d", xs.TokenOf("k"), x.Token())
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

// A client finds nodes by their Redis, where no member is at the address of Join; and one that finds nobody does not say
// that the key is locked.
func TestClientFindsNodesInRedis(t *testing.T) {
	redis, log := redistest.Start(t), new(kit.Buffer)
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.Redis, cfg.NewCluster, cfg.Logger = redis.URL(), true, slog.New(slog.NewTextHandler(log, nil))
	start(t, cfg)
	alone := keyway.ClientConfig{Join: []string{kit.FreeAddr(t)}, Settings: quick}
	for _, tt := range []struct {
		redis string
		want  error
	}{{"", keyway.ErrUnavailable}, {redis.URL(), nil}} {
		alone.Redis = tt.redis
		client := kit.Must(keyway.NewClient(t.Context(), alone))
		wait := time.Second
		if tt.want == nil {
			wait = time.Minute
		}
		l, err := client.Lock(t.Context(), "k", locking.Wait(wait))
		if !errors.Is(err, tt.want) || errors.Is(err, locking.ErrLocked) || err != nil && !strings.Contains(err.Error(), "no worker is on the ring: a worker says at /readyz why; if there is none, correct Join (--join) or Redis (--store)") {
			t.Errorf("with Redis %q: %v, want %v", tt.redis, err, tt.want)
		}
		if err == nil {
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(client.Close(), client.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A node that leaves while it balances does not leave the balancer's lock behind: the node that keeps
// that lock would wait for its end.
func TestCloseUnlocksTheBalancer(t *testing.T) {
	at := kit.FreeAddr(t)
	first := config(t, "a", at)
	first.NewCluster, first.NoPlacement = true, true
	a, b := start(t, first), start(t, config(t, "b", at))
	kit.Eventually(t, "b balances", func() bool {
		lock, err := a.TryLock(t.Context(), placement.Lock)
		if err == nil {
			err = lock.Unlock(t.Context())
		}
		return errors.Is(err, keyway.ErrLocked)
	})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	lock, err := a.TryLock(t.Context(), placement.Lock)
	if err != nil {
		t.Fatal(err)
	}
	_ = lock.Unlock(t.Context())
}
