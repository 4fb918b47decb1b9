package handoff

import (
	"github.com/keyway-go/keyway/internal/records"
	"slices"
	"testing"
	"time"
)

// absent returns a machine that serves partition 0, in which k still runs at
// an incarnation that it has never seen, and the instant of its first look.
func absent(t *testing.T) (*Machine, *modelStore, Instant) {
	t.Helper()
	m := testMachine(t, Config{Partitions: 1, NewCluster: true})
	s := newModelStore(1, m.cfg.TTL)
	s.generation = "g0"
	s.parts[0] = modelPartition{record: records.Record{Epoch: 4, Owner: "me"}, residue: []records.Residue{{Key: "k", Holder: "old", Token: 7}}, version: 1}
	s.version = 1
	now := Instant{Mono: time.Second, Wall: time.Hour}
	feed(m, s, now, all(m, "me"))
	if m.parts[0].state != stateServing {
		t.Fatalf("partition 0 is %v", m.parts[0].state)
	}
	return m, s, now
}

// TestAbsentPeerMayStillRegister keeps a key blocked for a holder that
// registered after the last look, while no look succeeds.
func TestAbsentPeerMayStillRegister(t *testing.T) {
	m, s, now := absent(t)
	register(t, s, now, "old")
	var observe uint64
	for range 3 * 50 {
		now = now.Add(m.cfg.TTL / 50)
		for _, e := range m.Step(now, Tick{}) {
			switch e := e.(type) {
			case Unblock:
				t.Fatalf("unblocks %s %v after the look, though its holder lives", e.Key, now.Mono-time.Second)
			case Observe:
				observe = e.ID // gets no answer for now
			case Renew:
				m.Step(now, s.call(now.Mono, e))
			}
		}
		if now.Mono < 2*m.cfg.TTL {
			_ = s.renew(now.Mono, Renew{Call{Generation: "g0", Incarnation: "old"}})
		}
	}
	if observe == 0 {
		t.Error("never looks")
	}
}

// TestAbsentPeerIsDeadInTime unblocks the keys of one that never came, by a close
// look at the very moment, however seldom the machine looks otherwise.
func TestAbsentPeerIsDeadInTime(t *testing.T) {
	m, s, now := absent(t)
	began := now
	m.pollEvery = time.Hour
	for {
		now = now.Add(max(m.Next(now), time.Millisecond))
		var out []Effect
		closely := false
		for _, e := range m.Step(now, Tick{}) {
			if o, ok := e.(Observe); ok {
				closely = slices.Contains(o.Suspects, "old")
			}
			out = append(out, feed(m, s, now, s.call(now.Mono, e))...)
		}
		if slices.Contains(out, Effect(Unblock{0, "k"})) {
			if !closely {
				t.Error("unblocked by a look that is not close")
			}
			break
		}
		if now.Mono-began.Mono > 3*m.cfg.TTL {
			t.Fatal("the key stays blocked")
		}
	}
	if d := now.Mono - began.Mono; d != m.cfg.TTL {
		t.Errorf("unblocked after %v", d)
	}
}

// TestMissingWithoutAStamp waits for a TTL from when a session is missing of which the store
// does not tell the latest renewal.
func TestMissingWithoutAStamp(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 1, NewCluster: true})
	register(t, s, now, "other")
	s.write(now.Mono, 0, records.Record{Epoch: 3, Owner: "other"})
	feed(m, s, now, Changed{})
	feed(m, s, now, all(m, "me"))
	for range 10 {
		now = now.Add(m.cfg.TTL / 20)
		feed(m, s, now, Tick{})
	}
	s.end(func(session modelSession) bool { return session.Incarnation == "other" })
	s.gone = nil
	feed(m, s, now, Changed{})
	noticed := now
	for m.parts[0].state != stateServing {
		if now = now.Add(max(m.Next(now), time.Millisecond)); now.Mono-noticed.Mono > 3*m.cfg.TTL {
			t.Fatal("never claims")
		}
		feed(m, s, now, Tick{})
	}
	if d := now.Mono - noticed.Mono; d < m.cfg.TTL {
		t.Errorf("claims after %v", d)
	}
}

