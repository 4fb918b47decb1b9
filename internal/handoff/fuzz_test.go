package handoff

import (
	"github.com/keyway-go/keyway/internal/records"
	"testing"
	"time"
)

// FuzzStep feeds a machine what no sane world would: it must not panic, its
// states must stay in the tables (which setState and setPhase check), and it
// must never want to be stepped again at once.
func FuzzStep(f *testing.F) {
	f.Add([]byte{0, 0, 1, 9, 1, 1, 2, 0, 3, 0, 4, 1, 9, 9, 5, 2, 6, 0, 7, 1, 8, 0})
	f.Add([]byte("a store that answers in riddles"))
	f.Fuzz(func(t *testing.T, data []byte) {
		z := fuzzer{data: data, m: testMachine(t, Config{Partitions: 3, Batch: 2, NewCluster: len(data)%2 == 0}), now: Instant{Wall: time.Hour}}
		for len(z.data) > 0 {
			z.step()
		}
		z.m.Step(z.now, Tick{})
		if z.m.Next(z.now) == 0 && z.m.in[stateClosing] == 0 {
			if es := z.m.Step(z.now, Tick{}); len(es) == 0 && z.m.Next(z.now) == 0 {
				t.Errorf("a %v machine wants to be stepped for ever", z.m.phase)
			}
		}
		serving := 0
		for p := range z.m.parts {
			if z.m.parts[p].state == stateServing {
				serving++
			}
		}
		if serving != z.m.in[stateServing] {
			t.Errorf("counts %d partitions, serves %d", z.m.in[stateServing], serving)
		}
	})
}

// fuzzer makes inputs of bytes.
type fuzzer struct {
	data []byte
	m    *Machine
	now  Instant
}

func (z *fuzzer) byte() byte {
	if len(z.data) == 0 {
		return 0
	}
	b := z.data[0]
	z.data = z.data[1:]
	return b
}

func (z *fuzzer) int(n int) int { return int(z.byte()) % n }

func (z *fuzzer) name() string { return []string{"me", "you", "she", ""}[z.int(4)] }

func (z *fuzzer) err() error {
	return []error{nil, nil, nil, errUnknown, records.ErrGeneration, records.ErrSessionGone}[z.int(6)]
}

func (z *fuzzer) step() {
	d := time.Duration(z.int(8)) * 400 * time.Millisecond
	z.now.Mono += d
	z.now.Wall += d + time.Duration(z.int(8)-6)/2*time.Second
	z.m.Step(z.now, z.input())
}

func (z *fuzzer) input() Input {
	switch z.int(12) {
	case 0:
		return View{
			Digest:  uint64(z.int(3)),
			Workers: []Peer{{z.name(), uint64(z.int(3))}, {z.name(), uint64(z.int(3))}},
			Owners:  []int32{int32(z.int(4)) - 1, int32(z.int(4)) - 1, int32(z.int(4)) - 1}[:2+z.int(2)],
		}
	case 1:
		return Changed{}
	case 2:
		return Closed{Partition: z.int(5) - 1, Running: []Execution{{Key: z.name(), Token: int64(z.byte())}}}
	case 3:
		return Finished{Partition: z.int(5) - 1, Key: z.name(), Token: int64(z.byte())}
	case 4:
		return SequenceLow{Partition: z.int(5) - 1}
	case 5:
		if z.int(8) == 0 {
			return Leave{Now: z.int(2) == 0}
		}
		return Tick{}
	case 6:
		return Write{Partition: z.int(5) - 1, Locks: []records.WrittenLock{{ID: z.name(), Text: z.name()}}}
	case 8:
		return Hinted{records.Hint{Generation: []string{"g0", "g1"}[z.int(2)], Version: z.m.snapshot.Version + int64(z.int(3)), Partitions: []records.PartitionState{z.state()}}}
	case 7:
		return Awaited{Partition: z.int(5) - 1}
	}
	return z.reply()
}

func (z *fuzzer) reply() Reply {
	calls := []*storeCall{&z.m.fetch, &z.m.register, &z.m.renew, &z.m.observe, &z.m.apply, &z.m.clear, &z.m.writeLocks, &z.m.release}
	r := Reply{ID: calls[z.int(len(calls))].id, Err: z.err(), Generation: []string{"g0", "g1"}[z.int(2)]}
	if len(z.m.writing) > 0 && z.int(2) == 0 {
		r.Wrote = []records.WriteNumber{z.m.writing[0].Number}
	}
	for range z.int(3) {
		r.States = append(r.States, z.state())
	}
	r.Snapshot = records.Snapshot{Generation: r.Generation, Quarantine: time.Duration(z.int(2)), Version: int64(z.byte()), Released: []string{z.name()}}
	for range z.int(3) {
		r.Snapshot.Sessions = append(r.Snapshot.Sessions, records.SessionState{Session: records.Session{Incarnation: z.name()}})
		r.Snapshot.Gone = append(r.Snapshot.Gone, records.Stamp{Incarnation: z.name(), Beat: int64(z.int(4))})
		r.Snapshot.Stamps = append(r.Snapshot.Stamps, records.Stamp{Incarnation: z.name(), Beat: int64(z.int(4))})
	}
	r.Snapshot.Beat = int64(z.int(4))
	for range z.int(3) {
		r.Snapshot.Partitions = append(r.Snapshot.Partitions, z.state())
	}
	return r
}

func (z *fuzzer) state() records.PartitionState {
	s := records.PartitionState{Partition: z.int(5) - 1, Record: records.Record{Epoch: int64(z.int(6)), Owner: z.name()}}
	for range z.int(2) {
		s.Residue = append(s.Residue, records.Residue{Key: z.name(), Holder: z.name(), Token: int64(z.byte())})
	}
	return s
}
