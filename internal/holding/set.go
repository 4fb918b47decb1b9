// Package holding has what all holders of locks do in time, whoever keeps the locks. It drives the
// machine of internal/holder with clocks, a timer and contexts.
//
// A [Set] is the locks that a process holds at keepers of one kind. One timer looks at all of them:
// it has locks renewed that are due, and ends the work with locks that are overdue. A timer may be
// late, so the time of a lock is compared as well whenever somebody asks for it.
//
// A [Hold] is one lock, from its grant to its release. Callers of the process may have it one after
// the other. Each has a [Tenure], whose context ends before another process can have the lock. A
// call for a key within the work of its holder gets a [Use] of the same tenure.
//
// A back end embeds Hold in what it knows of a lock. It decides how callers wait for a lock and take
// turns, makes the calls to the keeper, and feeds the answers to Hold.Lock. The back ends are
// gateway/client, whose keepers are workers, and fallback/lock, whose keeper is a store.
package holding

import (
	"context"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/lease"
)

// Backend is what a back end knows of one lock. The mutex of the Set is held while a method runs.
type Backend interface {
	// Renew has the keeper asked to renew the lock, as d says, and does not wait for the answer.
	Renew(d holder.Decision)
	// Lost returns why the work with the lock ends, as d says, or because the Set is closed. Callers
	// that wait for the lock are to ask for it anew.
	Lost(d holder.Decision) error
}

// Set is the locks that a process holds at keepers of one kind. Its mutex guards them as well. While
// there are any, a timer runs tick.
type Set struct {
	Policy holder.Policy
	Clock  func() time.Time // the wall clock; nil for that of package time
	base   time.Time        // origin of the monotonic clock in lease.Instant

	sync.Mutex
	Closed bool               // for good, by CloseLocked
	all    map[*Hold]struct{} // those that a caller has, or may get
	timer  *time.Timer        // of tick; nil while there is nothing to do
	next   time.Duration      // on the monotonic clock: when the timer runs tick
}

// Init makes s ready for use.
func (s *Set) Init(p holder.Policy, clock func() time.Time) {
	s.Policy, s.Clock, s.base, s.all = p, clock, time.Now(), make(map[*Hold]struct{})
}

// Now returns a reading of the clocks.
func (s *Set) Now() lease.Instant { return s.At(time.Now()) }

// At returns t as an Instant.
func (s *Set) At(t time.Time) lease.Instant {
	now := lease.At(s.base, t)
	if s.Clock != nil {
		now.Wall = time.Duration(s.Clock().UnixNano())
	}
	return now
}

// LenLocked returns how many locks a caller has, or may get.
func (s *Set) LenLocked() int { return len(s.all) }

// CloseLocked ends the work with all locks. The work with a lock that is granted later does not begin.
func (s *Set) CloseLocked() {
	s.Closed = true
	for h := range s.all {
		h.ObeyLocked(h.Lock.Close())
	}
}

// tick ends work that is overdue, and has locks renewed that are due.
func (s *Set) tick() {
	s.Lock()
	defer s.Unlock()
	if len(s.all) == 0 || s.Closed {
		s.timer = nil
		return
	}
	now := s.Now()
	pause := s.spacedLocked(s.Policy.Pause(s.Policy.TTL))
	for h := range s.all {
		h.tickLocked(now)
		pause = min(pause, h.pauseLocked(now))
	}
	s.next = now.Mono + pause
	s.timer.Reset(pause)
}

// spacedLocked returns pause, or up to five times as much while there are many locks, so that tick takes about a tenth of
// a processor. Renewals are then late by half of the age at which they are due, which locks endure.
func (s *Set) spacedLocked(pause time.Duration) time.Duration {
	return max(pause, min(5*pause, time.Duration(len(s.all))*time.Microsecond))
}

// Hold is a lock that this process holds. Its state machine, Lock, decides whether it is renewed, lost
// or released.
type Hold struct {
	Keys   []string // sorted, each once
	Shared bool     // with others that say so; guarded by the Set's mutex, as Lock and Tenure are
	Lock   holder.Lock
	Tenure *Tenure // of the caller that has it; nil for none

	set     *Set
	backend Backend
	calls   chan struct{} // 1 buffered: full while a call about it is under way that allows no other
}