func register(t *testing.T, s *modelStore, now Instant, inc string) {
	t.Helper()
	if r := s.call(now.Mono, Register{Call: Call{Generation: s.generation}, Session: records.Session{Incarnation: inc}}); r.Err != nil {
		t.Fatal(r.Err)
	}
}

// TestRenewalsCountAsLooks looks once between two renewals, which show that nothing has changed.
func TestRenewalsCountAsLooks(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 1, NewCluster: true})
	feed(m, s, now, all(m, "me"))
	var looks, renewals int
	for end := now.Add(10 * m.cfg.TTL); now.Mono < end.Mono; {
		now = now.Add(max(m.Next(now), time.Microsecond))
		for _, e := range m.Step(now, Tick{}) {
			switch e.(type) {
			case Observe:
				looks++
			case Renew:
				renewals++
			}
			feed(m, s, now, s.call(now.Mono, e))
		}
	}
	if renewals != 50 || looks < 49 || looks > 51 {
		t.Errorf("%d looks and %d renewals in 10 TTL, want 50 and 50", looks, renewals)
	}
}

// TestARenewalProvesNoDeath takes no holder for dead while all close looks fail.
func TestARenewalProvesNoDeath(t *testing.T) {
	m, s, now := absent(t)
	failing(m, s, now, 2*m.cfg.TTL)
	if m.asked >= m.peers["old"].deadAt || m.dead("old") {
		t.Error("a holder is dead without a close look")
	}
}

// TestALateRenewalIsNoLook learns nothing from a renewal that the store made before the latest look.
func TestALateRenewalIsNoLook(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 1, NewCluster: true})
	register(t, s, now, "other")
	feed(m, s, now, all(m, "me"))
	feed(m, s, now, Changed{})
	now = now.Add(m.renewEvery)
	var late Reply
	for _, e := range m.Step(now, Tick{}) {
		switch e := e.(type) {
		case Renew:
			late = s.call(now.Mono, e)
		case Observe:
			_ = s.renew(now.Mono, Renew{Call{Generation: "g0", Incarnation: "other"}})
			m.Step(now, s.call(now.Mono, e))
		}
	}
	looked := m.snapshot.Beat
	if late.ID == 0 || looked <= late.Snapshot.Beat {
		t.Fatalf("renewal %+v, look at beat %d", late, looked)
	}
	m.Step(now, late)
	if m.snapshot.Beat != looked {
		t.Errorf("the latest snapshot is of beat %d, was of %d", m.snapshot.Beat, looked)
	}
}

// TestAHintDuringALook looks again, since the look under way may have read what was before the hint.
func TestAHintDuringALook(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 1, NewCluster: true})
	feed(m, s, now, all(m, "me"))
	look := m.Step(now, Changed{})
	late, before := s.call(now.Mono, look[0]), s.clone()
	s.addResidue(0, records.Residue{Key: "k", Holder: "other", Token: 1})
	h := s.hint(before)
	if m.Step(now, Hinted{h}); len(h.Partitions) != 1 || m.Knows(h) {
		t.Errorf("the machine knows all that has changed by %+v", h)
	}
	if m.Step(now, late); m.Knows(h) {
		t.Error("the machine knows what its look has not shown")
	}
	feed(m, s, now, Changed{})
	if !m.Knows(h) {
		t.Error("the machine does not know what the next look has shown")
	}
	before = s.clone()
	s.dropResidue(0, func(records.Residue) bool { return true })
	h = s.hint(before)
	if m.Step(now, Hinted{h}); !m.Knows(h) {
		t.Errorf("the machine does not know what has changed by %+v", h)
	}
}
