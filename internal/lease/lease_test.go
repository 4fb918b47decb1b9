package lease_test

import (
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/lease"
)

func TestInstantPassesOnEitherClock(t *testing.T) {
	at := lease.Instant{Mono: 10 * time.Second, Wall: 100 * time.Second}
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
		now := lease.Instant{Mono: c.mono * time.Second, Wall: c.wall * time.Second}
		if got := at.Passed(now); got != c.passed {
			t.Errorf("mono %d wall %d: passed %v, want %v", c.mono, c.wall, got, c.passed)
		}
	}
}

func TestNew(t *testing.T) {
	sent := lease.Instant{Mono: time.Minute, Wall: time.Hour}
	l := lease.New(sent, 10*time.Second)
	for at, want := range map[lease.Instant]time.Duration{
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
	if l.Admits(lease.Instant{Mono: sent.Mono, Wall: sent.Wall + 7*time.Second}) {
		t.Error("admits though the wall clock says that its time is over")
	}
	if (lease.Lease{}).Admits(lease.Instant{Mono: 0, Wall: 0}) || (lease.Lease{}).Admits(sent) {
		t.Error("the zero Lease admits")
	}
}

// A lease that rests on another one ends with it, on either clock.
func TestWithin(t *testing.T) {
	const ttl = 10 * time.Second
	from := lease.Instant{Mono: time.Minute, Wall: time.Hour}
	own := lease.New(from, ttl)
	for _, c := range []struct {
		cancel, surrender                    time.Duration // of the other one
		wantAdmit, wantCancel, wantSurrender time.Duration
	}{
		{ttl, ttl, 7 * time.Second, 8 * time.Second, 9500 * time.Millisecond},
		{7500 * time.Millisecond, 9 * time.Second, 7 * time.Second, 7500 * time.Millisecond, 9 * time.Second},
		{6 * time.Second, 7500 * time.Millisecond, 6 * time.Second, 6 * time.Second, 7500 * time.Millisecond},
		{0, 0, 0, 0, 0},
	} {
		got := own.Within(from, c.cancel, c.surrender)
		want := lease.Lease{Admit: from.Add(c.wantAdmit), Cancel: from.Add(c.wantCancel), Surrender: from.Add(c.wantSurrender)}
		if got != want {
			t.Errorf("within %v, %v: %v, want %v", c.cancel, c.surrender, got, want)
		}
	}
}

func TestLeft(t *testing.T) {
	at := lease.Instant{Mono: 10 * time.Second, Wall: 100 * time.Second}
	for now, want := range map[lease.Instant]time.Duration{
		{Mono: 9 * time.Second, Wall: 98 * time.Second}:  time.Second,
		{Mono: 8 * time.Second, Wall: 99 * time.Second}:  time.Second,
		{Mono: 1 * time.Second, Wall: 100 * time.Second}: 0,
		{Mono: 99 * time.Second, Wall: 1 * time.Second}:  0,
	} {
		if got := at.Left(now); got != want {
			t.Errorf("at %v: %v left, want %v", now, got, want)
		}
	}
	if got := lease.Grace(10 * time.Second); got != 1500*time.Millisecond {
		t.Errorf("grace %v", got)
	}
}
