package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/keyway-go/keyway/ring"
)

// ErrAlone means that nobody would take a worker's partitions.
var ErrAlone = errors.New("worker: no other worker is on the ring to take the partitions over")

// LeaveRing takes the worker off the ring until [Worker.JoinRing]: others take its
// partitions over, and LeaveRing returns nil when they have them and nothing of them runs
// here any more. The worker keeps its session, answers, and sends requests elsewhere. If
// ctx ends first, the error says what is still here, and the worker stays off the ring.
// It stays on the ring, with an error that wraps [ErrAlone], if no other worker is
// there. A worker that is being drained for good ([Worker.Drain]) goes on with that.
func (w *Worker) LeaveRing(ctx context.Context) error {
	if !w.othersServe() {
		return fmt.Errorf("%w; add a worker first, or end this one, %s", ErrAlone, w.name)
	}
	w.offRing.Store(true)
	w.shell.poke()
	for {
		turn := w.shell.nextTurn()
		switch {
		case w.keys.Draining.Load():
			return w.Drain(ctx)
		case !w.offRing.Load():
			return fmt.Errorf("worker: %s was told to come back onto the ring", w.name)
		case !w.onRing() && !w.othersServe():
			w.offRing.Store(false)
			w.shell.poke()
			return fmt.Errorf("%w: the others have left it too, and %s is back", ErrAlone, w.name)
		case !w.onRing() && w.Serving() == 0 && w.keys.Running() == 0:
			return nil
		}
		select {
		case <-turn:
		case <-w.shell.ctx.Done():
			return fmt.Errorf("worker: %s was closed", w.name)
		case <-ctx.Done():
			return fmt.Errorf("worker: %s is off the ring: %w with %d partitions not yet taken over and %d keys busy", w.name, context.Cause(ctx), w.Serving(), w.keys.Running())
		}
	}
}

// JoinRing undoes [Worker.LeaveRing]. It does nothing if the worker was not told to leave,
// and fails if it leaves for good.
func (w *Worker) JoinRing() error {
	if w.keys.Draining.Load() {
		return fmt.Errorf("worker: %s leaves for good, since its process ends: start it again", w.name)
	}
	w.offRing.Store(false)
	w.shell.poke()
	return nil
}

// onRing reports whether the present incarnation has a place on the ring.
func (w *Worker) onRing() bool {
	id := w.Incarnation()
	return slices.ContainsFunc(ring.ActiveWorkers(w.cfg.Members.View().Members), func(m ring.Member) bool { return m.Incarnation == id })
}

// othersServe reports whether a worker of another name has a place on the ring.
func (w *Worker) othersServe() bool {
	return slices.ContainsFunc(ring.ActiveWorkers(w.cfg.Members.View().Members), func(m ring.Member) bool { return m.Name != w.name })
}

// followOrders takes the worker off the ring if it was told to leave, and puts it back.
func (s *shell) followOrders() {
	off := s.w.offRing.Load()
	if off == s.drained {
		return
	}
	s.drained = off
	if off {
		s.w.settled.Store(false)
		s.w.cfg.Logger.Info("this worker was told to leave the ring: its partitions are handed over, and it stays away until it is told to come back", "worker", s.w.name)
	} else {
		s.w.cfg.Logger.Info("this worker was told to come back onto the ring", "worker", s.w.name)
	}
	s.announceState()
}

// nextTurn returns a channel that is closed when run has looked around once more.
func (s *shell) nextTurn() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == nil {
		s.turn = make(chan struct{})
	}
	return s.turn
}

func (s *shell) endTurn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn != nil {
		close(s.turn)
		s.turn = nil
	}
}
