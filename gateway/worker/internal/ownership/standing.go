package ownership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/ring"
)

// ErrAlone means that no other worker would take this worker's partitions.
var ErrAlone = errors.New("worker: no other worker is on the ring to take the partitions over")

// LeaveRing is Worker.LeaveRing.
func (s *Shell) LeaveRing(ctx context.Context) error {
	if !s.othersServe() {
		return fmt.Errorf("%w; add a worker first, or end this one, %s", ErrAlone, s.cfg.Name)
	}
	s.offRing.Store(true)
	s.Poke()
	for {
		turn := s.turn.Over()
		switch {
		case s.cfg.Keys.Draining.Load():
			return s.Drain(ctx)
		case !s.offRing.Load():
			return fmt.Errorf("worker: %s was told to come back onto the ring", s.cfg.Name)
		case !s.onRing() && !s.othersServe():
			s.offRing.Store(false)
			s.Poke()
			return fmt.Errorf("%w: the others have left it too, and %s is back", ErrAlone, s.cfg.Name)
		case !s.onRing() && s.cfg.Keys.Serving() == 0 && s.cfg.Keys.Running() == 0:
			return nil
		}
		select {
		case <-turn:
		case <-s.ctx.Done():
			return fmt.Errorf("worker: %s was closed", s.cfg.Name)
		case <-ctx.Done():
			return fmt.Errorf("worker: %s is off the ring: %w with %d partitions not yet taken over and %d keys busy", s.cfg.Name, context.Cause(ctx), s.cfg.Keys.Serving(), s.cfg.Keys.Running())
		}
	}
}

// JoinRing is Worker.JoinRing.
func (s *Shell) JoinRing() error {
	if s.cfg.Keys.Draining.Load() {
		return fmt.Errorf("worker: %s leaves for good, since its process ends: start it again", s.cfg.Name)
	}
	s.offRing.Store(false)
	s.Poke()
	return nil
}

// onRing reports whether the present incarnation has a place on the ring.
func (s *Shell) onRing() bool { return onRing(s.cfg.Members.View(), s.cfg.Keys.Incarnation()) }

// othersServe reports whether a worker of another name has a place on the ring.
func (s *Shell) othersServe() bool {
	return slices.ContainsFunc(s.cfg.Members.View().Workers(), func(m ring.Member) bool { return m.Name != s.cfg.Name })
}

// followOrders takes the worker off the ring if an operator wants it to leave, and puts it back.
func (s *Shell) followOrders() {
	off := s.offRing.Load()
	if off == s.drained {
		return
	}
	s.drained = off
	if off {
		s.isSettled.Store(false)
		s.cfg.Logger.Info("this worker was told to leave the ring: its partitions are handed over, and it stays away until it is told to come back", "worker", s.cfg.Name)
	} else {
		s.cfg.Logger.Info("this worker was told to come back onto the ring", "worker", s.cfg.Name)
	}
	s.announceState()
}

// Await is Worker.Await. ask returns why an app does not answer, when it has been asked.
func (s *Shell) Await(ctx context.Context, ask func(context.Context) error) error {
	registered := s.registered
	for {
		select {
		case <-s.settled:
			return nil
		case <-registered:
			registered = nil
			if err := ask(ctx); err != nil {
				return fmt.Errorf("worker: %s takes no keys yet: %w", s.cfg.Name, err)
			}
		case <-s.refused.Done():
			return fmt.Errorf("worker: %s may not begin: %w", s.cfg.Name, context.Cause(s.refused))
		case <-s.ctx.Done():
			return fmt.Errorf("worker: %s was closed", s.cfg.Name)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", s.unsettled(), context.Cause(ctx))
		}
	}
}

