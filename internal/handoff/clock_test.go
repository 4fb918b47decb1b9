package handoff

import (
	"testing"
	"time"
)

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
