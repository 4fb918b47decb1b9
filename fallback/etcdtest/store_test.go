package etcdtest

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/keyway-go/keyway/fallback/etcd"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/certs"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
)

// openStore opens a store whose TTL is long, and so are its attempts, for a machine that is busy.
func openStore(t *testing.T, url string) *etcd.Store {
	s := kit.Must(etcd.New(url, store.Config{Settings: ring.Settings{TTL: time.Minute}, NewCluster: true}))
	t.Cleanup(func() { s.Close() })
	return s
}

// An etcd that takes less than others in one transaction gets several.
func TestSmallTransactions(t *testing.T) {
	t.Parallel()
	s := openStore(t, storeURL(startMembers(t, 1, func(c *embed.Config) { c.MaxTxnOps, c.MaxRequestBytes = 30, 32<<10 })))
	gen := kit.Must(s.Generation(t.Context(), true))
	var holdings []records.Holding
	for p := range 100 {
		holdings = append(holdings, records.Holding{Partition: p, Epoch: 1, Residue: []records.Residue{{Key: strings.Repeat("k", 5000), Holder: "a", Token: 1}}})
	}
	states := kit.Must(s.Register(t.Context(), gen, records.Session{Incarnation: "a"}, time.Minute, holdings))
	seen := kit.Must(s.Observe(t.Context(), gen, "a", 0, nil)).Partitions
	for p, state := range seen {
		if state.Record != states[p].Record || state.Record.Owner != "a" || len(state.Residue) != 1 {
			t.Errorf("partition %d: %v, and told %v", p, state.Record, states[p].Record)
		}
	}
	if len(seen) != len(holdings) {
		t.Errorf("%d partitions of %d", len(seen), len(holdings))
	}
}

// An etcd that takes too little for a look is told what to change.
func TestTooSmallTransactions(t *testing.T) {
	t.Parallel()
	s := openStore(t, storeURL(startMembers(t, 1, func(c *embed.Config) { c.MaxTxnOps = 3 })))
	if _, err := s.Generation(t.Context(), true); err == nil || !strings.Contains(err.Error(), "--max-txn-ops") {
		t.Errorf("with 3 operations in a transaction: %v", err)
	}
}

// Members that were started on old data have lost writes, though the cluster's id is the same. Of the
// handles that have seen more, one begins a generation, also if the old data allow what it writes first. A look
// notices it even if the revision has gone on, as it has after etcdutl snapshot restore --bump-revision, and partitions
// have changed since.
func TestTrapOldData(t *testing.T) {
	t.Parallel()
	calls := map[string]func(s *etcd.Store, gen string, server *member) error{
		"renew": func(s *etcd.Store, gen string, _ *member) error {
			_, err := s.Renew(t.Context(), gen, "a", time.Minute)
			return err
		},
		"apply": func(s *etcd.Store, gen string, _ *member) error {
			_, err := s.Apply(t.Context(), gen, "a", []records.Change{{Op: records.OpClaim, Partition: 2}})
			return err
		},
		"observe": func(s *etcd.Store, gen string, server *member) error {
			raw := rawClient(t, server)
			for range 20 {
				kit.Must(raw.Put(t.Context(), "another program's", ""))
			}
			kit.Must(s.Apply(t.Context(), gen, "a", []records.Change{{Op: records.OpClaim, Partition: 2}}))
			_, err := s.Observe(t.Context(), gen, "a", 0, nil)
			return err
		},
	}
	for name, first := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startMembers(t, 1, nil)[0]
			s, other := openStore(t, storeURL([]*member{server})), openStore(t, storeURL([]*member{server}))
			gen := kit.Must(s.Generation(t.Context(), true))
			session := records.Session{Incarnation: "a"}
			kit.Must(s.Register(t.Context(), gen, session, time.Minute, nil))
			kit.Must(s.Observe(t.Context(), gen, "a", 0, nil))
			server.stop()
			old := t.TempDir()
			if err := os.CopyFS(old, os.DirFS(server.config.Dir)); err != nil {
				t.Fatal(err)
			}
			server.start(t)
			record := kit.Must(s.Apply(t.Context(), gen, "a", []records.Change{{Op: records.OpClaim, Partition: 1}}))[0].Record
			kit.Must(s.Apply(t.Context(), gen, "a", []records.Change{{Op: records.OpClaim, Partition: 3}}))
			kit.Must(s.Observe(t.Context(), gen, "a", 0, nil))
			kit.Must(other.Observe(t.Context(), kit.Must(other.Generation(t.Context(), true)), "", 0, nil))
			server.stop()
			server.config.Dir = old
			server.start(t)
			if err := first(s, gen, server); !errors.Is(err, records.ErrGeneration) {
				t.Fatalf("the first call gave %v, want ErrGeneration", err)
			}
			now := kit.Must(s.Generation(t.Context(), true))
			snapshot, err := s.Observe(t.Context(), now, "", 0, nil)
			if err != nil || now == gen || snapshot.Quarantine <= 0 || len(snapshot.Sessions) > 0 {
				t.Errorf("generation %q after %q, %+v, %v, want a quarantine and no session", now, gen, snapshot, err)
			}
			again := kit.Must(s.Register(t.Context(), now, session, time.Minute, []records.Holding{{Partition: 1, Epoch: record.Epoch}}))[0].Record
			if again.Epoch <= record.Epoch || again.Owner != "a" {
				t.Errorf("the lost record %v was re-asserted as %v", record, again)
			}
			if last := kit.Must(other.Generation(t.Context(), true)); last != now {
				t.Errorf("another generation has begun: %q after %q", last, now)
			}
		})
	}
}

func TestTLSAndUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := kit.Must(certs.NewCA(dir, "ca"))
	cert, key, err := ca.Issue(dir, "server", certs.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	server := startMembers(t, 1, func(c *embed.Config) {
		c.BcryptCost = 4 // a login is slow enough under the race detector
		c.ClientTLSInfo = transport.TLSInfo{CertFile: cert, KeyFile: key}
		c.ListenClientUrls[0].Scheme, c.AdvertiseClientUrls[0].Scheme = "https", "https"
	})[0]
	at := server.config.ListenClientUrls[0].Host
	query := "?ca=" + ca.File
	tls := kit.Must(transport.TLSInfo{TrustedCAFile: ca.File}.ClientConfig())
	raw := kit.Must(clientv3.New(clientv3.Config{Endpoints: []string{"https://" + at}, TLS: tls, Logger: zap.NewNop()}))
	t.Cleanup(func() { raw.Close() })
	kit.Must(openStore(t, "etcds://"+at+query).Generation(t.Context(), true))

	kit.Must(raw.UserAdd(t.Context(), "root", "s3cret"))
	kit.Must(raw.UserGrantRole(t.Context(), "root", "root"))
	kit.Must(raw.UserAdd(t.Context(), "other", "s3cret"))
	kit.Must(raw.AuthEnable(t.Context()))
	kit.Must(openStore(t, "etcds://root:s3cret@"+at+query).Generation(t.Context(), true))
	for user, want := range map[string]string{"root:wr0ng@": "user and password", "other:s3cret@": "grant the user", "": "user and password"} {
		_, err := openStore(t, "etcds://"+user+at+query).Generation(t.Context(), true)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("as %q: %v, want %q", user, err, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := openStore(t, "etcd://"+at).Generation(ctx, true); err == nil || !strings.Contains(err.Error(), "etcds://") {
		t.Errorf("without TLS: %v", err)
	}
}

// started returns how many requests of each kind etcd's servers in this process have got.
func started(t *testing.T) map[string]float64 {
	t.Helper()
	counts := map[string]float64{}
	for _, family := range kit.Must(prometheus.DefaultGatherer.Gather()) {
		if family.GetName() != "grpc_server_started_total" {
			continue
		}
		for _, m := range family.Metric {
			for _, l := range m.Label {
				if l.GetName() == "grpc_method" {
					counts[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return counts
}

// A session is renewed with two requests, and not when it is over. A look that finds nothing new takes one, and adds
// nothing to etcd's log.
func TestRequestsOfAnIdleWorker(t *testing.T) { // alone, since it counts the requests of all servers
	members := startMembers(t, 1, nil)
	url := storeURL(members)
	s, other := openStore(t, url), openStore(t, url)
	gen := kit.Must(s.Generation(t.Context(), true))
	kit.Must(s.Register(t.Context(), gen, records.Session{Incarnation: "a"}, time.Minute, nil))
	version := int64(0)
	work := func() {
		kit.Must(s.Renew(t.Context(), gen, "a", time.Minute))
		version = kit.Must(s.Observe(t.Context(), gen, "a", version, nil)).Version
	}
	work()
	before, entries := started(t), members[0].server.Server.AppliedIndex()
	for range 5 {
		work()
	}
	if n := members[0].server.Server.AppliedIndex() - entries; n != 5 {
		t.Errorf("five renewals and looks added %d entries to etcd's log, want 5", n)
	}
	want := map[string]float64{"Txn": 10, "LeaseKeepAlive": 5}
	for method, n := range started(t) {
		if n-before[method] != want[method] {
			t.Errorf("five renewals and looks took %v requests %s, want %v", n-before[method], method, want[method])
		}
	}
	if err := other.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Renew(t.Context(), gen, "a", time.Minute); !errors.Is(err, records.ErrSessionGone) {
		t.Errorf("the renewal of a session that was released: %v", err)
	}
}

// Changes of partitions that a look has shown, or that the handle has written itself, take one request for each hundred. A
// partition that has changed meanwhile is read again, as are the sessions.
func TestRequestsOfChanges(t *testing.T) { // alone, since it counts the requests of all servers
	url := storeURL(startMembers(t, 1, nil))
	s, other := openStore(t, url), openStore(t, url)
	gen := kit.Must(s.Generation(t.Context(), true))
	for _, name := range []string{"a", "b"} {
		kit.Must(s.Register(t.Context(), gen, records.Session{Incarnation: name}, time.Minute, nil))
	}
	kit.Must(s.Observe(t.Context(), gen, "a", 0, nil))
	var from []records.Record
	apply := func(what string, op records.Op, n int, requests float64) (states []records.PartitionState) {
		t.Helper()
		var changes []records.Change
		for p := range n {
			changes = append(changes, records.Change{Op: op, Partition: p, From: from[p]})
		}
		before := started(t)["Txn"]
		states = kit.Must(s.Apply(t.Context(), gen, "a", changes))
		if got := started(t)["Txn"] - before; got != requests {
			t.Errorf("%s took %v requests, want %v", what, got, requests)
		}
		for p, state := range states {
			from[p] = state.Record
		}
		return states
	}
	from = make([]records.Record, 200)
	apply("claims", records.OpClaim, 200, 2)
	apply("changes of its own", records.OpAdvance, 200, 2)
	moved := kit.Must(other.Apply(t.Context(), gen, "a", []records.Change{{Op: records.OpMove, Partition: 1, From: from[1], To: "b"}}))[0].Record
	states := apply("changes beside another's", records.OpAdvance, 2, 2)
	if states[0].Record.Owner != "a" || states[1].Record != moved {
		t.Errorf("after another's move of the second partition: %+v", states)
	}
	before := started(t)["Txn"]
	if err := s.Release(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if got := started(t)["Txn"] - before; got != 2 {
		t.Errorf("the release of a session that a look has shown took %v requests, want 2", got)
	}
	if err := other.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), gen, "a", []records.Change{{Op: records.OpAdvance, Partition: 0, From: from[0]}}); !errors.Is(err, records.ErrSessionGone) {
		t.Errorf("a change without a session: %v", err)
	}
}
