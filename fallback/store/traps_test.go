package store

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/netproxy"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/ring"
)

// proxied is a store behind a proxy, with a session and two partitions.
type proxied struct {
	*testing.T
	server *redistest.Server
	proxy  *netproxy.Proxy
	store  *Store
	gen    string
	record records.Record // of partitions 1 and 2
}

var runningKey = records.Residue{Key: "k", Holder: "a", Token: 7}

func newProxied(t *testing.T) *proxied {
	t.Helper()
	p := &proxied{T: t, server: redistest.Start(t)}
	var err error
	if p.proxy, err = netproxy.New(p.server.Addr()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.proxy.Close() })
	p.store = openStore(t, "redis://"+p.proxy.Addr(), Config{NewCluster: true})
	if p.gen, err = p.store.Generation(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for _, inc := range []string{"b", "a"} {
		states, err := p.store.Register(t.Context(), p.gen, records.Session{Incarnation: inc}, time.Minute, holding(inc))
		if err != nil {
			t.Fatal(err)
		}
		if inc == "a" {
			p.record = states[0].Record
		}
	}
	if err := renew(t.Context(), p.store, p.gen, "a", time.Minute); err != nil { // connects
		t.Fatal(err)
	}
	return p
}

func holding(inc string) []records.Holding {
	if inc != "a" {
		return nil
	}
	return []records.Holding{{Partition: 1, Epoch: 1, Residue: []records.Residue{runningKey}}, {Partition: 2, Epoch: 1}}
}

func (p *proxied) observe() records.Snapshot {
	p.Helper()
	s, err := p.store.Observe(p.Context(), p.gen, "", 0, nil)
	if err != nil {
		p.Fatal(err)
	}
	return s
}

func (p *proxied) state(partition int) records.PartitionState {
	p.Helper()
	for _, s := range p.observe().Partitions {
		if s.Partition == partition {
			return s
		}
	}
	p.Fatalf("partition %d is not there", partition)
	return records.PartitionState{}
}

// The server carries each call out, its reply is lost, go-redis repeats it on
// another connection: the caller is told what the first one did.
func TestTrapReplyLostAndRetried(t *testing.T) {
	t.Parallel()
	change := func(p *proxied, c records.Change) records.PartitionState {
		states, err := p.store.Apply(p.Context(), p.gen, "a", []records.Change{c})
		if err != nil {
			p.Fatal(err)
		}
		return states[0]
	}
	for name, call := range map[string]func(p *proxied){
		"Move": func(p *proxied) {
			got := change(p, records.Change{Op: records.OpMove, Partition: 2, From: p.record, To: "b", Residue: []records.Residue{runningKey}})
			if now := p.state(2); got.Record.Owner != "b" || got.Record != now.Record || len(now.Residue) != 1 {
				p.Errorf("told %v, stored %v, want the move to b once", got, now)
			}
		},
		"Claim": func(p *proxied) {
			got := change(p, records.Change{Op: records.OpClaim, Partition: 3})
			if got.Record.Owner != "a" || got.Record != p.state(3).Record {
				p.Errorf("told %v, stored %v, want a's claim once", got, p.state(3))
			}
		},
		"Advance": func(p *proxied) {
			got := change(p, records.Change{Op: records.OpAdvance, Partition: 1, From: p.record, Floor: p.record.Epoch * 2})
			if want := p.record.Epoch * 2; got.Record.Epoch != want {
				p.Errorf("told %v, want epoch %d", got, want)
			}
		},
		"Clear": func(p *proxied) {
			if err := p.store.Clear(p.Context(), p.gen, 1, []records.Residue{runningKey}); err != nil || len(p.state(1).Residue) > 0 {
				p.Errorf("got %v and residue %v", err, p.state(1).Residue)
			}
		},
		"Register": func(p *proxied) {
			states, err := p.store.Register(p.Context(), p.gen, records.Session{Incarnation: "a"}, time.Minute, holding("a"))
			if err != nil || states[0].Record != p.state(1).Record || states[0].Record.Owner != "a" {
				p.Errorf("told %v, %v, stored %v", states, err, p.state(1))
			}
		},
		"Renew": func(p *proxied) {
			if err := renew(p.Context(), p.store, p.gen, "a", time.Minute); err != nil {
				p.Error(err)
			}
		},
		"Release": func(p *proxied) {
			if err := p.store.Release(p.Context(), "a"); err != nil || len(p.observe().Released) != 1 {
				p.Errorf("got %v and tombstones %v", err, p.observe().Released)
			}
		},
		"Observe": func(p *proxied) { p.observe() },
		"Generation": func(p *proxied) {
			if gen, err := p.store.Generation(p.Context(), true); err != nil || gen != p.gen {
				p.Errorf("got %q, %v, want %q", gen, err, p.gen)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProxied(t)
			p.proxy.CutNext(netproxy.ToClient)
			call(p)
			if p.proxy.Pending(netproxy.ToClient) {
				t.Error("no reply was lost")
			}
		})
	}
}

