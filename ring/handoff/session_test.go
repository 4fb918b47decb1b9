package handoff

import (
	"slices"
	"testing"
	"time"
)

// TestEveryLeaseCancels sees that handlers are cancelled at the deadline of a
// lease, also if those of an earlier lease were, before it was renewed after all.
func TestEveryLeaseCancels(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 1, NewCluster: true})
	feed(m, s, now, all(m, "me"))
	for round := range 3 {
		lease := m.Lease()
		for m.Lease() == lease {
			now = now.Add(max(m.Next(now), time.Millisecond))
			late := lease.Cancel.Passed(now)
			cancelled := false
			queue := m.Step(now, Tick{})
			for len(queue) > 0 {
				e := queue[0]
				queue = queue[1:]
				cancelled = cancelled || e == Effect(CancelHandlers{All: true})
				if id := callID(e); id != 0 {
					r := s.call(now.Mono, e)
					if _, renews := e.(Renew); renews && !late {
						r = Reply{ID: id, Err: errUnknown}
					}
					queue = append(queue, m.Step(now, r)...)
				}
			}
			if late && !cancelled {
				t.Fatalf("lease %d passed its deadline, and no handler was cancelled", round)
			}
			if m.Phase() != PhaseLive {
				t.Fatalf("machine is %v", m.Phase())
			}
		}
	}
}

// TestTheLeaseRunsFromBeforeItsRegistration is slow to be answered.
func TestTheLeaseRunsFromBeforeItsRegistration(t *testing.T) {
	m := testMachine(t, Config{Partitions: 1})
	s := newModelStore(1, m.cfg.TTL)
	s.generation = "g0"
	sent := Instant{Mono: time.Second, Wall: time.Hour}
	var call Effect
	for queue := m.Step(sent, Tick{}); len(queue) > 0; {
		e := queue[0]
		queue = queue[1:]
		if _, registers := e.(Register); registers {
			call = e
			break
		}
		queue = append(queue, m.Step(sent, s.call(sent.Mono, e))...)
	}
	if call == nil {
		t.Fatal("does not register")
	}
	effects := m.Step(sent.Add(m.cfg.TTL/10), s.call(sent.Mono, call))
	if want := NewLease(sent, m.cfg.TTL); m.Lease() != want || !slices.Contains(effects, Effect(LeaseChanged{want})) {
		t.Errorf("lease %v, want %v", m.Lease(), want)
	}
}
