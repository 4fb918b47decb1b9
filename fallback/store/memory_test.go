package store

import (
	"testing"

	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/handoff"
)

type memoryTest struct {
	*testing.T
	clock *fakeClock
	store *Memory
	gen   string
}

func newMemoryTest(t *testing.T) *memoryTest {
	t.Helper()
	m := &memoryTest{T: t, clock: newFakeClock()}
	m.store = NewMemory(MemoryConfig{NewCluster: true, Clock: m.clock.now})
	m.refresh()
	return m
}

func (m *memoryTest) refresh() {
	m.Helper()
	var err error
	if m.gen, err = m.store.Generation(m.Context()); err != nil {
		m.Fatal(err)
	}
}

func (m *memoryTest) register(holdings ...handoff.Holding) []handoff.PartitionState {
	m.Helper()
	states, err := m.store.Register(m.Context(), m.gen, handoff.Session{Incarnation: "a"}, ring.DefaultSessionTTL, holdings)
	if err != nil {
		m.Fatal(err)
	}
	return states
}

func (m *memoryTest) observe() handoff.Snapshot {
	m.Helper()
	s, err := m.store.Observe(m.Context(), m.gen, "", 0)
	if err != nil {
		m.Fatal(err)
	}
	return s
}

// A failover that lost writes brings back what was there before them.
func TestMemoryRollback(t *testing.T) {
	m := newMemoryTest(t)
	first := m.register(handoff.Holding{Partition: 1, Epoch: 1})[0].Record
	backup := m.store.Backup()
	entry := handoff.Residue{Key: "k", Holder: "a", Token: 1}
	m.register(handoff.Holding{Partition: 1, Epoch: first.Epoch, Residue: []handoff.Residue{entry}})
	for range 2 { // a backup stays as it was
		m.store.Restart(backup)
		m.refresh()
		s := m.observe()
		if len(s.Sessions) > 0 || len(s.Partitions) != 1 || s.Partitions[0].Record != first || len(s.Partitions[0].Residue) > 0 {
			t.Errorf("after the rollback got %+v, want record %v alone", s, first)
		}
		m.register(handoff.Holding{Partition: 1, Epoch: first.Epoch, Residue: []handoff.Residue{entry}})
	}
}
