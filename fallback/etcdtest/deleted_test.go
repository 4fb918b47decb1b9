package etcdtest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback/etcd"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
)

// Once each partition has a record, one without is not free: somebody has deleted it, and its owner may serve it still.
// The first call that would change it begins a generation, whether or not its caller knew the record. In the new
// generation the owner asserts its record, and partitions that nobody served can be claimed.
func TestTrapDeletedPartition(t *testing.T) {
	t.Parallel()
	server := startMembers(t, 1, nil)
	raw := rawClient(t, server[0])
	open := func() *etcd.Store {
		s := kit.Must(etcd.New(storeURL(server), store.Config{Settings: ring.Settings{TTL: shortTTL, Ring: ring.Config{Partitions: 2}}, NewCluster: true}))
		t.Cleanup(func() { s.Close() })
		return s
	}
	claim := func(s *etcd.Store, gen, incarnation string, from records.Record) (records.Record, error) {
		states, err := s.Apply(t.Context(), gen, incarnation, []records.Change{{Op: records.OpClaim, Partition: 1, From: from}})
		if err != nil {
			return records.Record{}, err
		}
		return states[0].Record, nil
	}
	owner, newcomer := open(), open()
	large := []records.Residue{{Key: strings.Repeat("k", 5000), Holder: "a", Token: 1}} // a handle does not keep it
	var record records.Record
	calls := map[string]func(gen string) error{
		"a claim of one that does not know the owner": func(gen string) error {
			kit.Must(newcomer.Register(t.Context(), gen, records.Session{Incarnation: "b"}, time.Minute, nil))
			kit.Must(newcomer.Observe(t.Context(), gen, "b", 0, nil))
			_, err := claim(newcomer, gen, "b", records.Record{})
			return err
		},
		"the owner's change": func(gen string) error { _, err := claim(owner, gen, "a", record); return err },
		"a clear": func(gen string) error {
			return owner.Clear(t.Context(), gen, 1, []records.Residue{{Key: "k", Holder: "a", Token: 1}})
		},
	}
	for name, call := range calls {
		gen := kit.Must(owner.Generation(t.Context(), true))
		held := []records.Holding{{Partition: 0, Epoch: record.Epoch + 1, Residue: large}, {Partition: 1, Epoch: record.Epoch + 1}}
		record = kit.Must(owner.Register(t.Context(), gen, records.Session{Incarnation: "a"}, time.Minute, held))[1].Record
		if record.Owner != "a" {
			t.Fatalf("the record %v was asserted before %s", record, name)
		}
		for range 2 { // the first look shows all
			kit.Must(owner.Observe(t.Context(), gen, "a", 0, nil))
		}
		kit.Must(raw.Delete(t.Context(), "{keyway:keyway}/partition/000001"))
		if err := call(gen); !errors.Is(err, records.ErrGeneration) {
			t.Errorf("%s after the record was deleted: %v, want ErrGeneration", name, err)
		}
		if next := kit.Must(owner.Generation(t.Context(), true)); next == gen || kit.Must(owner.Observe(t.Context(), next, "", 0, nil)).Quarantine == 0 {
			t.Errorf("%s begins no quarantine", name)
		}
	}
	gen := kit.Must(newcomer.Generation(t.Context(), true))
	kit.Must(newcomer.Register(t.Context(), gen, records.Session{Incarnation: "b"}, time.Minute, nil))
	kit.Eventually(t, "the quarantine is over", func() bool {
		return kit.Must(newcomer.Observe(t.Context(), gen, "b", 0, nil)).Quarantine == 0
	})
	if now, err := claim(newcomer, gen, "b", records.Record{}); err != nil || now.Owner != "b" {
		t.Errorf("a claim of a partition that has no record, after the quarantine: %v, %v", now, err)
	}
}

// A session is over when its lease is, or when somebody has deleted its details: it cannot be renewed, and its latest
// renewal remains the one before.
func TestTrapDeletedSession(t *testing.T) {
	t.Parallel()
	server := startMembers(t, 1, nil)
	raw := rawClient(t, server[0])
	s := openStore(t, storeURL(server))
	gen := kit.Must(s.Generation(t.Context(), true))
	for _, key := range []string{"alive/", "session/"} {
		incarnation := "without " + key
		kit.Must(s.Register(t.Context(), gen, records.Session{Incarnation: incarnation}, time.Minute, nil))
		kit.Must(raw.Delete(t.Context(), "{keyway:keyway}/"+key+incarnation))
		before := kit.Must(raw.Get(t.Context(), "{keyway:keyway}/session/"+incarnation)).Kvs
		if _, err := s.Renew(t.Context(), gen, incarnation, time.Minute); !errors.Is(err, records.ErrSessionGone) || s.Trouble() != nil {
			t.Errorf("the renewal of a session %s gave %v, want ErrSessionGone; trouble: %v", incarnation, err, s.Trouble())
		}
		after := kit.Must(raw.Get(t.Context(), "{keyway:keyway}/session/"+incarnation)).Kvs
		if len(after) != len(before) || len(after) > 0 && after[0].ModRevision != before[0].ModRevision {
			t.Errorf("the session %s was renewed: %v before, %v after", incarnation, before, after)
		}
	}
}
