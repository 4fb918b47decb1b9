package handoff

import (
	"github.com/keyway-go/keyway/internal/records"
	"testing"
	"time"
)

// failing steps a machine for d with a store that answers renewals, and
// whose reads fail at once. It returns how many reads there were.
func failing(m *Machine, s *modelStore, now Instant, d time.Duration) (reads int) {
	for end := now.Add(d); now.Mono < end.Mono && reads < 10000; {
		queue := m.Step(now, Tick{})
		for len(queue) > 0 && reads < 10000 {
			e := queue[0]
			queue = queue[1:]
			r := Reply{ID: callID(e), Err: errUnknown}
			switch e := e.(type) {
			case Renew:
				r = s.call(now.Mono, e)
			case Observe:
				reads++
			}
			if r.ID != 0 {
				queue = append(queue, m.Step(now, r)...)
			}
		}
		now = now.Add(max(m.Next(now), 50*time.Microsecond))
	}
	return reads
}

// TestReadsThatFailAreSpaced keeps a machine whose reads fail at once from
// repeating them without a pause, also while a look at a silent peer is due.
func TestReadsThatFailAreSpaced(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 1, NewCluster: true})
	register(t, s, now, "other")
	feed(m, s, now, Changed{})
	reads := failing(m, s, now, 10*m.cfg.TTL)
	if reads < 10 || reads > 10*20+5 {
		t.Errorf("%d reads in 10 TTL", reads)
	}
}

// TestALookIsNotDelayedByOnesThatFailed claims from a dead owner as soon as a
// TTL has passed, though reads failed until just before that.
func TestALookIsNotDelayedByOnesThatFailed(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 1, NewCluster: true})
	m.pollEvery = 7 * m.cfg.TTL / 100 // so that failures fall between the moments that count
	m.observe.next = now.Mono + m.pollEvery
	register(t, s, now, "other")
	s.write(now.Mono, 0, records.Record{Epoch: 3, Owner: "other"})
	feed(m, s, now, Changed{})
	feed(m, s, now, all(m, "me"))
	began := now.Mono
	broken := true
	for m.parts[0].state != stateServing {
		now = now.Add(max(m.Next(now), time.Microsecond))
		if now.Mono-began > 3*m.cfg.TTL {
			t.Fatal("never claims")
		}
		d := now.Mono - began
		broken = d > m.cfg.TTL*10/100 && d < m.cfg.TTL
		queue := m.Step(now, Tick{})
		for len(queue) > 0 {
			e := queue[0]
			queue = queue[1:]
			if id := callID(e); id != 0 {
				r := s.call(now.Mono, e)
				if _, reads := e.(Observe); reads && broken {
					r = Reply{ID: id, Err: errUnknown}
				}
				queue = append(queue, m.Step(now, r)...)
			}
		}
	}
	if d := now.Mono - began; d != m.cfg.TTL {
		t.Errorf("claims after %v", d)
	}
}

// TestAWaitForAChangeIsNoSpin keeps a machine, while the answer to a change is
// on its way, from asking for one step after the other once a moment has passed
// at which partitions are to be looked at again.
func TestAWaitForAChangeIsNoSpin(t *testing.T) {
	m := testMachine(t, Config{Partitions: 2, NewCluster: true})
	s := newModelStore(2, m.cfg.TTL)
	s.generation = "g0"
	s.parts[0] = modelPartition{record: records.Record{Epoch: 4, Owner: "me"}, residue: []records.Residue{{Key: "k", Holder: "old", Token: 7}}, version: 1} // until old is dead, a TTL from now
	s.version = 1
	now := Instant{Mono: time.Second, Wall: time.Hour}
	queue := m.Step(now, all(m, "me"))
	applies, steps := 0, 0
	for end := now.Add(2 * m.cfg.TTL); now.Mono < end.Mono; steps++ {
		for len(queue) > 0 {
			e := queue[0]
			queue = queue[1:]
			if _, ok := e.(Apply); ok {
				applies++ // and is not answered
			} else if callID(e) != 0 {
				queue = append(queue, m.Step(now, s.call(now.Mono, e))...)
			}
		}
		if steps == 1000 {
			t.Fatalf("%d steps in %v", steps, now.Mono-time.Second)
		}
		now = now.Add(m.Next(now))
		queue = m.Step(now, Tick{})
	}
	if applies != 1 {
		t.Errorf("%d changes were sent, want one: partition 1 is free", applies)
	}
}
