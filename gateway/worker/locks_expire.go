package worker

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	sweepMost  = 128  // locks that are looked at with a partition's table locked
	sweepPause = 1000 // of the TTL, at least, between two sweeps
	never      = math.MaxInt64
)

// sweeps end locks whose leases are over, by one timer. A renewal does not touch the
// order in which locks are looked at: one that is found to go on gets another place.
type sweeps struct {
	closed atomic.Bool
	at     atomic.Int64 // when the timer fires, since the worker's start; 0 for not at all

	sweeping sync.Mutex // held during a sweep

	mu    sync.Mutex // guards timer, and what changes at
	timer *time.Timer
}

// wantBy has a sweep made at that time, or earlier.
func (s *sweeps) wantBy(w *Worker, at time.Duration) {
	if next := s.at.Load(); next != 0 && next <= int64(at) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if next := s.at.Load(); s.closed.Load() || next != 0 && next <= int64(at) {
		return
	}
	s.at.Store(int64(at))
	if wait := at - w.now(); s.timer == nil {
		s.timer = time.AfterFunc(wait, func() { s.sweep(w) })
	} else {
		s.timer.Reset(wait)
	}
}

// sweep looks at all partitions once.
func (s *sweeps) sweep(w *Worker) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	s.mu.Lock()
	s.at.Store(0) // who adds a lock from here on is seen, or sets the timer
	s.mu.Unlock()
	now, next := w.now(), int64(never)
	for i := range w.parts {
		p := &w.parts[i]
		for due := p.locks.next.Load(); due != 0; due = p.locks.next.Load() {
			if due > int64(now) {
				next = min(next, due)
				break
			}
			p.expireLocks(now)
		}
	}
	if next != never {
		s.wantBy(w, max(time.Duration(next), now+w.settings.TTL/sweepPause))
	}
}

// expireLocks looks at some of the locks that are due.
func (p *partition) expireLocks(now time.Duration) {
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.forget <= now {
		t.done = nil
		t.noteNext()
	}
	for range sweepMost {
		if len(t.order) == 0 || t.order[0].due > now {
			return
		}
		l := t.order[0]
		if l.expires > now {
			l.due = l.expires
			t.down(0)
			t.noteNext()
			continue
		}
		p.endLocked(l, lockExpired)
	}
}

// close ends all waits, and makes no more sweeps. It waits for one under way. The
// locks of a worker that is closed end with its session, which expires by itself, later
// than what was promised.
func (ls *locks) close() {
	s := &ls.sweeps
	s.closed.Store(true)
	s.mu.Lock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	for i := range ls.worker.parts {
		t := &ls.worker.parts[i].locks
		t.mu.Lock()
		for _, wait := range t.waits {
			wait.giveUp()
		}
		t.mu.Unlock()
	}
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
}

// push adds a lock to the order.
func (t *lockTable) push(l *lock) {
	l.place = int32(len(t.order))
	t.order = append(t.order, l)
	t.up(len(t.order) - 1)
	t.noteNext()
}

// remove removes a lock from the order.
func (t *lockTable) remove(l *lock) {
	i, last := int(l.place), len(t.order)-1
	t.put(i, t.order[last])
	t.order[last] = nil
	t.order = t.order[:last]
	if i < last {
		t.down(i)
		t.up(i)
	}
	t.noteNext()
}

func (t *lockTable) noteNext() {
	next := time.Duration(never)
	if len(t.order) > 0 {
		next = t.order[0].due
	}
	if len(t.done) > 0 {
		next = min(next, t.forget)
	}
	if next == never {
		next = 0
	}
	t.next.Store(int64(next))
}

func (t *lockTable) put(i int, l *lock) { t.order[i], l.place = l, int32(i) }

// up moves the i-th lock to where those before it are due no later.
func (t *lockTable) up(i int) {
	l := t.order[i]
	for i > 0 && t.order[(i-1)/2].due > l.due {
		t.put(i, t.order[(i-1)/2])
		i = (i - 1) / 2
	}
	t.put(i, l)
}

// down moves the i-th lock to where those behind it are due no earlier.
func (t *lockTable) down(i int) {
	l := t.order[i]
	for {
		child := 2*i + 1
		if child+1 < len(t.order) && t.order[child+1].due < t.order[child].due {
			child++
		}
		if child >= len(t.order) || t.order[child].due >= l.due {
			break
		}
		t.put(i, t.order[child])
		i = child
	}
	t.put(i, l)
}
