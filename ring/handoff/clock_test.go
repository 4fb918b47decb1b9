package handoff

import (
	"testing"
	"time"
)

func TestInstantPassesOnEitherClock(t *testing.T) {
	at := Instant{Mono: 10 * time.Second, Wall: 100 * time.Second}
	for _, c := range []struct {
		mono, wall time.Duration
		passed     bool
	}{
		{9, 99, false},
		{10, 99, true}, // the wall clock was set back
		{9, 100, true}, // the monotonic clock stood still
		{10, 100, true},
		{9, 50, false},
		{0, 1000, true},
	} {
		now := Instant{Mono: c.mono * time.Second, Wall: c.wall * time.Second}
		if got := at.Passed(now); got != c.passed {
			t.Errorf("mono %d wall %d: passed %v, want %v", c.mono, c.wall, got, c.passed)
		}
	}
}

func TestLease(t *testing.T) {
	sent := Instant{Mono: time.Minute, Wall: time.Hour}
	l := NewLease(sent, 10*time.Second)
	for at, want := range map[Instant]time.Duration{
		l.Admit: 7 * time.Second, l.Cancel: 8 * time.Second, l.Surrender: 9500 * time.Millisecond,
	} {
		if at != sent.Add(want) {
			t.Errorf("deadline %v, want %v later", at, want)
		}
	}
	if !l.Admits(sent.Add(6999 * time.Millisecond)) {
		t.Error("does not admit before its deadline")
	}
	if l.Admits(sent.Add(7 * time.Second)) {
		t.Error("admits at its deadline")
	}
	if l.Admits(Instant{Mono: sent.Mono, Wall: sent.Wall + 7*time.Second}) {
		t.Error("admits though the wall clock says that its time is over")
	}
	if (Lease{}).Admits(Instant{Mono: 0, Wall: 0}) || (Lease{}).Admits(sent) {
		t.Error("the zero Lease admits")
	}
}

// TestWaitingRunsOnTheSlowerClock sees that a claimant is not misled by its
// wall clock: what others may still do takes real time.
func TestWaitingRunsOnTheSlowerClock(t *testing.T) {
	w := newWorld(&scope{procs: 2, views: [][][]int{ringA}, keys: []int{0}}, 10*time.Second, 0, 0)
	w.settle(20 * time.Second)
	a, b := w.procs[0], w.procs[1]
	if !a.tables[0].open {
		t.Fatal("a does not serve")
	}
	w.endProcess(a)
	a.noticed = true
	w.settle(time.Second)
	// b's wall clock steps ahead: its own lease is over, but a's is not.
	b.wall += time.Hour
	w.step(b, Tick{})
	w.settle(time.Second)
	if b.m.phase != phaseReleased {
		t.Fatalf("b is %v", b.m.phase)
	}
	w.respawn(b)
	w.settle(7 * time.Second)
	if b.tables[0].open {
		t.Error("b took over before a was silent for a TTL")
	}
	b.mono -= time.Hour // stands still, seen from the wall
	w.settle(30 * time.Second)
	if b.tables[0].open {
		t.Error("b took over though its monotonic clock stood still")
	}
}