// A lost reply to the rollover must not begin two generations.
func TestTrapReplyLostAtRollover(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	p.server.CLI("flushall")
	p.proxy.CutNext(netproxy.ToClient)
	gen, err := p.store.Generation(t.Context(), true)
	if err != nil || gen == p.gen {
		t.Fatalf("got %q, %v", gen, err)
	}
	if again, err := p.store.Generation(t.Context(), true); err != nil || again != gen {
		t.Errorf("got %q, %v, want %q", again, err, gen)
	}
}

func TestTrapContextDeadline(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	store := openStore(t, "redis://"+p.proxy.Addr()+"?read_timeout=5m", Config{})
	p.proxy.Set(netproxy.ToClient, netproxy.Fault{Stall: true})
	for name, call := range map[string]func(ctx context.Context) error{
		"deadline": func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			return renew(ctx, store, p.gen, "a", time.Minute)
		},
		"cancellation": func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			_, err := store.Observe(ctx, p.gen, "", 0, nil)
			return err
		},
	} {
		begin := time.Now()
		err := call(t.Context())
		if took := time.Since(begin); err == nil || took > time.Minute {
			t.Errorf("%s: got %v after %v", name, err, took)
		}
	}
}

// A server that does not answer at all fails a call without any deadline
// within the documented timeouts.
func TestTrapSilentServer(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	p.proxy.Set(netproxy.ToClient, netproxy.Fault{Drop: true})
	store := openStore(t, "redis://"+p.proxy.Addr()+"?read_timeout=50ms&dial_timeout=50ms", Config{})
	begin := time.Now()
	_, err := store.Generation(t.Context(), true)
	if took := time.Since(begin); err == nil || took > time.Minute {
		t.Errorf("got %v after %v", err, took)
	}
}

// Calls that hang on the store's other connections do not delay a renewal.
func TestTrapSlowApplyDelaysRenewal(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	slow, err := netproxy.New(p.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slow.Close() })
	client, err := fallback.NewClient("redis://" + slow.Addr() + "?pool_size=1")
	if err != nil {
		t.Fatal(err)
	}
	p.store.client.Close()
	p.store.client = client
	p.observe()
	slow.Set(netproxy.ToServer, netproxy.Fault{Stall: true})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.store.Apply(ctx, p.gen, "a", nil)
		done <- err
	}()
	if err := renew(t.Context(), p.store, p.gen, "a", time.Minute); err != nil {
		t.Error(err)
	}
	select {
	case err := <-done:
		t.Errorf("the Apply was not held up: %v", err)
	default:
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the Apply ended with %v", err)
	}
}