// Init makes h the hold that a back end knows as b.
func (h *Hold) Init(s *Set, b Backend, keys []string, shared bool, granted holder.Lock) {
	h.Keys, h.Shared, h.Lock = keys, shared, granted
	h.set, h.backend, h.calls = s, b, make(chan struct{}, 1)
}

// BeginLocked makes the tenure of a caller whose work descends from ctx. It reports false if the
// caller has waited for its turn and others may have the lock by now, or if the caller does not want
// the lock as it is.
func (h *Hold) BeginLocked(ctx context.Context, wanted bool) (_ Use, begun bool) {
	s, now := h.set, h.set.Now()
	h.Tenure = &Tenure{Token: h.Lock.Token(), Since: time.Now(), Parent: ctx, hold: h, uses: 1}
	if s.Closed {
		h.ObeyLocked(h.Lock.Close())
	}
	if begun = wanted && h.Lock.Begin(now) == holder.Begin; begun {
		s.all[h] = struct{}{}
		h.LookLocked()
	}
	return Use{Tenure: h.Tenure}, begun
}

// LookLocked has the timer follow the time of h, which has changed. It never has it run later.
func (h *Hold) LookLocked() {
	s, now := h.set, h.set.Now()
	pause := h.pauseLocked(now)
	switch at := now.Mono + pause; {
	case s.timer == nil:
		s.next, s.timer = at, time.AfterFunc(pause, s.tick)
	case at < s.next:
		s.next = at
		s.timer.Reset(pause)
	}
}

// pauseLocked returns how soon the timer looks at h: when its work has to end, or earlier, so that it sees a wall clock
// that has run on.
func (h *Hold) pauseLocked(now lease.Instant) time.Duration {
	pause := h.set.spacedLocked(h.Lock.Pause())
	if left := h.Lock.Ends(now); left > 0 {
		pause = max(min(pause, left), time.Millisecond)
	}
	return pause
}

func (h *Hold) tickLocked(now lease.Instant) {
	if h.set.Policy.Keeper == holder.Store { // which is asked about a lock by one call at a time
		select {
		case h.calls <- struct{}{}:
		default:
			h.CheckLocked(now)
			return
		}
	}
	d := h.ObeyLocked(h.Lock.Tick(now))
	if d == holder.Renew || d == holder.Seek {
		h.backend.Renew(d)
	} else if h.set.Policy.Keeper == holder.Store {
		h.EndCall()
	}
}

// EndCall ends a call about a lock that a store keeps.
func (h *Hold) EndCall() { <-h.calls }

// Decide has the machine take a step, and obeys.
func (h *Hold) Decide(step func(now lease.Instant) holder.Decision) holder.Decision {
	h.set.Lock()
	defer h.set.Unlock()
	return h.ObeyLocked(step(h.set.Now()))
}

// CheckLocked ends the work with h if its time is over.
func (h *Hold) CheckLocked(now lease.Instant) { h.ObeyLocked(h.Lock.Check(now)) }

// ObeyLocked ends the work with h if the machine has decided that, and returns what it has decided.
func (h *Hold) ObeyLocked(d holder.Decision) holder.Decision {
	if d == holder.CancelOverdue || d == holder.CancelGone {
		h.DropLocked()
		if cause := h.backend.Lost(d); h.Tenure != nil {
			h.Tenure.endLocked(cause)
		}
	}
	return d
}

// EndLocked ends the work with h, or the wait for a caller. waits says that another caller waits for
// its turn. On holder.Pass it gets h.
func (h *Hold) EndLocked(now lease.Instant, waits bool) holder.Decision {
	if h.set.Closed {
		h.Lock.Close()
	}
	h.Tenure = nil
	d := h.Lock.End(now, waits)
	if d != holder.Pass {
		h.DropLocked()
	}
	return d
}

// DropLocked has nothing more happen to h by itself.
func (h *Hold) DropLocked() { delete(h.set.all, h) }
