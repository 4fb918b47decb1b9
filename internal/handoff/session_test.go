package handoff

import (
	"slices"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/records"
)

// TestEveryLeaseCancels sees that handlers are cancelled at the deadline of a
// lease, also if those of an earlier lease were, before it was renewed after all.
func TestEveryLeaseCancels(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 1, NewCluster: true})
	feed(m, s, now, all(m, "me"))
	for round := range 3 {
		lease, cancelled := m.lease, false
		for m.lease == lease {
			now = now.Add(max(m.Next(now), time.Millisecond))
			late := lease.Cancel.Passed(now)
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
			if m.phase != phaseLive {
				t.Fatalf("machine is %v", m.phase)
			}
		}
		if !cancelled {
			t.Fatalf("lease %d passed its deadline, and no handler was cancelled", round)
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
	if want := lease.New(sent, m.cfg.TTL); m.lease != want || !slices.Contains(effects, Effect(LeaseChanged{want})) {
		t.Errorf("lease %v, want %v", m.lease, want)
	}
}

// TestGoneFromASnapshot sees that a worker whose clocks both stood still, and
// whose lease looks valid therefore, is lost by the first look that does not
// show its session.
func TestGoneFromASnapshot(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 1, NewCluster: true})
	feed(m, s, now, all(m, "me"))
	s.end(func(modelSession) bool { return true })
	now = now.Add(m.Next(now))
	if m.renew.next <= now.Mono {
		t.Fatal("a renewal is due before the look")
	}
	effects := feed(m, s, now, Tick{})
	if m.phase != phaseReleasing && m.phase != phaseReleased || !slices.Contains(effects, Effect(Lost{records.ErrSessionGone})) {
		t.Errorf("machine is %v after %v", m.phase, effects)
	}
}

// TestJumpRenewsAtOnce lets more time pass in the store than at the worker: a
// look at it then renews the session, which ends sooner than the lease tells.
func TestJumpRenewsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		jump time.Duration // beyond what a poll allows
		want int           // renewals
	}{
		"together": {-200 * time.Millisecond, 0},
		"drift":    {0, 0},
		"ahead":    {time.Millisecond, 1},
		"far":      {5 * time.Second, 1},
		"behind":   {-time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m, s, now := live(t, Config{Partitions: 1})
			now = now.Add(m.Next(now))
			ahead := m.drift + c.jump
			if got := renewals(m, s, now, ahead, m.Step(now, Tick{})); got != c.want {
				t.Errorf("%d renewals by the look after the jump, want %d", got, c.want)
			}
			now = now.Add(m.Next(now))
			regular := 1 - c.want // which is due before the next look, unless there was one
			if got := renewals(m, s, now, ahead, m.Step(now, Tick{})); got != regular {
				t.Errorf("%d renewals by the next look, want %d", got, regular)
			}
		})
	}
}

// TestJumpDuringARenewal renews once more when the renewal that may be of
// before the jump has been answered.
func TestJumpDuringARenewal(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 1})
	now.Mono, now.Wall = m.renew.next, now.Wall+m.renew.next-now.Mono
	var renewal Effect
	var rest []Effect
	for _, e := range m.Step(now, Tick{}) {
		if _, ok := e.(Renew); ok {
			renewal = e
		} else {
			rest = append(rest, e)
		}
	}
	if renewal == nil {
		t.Fatal("does not renew when that is due")
	}
	if got := renewals(m, s, now, 5*time.Second, rest); got != 0 {
		t.Fatalf("%d renewals beside one that is under way", got)
	}
	if got := renewals(m, s, now, 5*time.Second, []Effect{renewal}); got != 2 {
		t.Errorf("%d renewals, want the one under way and one more", got)
	}
}

// renewals carries calls out in a store whose clock is ahead, and counts the
// renewals among them and among those that come of them.
func renewals(m *Machine, s *modelStore, now Instant, ahead time.Duration, queue []Effect) (n int) {
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		if _, ok := e.(Renew); ok {
			n++
		}
		if callID(e) != 0 {
			queue = append(queue, m.Step(now, s.call(now.Mono+ahead, e))...)
		}
	}
	return n
}