// While the connection was away hints were lost, so a reconnect is one.
func TestTrapHintsLostWhileAway(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	hints := p.store.Watch(t.Context())
	hinted := func(what string) {
		t.Helper()
		select {
		case <-hints:
		case <-time.After(time.Minute):
			t.Fatalf("no hint after %s", what)
		}
	}
	hinted("subscribing")
	for range 2 {
		p.proxy.Cut()
		hinted("the connection was cut")
	}
	p.server.Restart()
	hinted("a restart")
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	hints := p.store.Watch(t.Context())
	p.proxy.Set(netproxy.ToClient, netproxy.Fault{Stall: true})
	done := make(chan error, 1)
	go func() { done <- renew(context.Background(), p.store, p.gen, "a", time.Minute) }()
	if err := p.store.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("a call outlived Close")
	}
	for range hints {
	}
	for range p.store.Watch(t.Context()) {
	}
	if _, err := p.store.Generation(t.Context(), true); !errors.Is(err, stores.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if err := p.store.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestTrapRedisMayEvictOrForget(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	open := func(url string) *Store {
		return openStore(t, url, Config{NewCluster: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	}
	s := open(redistest.Start(t, "--maxmemory-policy", "allkeys-lru").URL())
	for range 2 {
		if _, err := s.Generation(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	for _, word := range []string{"noeviction", "appendonly"} {
		if n := strings.Count(log.String(), word); n != 1 {
			t.Errorf("%d warnings about %s, want 1:\n%s", n, word, log.String())
		}
	}
	log.Reset()
	for _, url := range []string{redistest.Start(t, "--appendonly", "yes").URL(), startEmbedded(t).URL()} {
		if _, err := open(url).Generation(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	if log.Len() > 0 {
		t.Errorf("warned without need:\n%s", log.String())
	}
	if got := warnings("", "", "connected_slaves:1\r\nmaster_replid:x\r\n", ""); len(got) != 1 || !strings.Contains(got[0], "min-replicas-to-write") {
		t.Errorf("a master with replicas that may be cut off gave %q", got)
	}
}

// Somebody deletes a record. The first call begins a generation, in which its owner asserts it anew. Otherwise a worker that
// starts could not read the partitions, and the partition would never move.
func TestTrapLostRecord(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openStore(t, server.URL(), Config{NewCluster: true})
	gen, holdings := firstGeneration(t, s), []records.Holding{{Partition: 1, Epoch: 1}}
	if _, err := s.Register(t.Context(), gen, records.Session{Incarnation: "a"}, time.Minute, holdings); err != nil {
		t.Fatal(err)
	}
	server.CLI("hdel", "{keyway:keyway}:partitions", "1")
	if err := renew(t.Context(), s, gen, "a", time.Minute); !errors.Is(err, records.ErrGeneration) {
		t.Errorf("the first call after the loss gave %v, want ErrGeneration", err)
	}
	gen = firstGeneration(t, s)
	states, err := s.Register(t.Context(), gen, records.Session{Incarnation: "a"}, time.Minute, holdings)
	if err != nil || states[0].Record.Owner != "a" {
		t.Errorf("the record was re-asserted as %v, %v", states, err)
	}
	if snapshot, err := s.Observe(t.Context(), gen, "a", 0, nil); err != nil || snapshot.Quarantine == 0 || len(snapshot.Partitions) != 1 {
		t.Errorf("got %+v, %v, want a quarantine and one partition", snapshot, err)
	}
}

// A Redis that is full refuses writes, those of others; ownership goes on.
func TestTrapRedisIsFull(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	p.server.CLI("config", "set", "maxmemory", "1")
	if out := p.server.CLI("set", "other", "x"); !strings.Contains(out, "OOM") {
		t.Fatalf("the server is not full: it answered %q", out)
	}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx := t.Context()
	must("Renew", renew(ctx, p.store, p.gen, "a", time.Minute))
	must("Clear", p.store.Clear(ctx, p.gen, 1, []records.Residue{runningKey}))
	if left := p.state(1).Residue; len(left) > 0 {
		t.Errorf("%v is left after Clear", left)
	}
	for _, c := range []records.Change{
		{Op: records.OpMove, Partition: 2, From: p.record, To: "b", Residue: []records.Residue{runningKey}},
		{Op: records.OpClaim, Partition: 3},
		{Op: records.OpAdvance, Partition: 1, From: p.record},
	} {
		states, err := p.store.Apply(ctx, p.gen, "a", []records.Change{c})
		must("Apply", err)
		if err == nil && states[0].Record == c.From {
			t.Errorf("%v was refused", c)
		}
	}
	must("Release", p.store.Release(ctx, "b"))
	_, err := p.store.Register(ctx, p.gen, records.Session{Incarnation: "c"}, time.Minute, nil)
	must("Register", err)
	if s := p.observe(); len(s.Sessions) != 2 || len(s.Released) != 1 {
		t.Errorf("got %+v, want sessions a and c, and b released", s)
	}
	p.server.CLI("flushall")
	if gen, err := p.store.Generation(ctx, true); err != nil || gen == p.gen {
		t.Errorf("after a flush Generation gave %q, %v", gen, err)
	}
}

func TestKeysAreInOneSlot(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	if err := p.store.Release(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	keys := strings.Fields(p.server.CLI("keys", "*"))
	if len(keys) < 7 {
		t.Errorf("got keys %q, want at least 7", keys)
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, "{keyway:keyway}:") {
			t.Errorf("key %q is in another slot", key)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]ring.Settings{"brace": {Cluster: "a}b"}, "TTL": {TTL: time.Microsecond}} {
		if _, err := New("redis://h", Config{Settings: settings}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v gave %v, want an error about %s", settings, err, name)
		}
	}
	if _, err := New("nonsense", Config{}); err == nil || !strings.Contains(err.Error(), "bad redis URL") {
		t.Errorf("got %v, want one of the URL", err)
	}
}

// Two clusters on one server do not see each other.
func TestClustersAreSeparate(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	other := openStore(t, p.server.URL(), Config{Settings: ring.Settings{Cluster: "other"}, NewCluster: true})
	gen, err := other.Generation(t.Context(), true)
	if err != nil || gen == p.gen {
		t.Fatalf("got %q, %v", gen, err)
	}
	s, err := other.Observe(t.Context(), gen, "", 0, nil)
	if err != nil || s.Quarantine != 0 || len(s.Sessions)+len(s.Partitions) > 0 {
		t.Errorf("got %+v, %v, want an empty store", s, err)
	}
}
