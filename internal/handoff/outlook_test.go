package handoff

import (
	"github.com/keyway-go/keyway/internal/records"
	"reflect"
	"testing"
	"time"
)

// TestOutlook compares for how long a partition is said to have to wait with how
// long it does.
func TestOutlook(t *testing.T) {
	const ttl = 10 * time.Second
	other := modelSession{SessionState: records.SessionState{Session: records.Session{Incarnation: "other"}}, expires: time.Second + ttl}
	for _, tc := range []struct {
		name    string
		new     bool // the cluster
		prepare func(s *modelStore)
		record  records.Record
		because Obstacle
		atLeast time.Duration
	}{
		{"the members changed", true, func(*modelStore) {}, records.Record{}, ObstacleSettle, 300 * time.Millisecond},
		{"an unknown store", false, func(*modelStore) {}, records.Record{}, ObstacleQuarantine, ttl},
		{"the store's own quarantine", true, func(s *modelStore) { s.quarantine = 3 * time.Second }, records.Record{}, ObstacleQuarantine, 2 * time.Second},
		{"an owner without a session", true, func(s *modelStore) { s.write(0, 0, records.Record{Epoch: 7, Owner: "other"}) }, records.Record{Epoch: 7, Owner: "other"}, ObstacleOwner, ttl},
		{"an owner whose session ends", true, func(s *modelStore) {
			s.write(0, 0, records.Record{Epoch: 7, Owner: "other"})
			s.sessions = append(s.sessions, other)
		}, records.Record{Epoch: 7, Owner: "other"}, ObstacleOwner, ttl},
		{"an owner who has left", false, func(s *modelStore) {
			s.write(0, 0, records.Record{Epoch: 7, Owner: "other"})
			s.released = append(s.released, "other")
		}, records.Record{Epoch: 7, Owner: "other"}, ObstacleNone, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := testMachine(t, Config{Partitions: 1, NewCluster: tc.new, TTL: ttl})
			s := newModelStore(1, ttl)
			s.generation = "g0"
			tc.prepare(s)
			now := Instant{Mono: time.Second, Wall: time.Hour}
			if _, because := m.Outlook().Claimable(records.Record{}, now.Mono); because != ObstacleSession {
				t.Errorf("before it has a session: %d", because)
			}
			feed(m, s, now, Tick{})
			feed(m, s, now, all(m, "me"))
			outlook := m.Outlook()
			wait, because := outlook.Claimable(tc.record, now.Mono)
			if because != tc.because || wait < tc.atLeast {
				t.Fatalf("waits %v because of %d, want %v because of %d", wait, because, tc.atLeast, tc.because)
			}
			if !reflect.DeepEqual(outlook, m.Outlook()) {
				t.Error("an outlook is not the same as itself")
			}
			began := now
			for m.in[stateServing] == 0 {
				if now = now.Add(max(m.Next(now), time.Millisecond)); now.Mono > began.Mono+3*ttl {
					t.Fatal("never served")
				}
				feed(m, s, now, Tick{})
			}
			if took := now.Mono - began.Mono; took < wait || took > wait+ttl/50 {
				t.Errorf("served after %v, said to wait for %v", took, wait)
			}
			if reflect.DeepEqual(outlook, m.Outlook()) && tc.because == ObstacleOwner {
				t.Error("nothing has changed")
			}
		})
	}
}