// Ready is Worker.Ready.
func (s *Shell) Ready() error {
	appDown := s.cfg.Health(s.isSettled.Load())
	switch {
	case s.cfg.Keys.Draining.Load():
		return errors.New("worker: the worker is leaving")
	case s.trouble.Load() != nil:
		return fmt.Errorf("%w: %w", gateway.ErrUnavailable, *s.trouble.Load())
	case !s.cfg.Keys.Admits(time.Now()):
		return s.calls.because(fmt.Errorf("%w: its session is not confirmed by the store", gateway.ErrUnavailable))
	case appDown != nil:
		return fmt.Errorf("worker: %s takes no keys: %w", s.cfg.Name, appDown)
	case s.offRing.Load():
		return fmt.Errorf("worker: %s was drained: it is off the ring until it is told to come back", s.cfg.Name)
	case !s.isSettled.Load():
		return s.unsettled()
	}
	return nil
}

// unsettled says what the worker still waits for.
func (s *Shell) unsettled() error {
	of := s.shareOf(s.cfg.Keys.Incarnation())
	switch trouble := s.trouble.Load(); {
	case trouble != nil:
		return fmt.Errorf("worker: %s does not serve: %w", s.cfg.Name, *trouble)
	case !s.cfg.Keys.Admits(time.Now()):
		return s.calls.because(fmt.Errorf("worker: %s has no session in the store", s.cfg.Name))
	case !of.onRing:
		if err := s.cfg.Health(false); err != nil {
			return fmt.Errorf("worker: %s takes no keys: %w", s.cfg.Name, err)
		}
		why := ""
		if slices.Contains(s.cfg.Members.View().Table.Members(), s.cfg.Name) {
			why = ": another incarnation has its name there; if that is another process, end it or choose another --name (Config.Name)"
		}
		return fmt.Errorf("worker: %s is not yet on the ring%s", s.cfg.Name, why)
	}
	why := ""
	wait, what := s.obstacle(records.Record{Owner: of.owner})
	if m, seen := s.cfg.Members.View().Find(of.owner); seen {
		why = fmt.Sprintf(": worker %s still has some of them", m.Name)
	} else if of.owner != "" {
		why = fmt.Sprintf(": a worker that this one does not see had some of them, and its session has not expired (%v left); if it lives, correct --join (Config.Join) or --gossip-key (Config.GossipKeys)", wait.Round(100*time.Millisecond))
	} else if what != "" {
		why = fmt.Sprintf(": %s (%v left)", what, wait.Round(100*time.Millisecond))
	}
	return fmt.Errorf("worker: %s serves %d of the %d partitions that the ring gives it%s", s.cfg.Name, of.served, of.given, why)
}

// onRing reports whether an incarnation has a place on the ring of a view.
func onRing(view *ring.View, incarnation string) bool {
	return slices.ContainsFunc(view.Workers(), func(m ring.Member) bool { return m.Incarnation == incarnation })
}

// share is what the ring gives an incarnation of this worker.
type share struct {
	onRing        bool
	given, served int    // partitions
	owner         string // incarnation of another worker that still has one of them; "" for none
}

// shareOf returns the share of an incarnation.
func (s *Shell) shareOf(incarnation string) (of share) {
	view := s.cfg.Members.View()
	if of.onRing = onRing(view, incarnation); !of.onRing {
		return of
	}
	for i := range s.cfg.Keys.Parts {
		if name, _ := view.Table.Owner(i); name != s.cfg.Name {
			continue
		}
		p := &s.cfg.Keys.Parts[i]
		of.given++
		if p.Open.Load() {
			of.served++
		} else if r := p.Record.Load(); of.owner == "" && r != nil && r.Owner != incarnation {
			of.owner = r.Owner
		}
	}
	return of
}

// Drain is Worker.Drain.
func (s *Shell) Drain(ctx context.Context) error {
	s.Post(handoff.Leave{})
	var half <-chan time.Time
	if deadline, ok := ctx.Deadline(); ok {
		half = time.After(time.Until(deadline) / 2)
	}
	for {
		select {
		case <-s.gone:
			return nil
		case <-half:
			s.Post(handoff.Leave{Now: true})
		case <-s.ctx.Done():
			select {
			case <-s.gone:
				return nil
			default:
				return fmt.Errorf("worker: %s was closed before it had left", s.cfg.Name)
			}
		case <-ctx.Done():
			return fmt.Errorf("worker: draining %s: %w with %d executions running; its session expires in at most %v", s.cfg.Name, context.Cause(ctx), s.cfg.Keys.Running(), s.cfg.Settings.TTL)
		}
	}
}

