package handoff

import (
	"testing"
	"time"
)

// TestOutlook compares for how long a partition is said to have to wait with how
// long it does.
func TestOutlook(t *testing.T) {
	const ttl = 10 * time.Second
	other := modelSession{SessionState: SessionState{Session: Session{Incarnation: "other"}}, expires: time.Second + ttl}
	for _, tc := range []struct {
		name    string
		new     bool // the cluster
		prepare func(s *modelStore)
		record  Record
		because Obstacle
		atLeast time.Duration
	}{
		{"the members changed", true, func(*modelStore) {}, Record{}, ObstacleSettle, 300 * time.Millisecond},
		{"an unknown store", false, func(*modelStore) {}, Record{}, ObstacleQuarantine, ttl},
		{"the store's own quarantine", true, func(s *modelStore) { s.quarantine = 3 * time.Second }, Record{}, ObstacleQuarantine, 2 * time.Second},
		{"an owner without a session", true, func(s *modelStore) { s.write(0, 0, Record{7, "other"}) }, Record{7, "other"}, ObstacleOwner, ttl},
		{"an owner whose session ends", true, func(s *modelStore) {
			s.write(0, 0, Record{7, "other"})
			s.sessions = append(s.sessions, other)
		}, Record{7, "other"}, ObstacleOwner, ttl},
		{"an owner who has left", false, func(s *modelStore) {
			s.write(0, 0, Record{7, "other"})
			s.released = append(s.released, "other")
		}, Record{7, "other"}, ObstacleNone, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := testMachine(t, Config{Partitions: 1, NewCluster: tc.new, TTL: ttl})
			s := newModelStore(1, ttl)
			s.generation = "g0"
			tc.prepare(s)
			now := Instant{Mono: time.Second, Wall: time.Hour}
			if _, because := m.Outlook().Claimable(Record{}, now.Mono); because != ObstacleSession {
				t.Errorf("before it has a session: %d", because)
			}
			feed(m, s, now, Tick{})
			feed(m, s, now, all(m, "me"))
			outlook := m.Outlook()
			wait, because := outlook.Claimable(tc.record, now.Mono)
			if because != tc.because || wait < tc.atLeast {
				t.Fatalf("waits %v because of %d, want %v because of %d", wait, because, tc.atLeast, tc.because)
			}
			if !outlook.Same(m.Outlook()) {
				t.Error("an outlook is not the same as itself")
			}
			began := now
			for m.serving == 0 {
				if now = now.Add(max(m.Next(now), time.Millisecond)); now.Mono > began.Mono+3*ttl {
					t.Fatal("never served")
				}
				feed(m, s, now, Tick{})
			}
			if took := now.Mono - began.Mono; took < wait || took > wait+ttl/50 {
				t.Errorf("served after %v, said to wait for %v", took, wait)
			}
			if outlook.Same(m.Outlook()) && tc.because == ObstacleOwner {
				t.Error("nothing has changed")
			}
		})
	}
}
