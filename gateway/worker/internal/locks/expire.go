package locks

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const sweepPause = 1000 // of the TTL, at least, between two sweeps

// sweeps end locks whose leases are over, by one timer.
type sweeps struct {
	closed atomic.Bool
	at     atomic.Int64 // when the timer fires, since the worker's start; 0 for not at all

	sweeping sync.Mutex // held during a sweep

	mu    sync.Mutex // guards timer, and what changes at
	timer *time.Timer
}

// wantBy has a sweep made at that time, or earlier.
func (s *sweeps) wantBy(ls *Locks, at time.Duration) {
	if next := s.at.Load(); next != 0 && next <= int64(at) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if next := s.at.Load(); s.closed.Load() || next != 0 && next <= int64(at) {
		return
	}
	s.at.Store(int64(at))
	if wait := at - ls.cfg.Keys.Now(); s.timer == nil {
		s.timer = time.AfterFunc(wait, func() { s.sweep(ls) })
	} else {
		s.timer.Reset(wait)
	}
}

// sweep looks at all partitions once.
func (s *sweeps) sweep(ls *Locks) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	s.mu.Lock()
	s.at.Store(0) // who adds a lock from here on is seen, or sets the timer
	s.mu.Unlock()
	now, next := ls.cfg.Keys.Now(), int64(math.MaxInt64)
	for i := range ls.tables {
		t := &ls.tables[i]
		for due := t.next.Load(); due != 0; due = t.next.Load() {
			if due > int64(now) {
				next = min(next, due)
				break
			}
			t.machine.Tick(t.lock())
			t.unlock()
		}
	}
	if next != math.MaxInt64 {
		s.wantBy(ls, max(time.Duration(next), now+ls.cfg.Settings.TTL/sweepPause))
	}
}

// Stop ends all waits, and makes no more sweeps. It waits for one under way. The
// locks of a worker that is closed end with its session, which expires by itself, later
// than what was promised.
func (ls *Locks) Stop() {
	s := &ls.sweeps
	s.closed.Store(true)
	s.mu.Lock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	for i := range ls.tables {
		t := &ls.tables[i]
		t.mu.Lock()
		for _, wait := range t.waits {
			if wait.giveUp != nil {
				wait.giveUp()
			}
		}
		t.mu.Unlock()
	}
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
}