// followApps takes the worker off the ring while an app behind it does not answer,
// so that others take its partitions over, and puts it back.
func (s *Shell) followApps() {
	was := s.appless
	s.appless = s.cfg.Health(was == nil || !s.othersServe())
	if (s.appless == nil) == (was == nil) {
		return
	}
	switch {
	case s.leaving:
	case s.appless != nil:
		s.cfg.Log.Warn("this worker leaves the ring until its app answers", "worker", s.cfg.Name, "error", s.appless)
	default:
		s.cfg.Log.Info("the app answers: this worker joins the ring", "worker", s.cfg.Name)
	}
	if s.appless != nil {
		s.isSettled.Store(false)
	}
	s.announceState()
}

// SessionsLost returns how many sessions were lost.
func (s *Shell) SessionsLost() int64 { return s.lost.Load() }

// Standing says where the worker stands with the ring.
func (s *Shell) Standing() string {
	switch {
	case s.cfg.Keys.Draining.Load():
		return ring.StateLeaving.String()
	case s.offRing.Load():
		return "drained"
	case s.onRing():
		return ring.StateActive.String()
	}
	return ring.StateJoining.String()
}

// Settled reports whether the present incarnation has served all that the ring gave it.
func (s *Shell) Settled() bool { return s.isSettled.Load() }

// Waiting says what must happen before a partition without another known owner is served, and how
// long that takes, if it is known.
func (s *Shell) Waiting(partition int, record *records.Record) (wait time.Duration, what string) {
	if s.cfg.Keys.Draining.Load() {
		return 0, "this worker is leaving"
	}
	if trouble := s.trouble.Load(); trouble != nil {
		return 0, fmt.Sprintf("this worker, %s, does not work: %v", s.cfg.Name, *trouble)
	}
	target, ok := s.cfg.Members.View().Owner(partition)
	if !ok {
		return 0, "no active worker is known yet"
	}
	if record == nil {
		record = new(records.Record)
	} else if record.Owner != "" && record.Owner == s.cfg.Keys.Incarnation() {
		return 0, "it is this worker's, which does not serve it at the moment"
	}
	if wait, what = s.obstacle(*record); what != "" {
		what = ": " + what
	}
	return wait, fmt.Sprintf("the ring gives it to worker %s, which has not claimed it yet%s", target.Name, what)
}

// obstacle says what keeps the worker from claiming a partition with that record, "" if nothing
// known does, and how much longer it will.
func (s *Shell) obstacle(record records.Record) (wait time.Duration, what string) {
	wait, obstacle := s.outlook.Load().Claimable(record, s.cfg.Keys.Instant(time.Now()).Mono)
	switch obstacle {
	case handoff.ObstacleSession:
		return wait, s.calls.because(errors.New("this worker has no session in the store yet")).Error()
	case handoff.ObstacleSettle:
		return wait, "the members changed a moment ago"
	case handoff.ObstacleQuarantine:
		return wait, fmt.Sprintf("the store has no trace of this cluster, was restarted or lost data: for one TTL (%v) workers claim no partition that a forgotten worker may still serve; a new cluster skips this wait with --new-cluster (Config.NewCluster)", s.cfg.Settings.TTL)
	case handoff.ObstacleOwner:
		return wait, "the session of its last owner, which is gone, has not expired"
	}
	return 0, ""
}

// StoreCalls passes on how long calls to the store have taken, by their kinds, and how many have failed.
func (s *Shell) StoreCalls(calls func(call string, took metrics.Distribution, failed int64)) {
	for call := range storeCallKinds {
		calls(call.String(), s.calls.took[call].Distribution(), s.calls.failures[call].Load())
	}
}

// StoreStatus returns how calls to the store have ended lately.
func (s *Shell) StoreStatus() (lately status.StoreStatus) {
	c := &s.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.answered.IsZero() {
		lately.Answered = new(c.answered)
	}
	if c.err != nil {
		lately.LastError, lately.FailedAt = c.err.Error(), new(c.failed)
	}
	return lately
}
