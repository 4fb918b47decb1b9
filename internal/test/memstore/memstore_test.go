package memstore_test

import (
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/memstore"
)

type rollback struct {
	*testing.T
	store *memstore.Store
	gen   string
}

func newRollback(t *testing.T) *rollback {
	t.Helper()
	m := &rollback{T: t}
	m.store = memstore.New(memstore.Config{NewCluster: true, Clock: func() time.Time { return time.Unix(1_800_000_000, 0) }})
	m.refresh()
	return m
}

func (m *rollback) refresh() {
	m.Helper()
	var err error
	if m.gen, err = m.store.Generation(m.Context()); err != nil {
		m.Fatal(err)
	}
}

func (m *rollback) register(holdings ...records.Holding) []records.PartitionState {
	m.Helper()
	states, err := m.store.Register(m.Context(), m.gen, records.Session{Incarnation: "a"}, 10*time.Second, holdings)
	if err != nil {
		m.Fatal(err)
	}
	return states
}

func (m *rollback) observe() records.Snapshot {
	m.Helper()
	s, err := m.store.Observe(m.Context(), m.gen, "", 0, nil)
	if err != nil {
		m.Fatal(err)
	}
	return s
}

// A failover that lost writes brings back what was there before them.
func TestRollback(t *testing.T) {
	m := newRollback(t)
	first := m.register(records.Holding{Partition: 1, Epoch: 1})[0].Record
	backup := m.store.Backup()
	entry := records.Residue{Key: "k", Holder: "a", Token: 1}
	m.register(records.Holding{Partition: 1, Epoch: first.Epoch, Residue: []records.Residue{entry}})
	for range 2 { // a backup stays as it was
		m.store.Restart(backup)
		m.refresh()
		s := m.observe()
		if len(s.Sessions) > 0 || len(s.Partitions) != 1 || s.Partitions[0].Record != first || len(s.Partitions[0].Residue) > 0 {
			t.Errorf("after the rollback got %+v, want record %v alone", s, first)
		}
		m.register(records.Holding{Partition: 1, Epoch: first.Epoch, Residue: []records.Residue{entry}})
	}
}
