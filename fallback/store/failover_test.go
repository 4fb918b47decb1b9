package store

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/internal/test/storetest"
	"github.com/keyway-go/keyway/ring"
)

// failoverTTL leaves time for a failover within a session.
const failoverTTL = time.Minute

// survive drives a store through a change of the server, and wants that the
// first call which is answered says so, that the records are there, and that
// nothing dead can be claimed. It returns the new generation.
func survive(t *testing.T, store *Store, gen string, failover func()) string {
	t.Helper()
	ctx := t.Context()
	states, err := store.Register(ctx, gen, records.Session{Incarnation: "a"}, failoverTTL, []records.Holding{{Partition: 1, Epoch: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := renew(ctx, store, gen, "a", failoverTTL); err != nil {
		t.Fatal(err)
	}
	hints := store.Watch(ctx)
	<-hints // subscribed
	failover()

	err = answered(t, func() error { return renew(ctx, store, gen, "a", failoverTTL) })
	if !errors.Is(err, records.ErrGeneration) {
		t.Fatalf("the first call after the failover gave %v, want ErrGeneration", err)
	}
	err = answered(t, func() error { _, err := store.Observe(ctx, gen, "", 0, nil); return err })
	if !errors.Is(err, records.ErrGeneration) {
		t.Errorf("Observe gave %v, want ErrGeneration", err)
	}
	next, err := store.Generation(ctx, true)
	if err != nil || next == gen {
		t.Fatalf("got generation %q, %v after %q", next, err, gen)
	}
	s, err := store.Observe(ctx, next, "", 0, nil)
	if err != nil || s.Quarantine == 0 || len(s.Sessions) > 0 || len(s.Partitions) != 1 || s.Partitions[0].Record != states[0].Record {
		t.Fatalf("got %+v, %v, want a quarantine, no session and record %v", s, err, states[0].Record)
	}
	drain(hints)
	again, err := store.Register(ctx, next, records.Session{Incarnation: "a"}, failoverTTL, []records.Holding{{Partition: 1, Epoch: states[0].Record.Epoch}})
	if err != nil || again[0].Record.Owner != "a" || again[0].Record.Epoch <= states[0].Record.Epoch {
		t.Fatalf("the record %v was re-asserted as %v, %v", states[0].Record, again, err)
	}
	hinted := answered(t, func() error {
		select {
		case <-hints:
			return nil
		case <-time.After(100 * time.Millisecond):
			_, err := store.Register(ctx, next, records.Session{Incarnation: "a"}, failoverTTL, nil)
			return errors.Join(errors.New("no hint"), err)
		}
	})
	if hinted != nil {
		t.Errorf("no hints after the failover: %v", hinted)
	}
	return next
}

func drain(hints <-chan records.Hint) {
	select {
	case <-hints:
	default:
	}
}

// answered repeats a call until its outcome is definite.
func answered(t *testing.T, call func() error) (err error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		err = call()
		if err == nil || errors.Is(err, records.ErrGeneration) || errors.Is(err, records.ErrSessionGone) {
			return err
		}
	}
	t.Fatalf("no answer for 30 s: %v", err)
	return err
}

func renew(ctx context.Context, store storetest.Store, gen, incarnation string, ttl time.Duration) error {
	_, err := store.Renew(ctx, gen, incarnation, ttl)
	return err
}

func firstGeneration(t *testing.T, store *Store) string {
	t.Helper()
	gen, err := store.Generation(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	return gen
}

func TestTrapClusterFailover(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	store := openStore(t, cluster.URL(), Config{NewCluster: true, Settings: ring.Settings{TTL: failoverTTL}})
	survive(t, store, firstGeneration(t, store), func() { cluster.Failover(store.keys[0]) })
}

// A replica is promoted while the store holds a connection to it already: no
// new connection tells of the other server.
func TestTrapReplicaPromotedUnderAnOpenConnection(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := redistest.Start(t)
	before := openStore(t, master.URL(), Config{NewCluster: true})
	gen := firstGeneration(t, before)
	_, port, _ := net.SplitHostPort(master.Addr())
	replica.CLI("replicaof", "127.0.0.1", port)
	after := openStore(t, replica.URL(), Config{})
	if err := answered(t, func() error {
		if got := replica.CLI("hget", before.keys[0], "generation"); got != gen {
			return errors.New("not yet replicated")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := after.client.Ping(t.Context()).Err(); err != nil { // connects
		t.Fatal(err)
	}
	if _, err := after.Observe(t.Context(), gen, "", 0, nil); err == nil || errors.Is(err, records.ErrGeneration) {
		t.Errorf("a replica answered %v, want that it is read-only", err)
	}
	replica.CLI("replicaof", "no", "one")
	err := answered(t, func() error { _, err := after.Observe(t.Context(), gen, "", 0, nil); return err })
	if !errors.Is(err, records.ErrGeneration) {
		t.Errorf("the promoted replica answered %v, want ErrGeneration", err)
	}
}

func TestTrapSentinelFailover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	store := openStore(t, sentinel.URL(), Config{NewCluster: true, Settings: ring.Settings{TTL: failoverTTL}})
	survive(t, store, firstGeneration(t, store), sentinel.Failover)
}

// A switchover there and back: each is one new generation.
func TestTrapSentinelSwitchover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	store := openStore(t, sentinel.URL(), Config{NewCluster: true, Settings: ring.Settings{TTL: failoverTTL}})
	gen := firstGeneration(t, store)
	seen := map[string]bool{gen: true}
	for range 2 {
		gen = survive(t, store, gen, sentinel.Switchover)
		if seen[gen] {
			t.Errorf("generation %q came back", gen)
		}
		seen[gen] = true
		follows(t, sentinel.Master(), "state=online")
		if now := firstGeneration(t, store); now != gen {
			t.Errorf("once the old master follows, the generation is %q, want %q", now, gen)
		}
	}
}

// follows waits until what a server says of its replication has a part.
func follows(t *testing.T, server *redistest.Server, part string) {
	t.Helper()
	_ = answered(t, func() error {
		if info := server.CLI("info", "replication"); !strings.Contains(info, part) {
			return errors.New(info)
		}
		return nil
	})
}

func replicaOf(t *testing.T, replica, master *redistest.Server) {
	t.Helper()
	_, port, _ := net.SplitHostPort(master.Addr())
	replica.CLI("replicaof", "127.0.0.1", port)
	follows(t, replica, "master_link_status:up")
	follows(t, master, "state=online")
}

// A master that was a replica for a while holds what the other master had,
// though neither was restarted and nobody called the other one. A replica that
// comes, or comes back, changes nothing.
func TestTrapFailBackWithoutRestart(t *testing.T) {
	t.Parallel()
	config := []string{"--repl-diskless-sync-delay", "0"}
	first, second := redistest.Start(t, config...), redistest.Start(t, config...)
	store := openStore(t, first.URL(), Config{NewCluster: true, Settings: ring.Settings{TTL: failoverTTL}})
	gen := firstGeneration(t, store)
	same := func(when string) {
		t.Helper()
		if now := firstGeneration(t, store); now != gen {
			t.Errorf("%s the generation is %q, want %q", when, now, gen)
		}
	}
	if _, err := store.Register(t.Context(), gen, records.Session{Incarnation: "a"}, failoverTTL, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		replicaOf(t, second, first)
		same("with a replica")
		first.CLI("client", "kill", "type", "replica")
		follows(t, first, "state=online")
		same("after a partial resync")

		second.CLI("replicaof", "no", "one")
		_, err := store.Apply(t.Context(), gen, "a", []records.Change{{Op: records.OpClaim, Partition: 1}}) // will be lost
		if err != nil {
			t.Fatal(err)
		}
		replicaOf(t, first, second)
		first.CLI("replicaof", "no", "one")
		err = answered(t, func() error { _, err := store.Observe(t.Context(), gen, "", 0, nil); return err })
		if !errors.Is(err, records.ErrGeneration) {
			t.Errorf("the master that failed back answered %v, want ErrGeneration", err)
		}
		gen = firstGeneration(t, store)
		if _, err := store.Register(t.Context(), gen, records.Session{Incarnation: "a"}, failoverTTL, nil); err != nil {
			t.Fatal(err)
		}
	}
	same("in the end")
}

// A master that was out of sight comes back with the generation that everybody
// left, in which their sessions have run out.
func TestTrapGenerationThatWasLeft(t *testing.T) {
	t.Parallel()
	first, second := redistest.Start(t), redistest.Start(t)
	var current atomic.Pointer[redistest.Server]
	current.Store(first)
	over := func(from, to *redistest.Server) {
		current.Store(to)
		from.CLI("client", "kill", "type", "normal")
	}
	store := openStore(t, first.URL(), Config{Settings: ring.Settings{TTL: failoverTTL}, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, current.Load().Addr())
	}})
	register := func(gen string) error {
		_, err := store.Register(t.Context(), gen, records.Session{Incarnation: "a"}, failoverTTL, nil)
		return err
	}
	left := firstGeneration(t, store)
	if _, err := store.Register(t.Context(), left, records.Session{Incarnation: "a"}, time.Millisecond, nil); err != nil {
		t.Fatal(err)
	}
	over(first, second)
	gen := firstGeneration(t, store)
	if err := register(gen); err != nil {
		t.Fatal(err)
	}
	over(second, first)
	err := answered(t, func() error { return renew(t.Context(), store, gen, "a", failoverTTL) })
	if !errors.Is(err, records.ErrGeneration) {
		t.Errorf("the first call gave %v, want ErrGeneration", err)
	}
	now := firstGeneration(t, store)
	if now == left || now == gen {
		t.Errorf("got generation %q after %q and %q, want another one", now, left, gen)
	}
	if s, err := store.Observe(t.Context(), now, "", 0, nil); err != nil || s.Quarantine == 0 {
		t.Errorf("got %+v, %v, want a quarantine", s, err)
	}
	if err := register(now); err != nil {
		t.Error(err)
	}
	if again := firstGeneration(t, store); again != now {
		t.Errorf("got generation %q after %q", again, now)
	}
}

func TestPausedServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openStore(t, server.URL(), Config{NewCluster: true})
	gen := firstGeneration(t, store)
	if _, err := store.Register(t.Context(), gen, records.Session{Incarnation: "a"}, failoverTTL, nil); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := renew(ctx, store, gen, "a", failoverTTL); err == nil {
		t.Error("a paused server renewed a session")
	}
	server.Resume()
	if err := answered(t, func() error { return renew(t.Context(), store, gen, "a", failoverTTL) }); err != nil {
		t.Errorf("after the pause Renew gave %v", err)
	}
}

// A demoted master still has its data, but what it says is old.
func TestTrapDemotedMaster(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openStore(t, server.URL(), Config{NewCluster: true})
	gen := firstGeneration(t, store)
	s, err := store.Observe(t.Context(), gen, "", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	server.CLI("replicaof", "127.0.0.1", "1")
	for _, since := range []int64{0, s.Version} {
		if _, err := store.Observe(t.Context(), gen, "", since, nil); err == nil || errors.Is(err, records.ErrGeneration) {
			t.Errorf("a demoted master answered %v after version %d, want that it is read-only", err, since)
		}
	}
	server.CLI("replicaof", "no", "one")
	err = answered(t, func() error { _, err := store.Observe(t.Context(), gen, "", 0, nil); return err })
	if !errors.Is(err, records.ErrGeneration) {
		t.Errorf("a master again, it answered %v, want ErrGeneration", err)
	}
}

// A replica has its master's replication id, and data, and may take writes: it is another server all the same. To the
// master, whose id changes when the first replica attaches, nothing has happened.
func TestTrapWritableReplica(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	store := openStore(t, master.URL(), Config{NewCluster: true})
	gen := firstGeneration(t, store)
	if _, err := store.Register(t.Context(), gen, records.Session{Incarnation: "a"}, failoverTTL, nil); err != nil {
		t.Fatal(err)
	}
	replica := redistest.Start(t, "--replica-read-only", "no", "--replicaof", strings.Replace(master.Addr(), ":", " ", 1))
	replicated := func(key string) bool {
		value := master.CLI("hget", store.keys[0], key)
		return value != "" && value == replica.CLI("hget", store.keys[0], key)
	}
	kit.Eventually(t, "the replica has the master's data", func() bool { return replicated("generation") })
	for range 2 {
		if err := renew(t.Context(), store, gen, "a", failoverTTL); err != nil {
			t.Errorf("with a replica, the master answered %v", err)
		}
	}
	kit.Eventually(t, "the replica has the renewals", func() bool { return replicated("beat") && replicated("life") })
	if err := renew(t.Context(), openStore(t, replica.URL(), Config{}), gen, "a", failoverTTL); !errors.Is(err, records.ErrGeneration) {
		t.Errorf("a writable replica answered %v, want ErrGeneration", err)
	}
}
