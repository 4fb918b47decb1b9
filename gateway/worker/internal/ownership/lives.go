package ownership

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

// beginLife starts a new incarnation, unless ctx has ended.
func (s *Shell) beginLife(ctx context.Context) error {
	cfg := &s.cfg
	id, self := rand.Text(), cfg.Members.Self()
	hc := handoff.Config{
		Session:          records.Session{Incarnation: id, Name: s.cfg.Name, Addr: self.Addr, Gossip: self.Gossip},
		Partitions:       s.cfg.Settings.Ring.Partitions,
		TTL:              s.cfg.Settings.TTL,
		NewCluster:       cfg.NewCluster && s.current == nil,
		ServeOnStoreLoss: cfg.ServeWithoutStore,
		Floor:            s.highest,
	}
	machine, err := handoff.New(hc)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	if cfg.OnIncarnation != nil {
		if err := cfg.OnIncarnation(id); err != nil && s.current == nil {
			return fmt.Errorf("worker: writing down incarnation %s: %w", id, err)
		} else if err != nil {
			cfg.Logger.Error("cannot write down the new incarnation: a restart will have to wait for its session to expire", "incarnation", id, "error", err)
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("worker: %w", context.Cause(ctx))
	}
	l := &life{incarnation: id, machine: machine, first: s.current == nil}
	s.cfg.Keys.SetIncarnation(id)
	s.current, s.view = l, nil
	s.Moves.begin(id)
	s.isSettled.Store(false)
	s.lives = append(s.lives, l)
	s.announce(func(self *ring.Member) { self.Incarnation, self.State = id, ring.StateJoining })
	cfg.Logger.Info("new incarnation", "worker", s.cfg.Name, "incarnation", id)
	return nil
}

func (s *Shell) endLife(l *life) {
	s.lives = slices.DeleteFunc(s.lives, func(other *life) bool { return other == l })
	if s.leaving && len(s.lives) == 0 {
		close(s.gone)
	}
}

func (s *Shell) stepAll(in handoff.Input) {
	for _, l := range append([]*life(nil), s.lives...) {
		s.step(l, in)
	}
}

// step passes in to l's machine and carries out its effects. A CloseTable is answered at once;
// effects of the answer come after those already there.
func (s *Shell) step(l *life, in handoff.Input) {
	todo := s.stepMachine(l, in)
	for len(todo) > 0 {
		e := todo[0]
		todo = todo[1:]
		if c, ok := e.(handoff.CloseTable); ok {
			closed := s.closeTable(c.Partition)
			s.Moves.closed(l.incarnation, closed)
			todo = append(todo, s.stepMachine(l, closed)...)
			continue
		}
		s.perform(l, e)
	}
}

// stepMachine passes in to l's machine, and keeps the highest epoch that it knows of for
// the lives to come.
func (s *Shell) stepMachine(l *life, in handoff.Input) []handoff.Effect {
	effects := l.machine.Step(s.cfg.Keys.Instant(time.Now()), in)
	s.highest = max(s.highest, l.machine.Highest())
	return effects
}

// passView passes a changed view on.
func (s *Shell) passView() {
	view := s.cfg.Members.View()
	if view == s.view {
		return
	}
	sameRing := s.view != nil && s.view.Digest == view.Digest
	s.view = view
	died, joined, changed := s.Moves.view(view, sameRing)
	now := time.Now()
	if changed {
		s.changed = now
	}
	if joined {
		s.joined = now
	}
	in := viewInput(view, s.viewed, sameRing)
	s.viewed, s.floor = in, in.Floor
	s.stepAll(in)
	s.announceTakeovers(died)
	if s.leaving && len(in.Workers) == 0 {
		s.stepAll(handoff.Leave{Now: true})
	}
	for i := range s.cfg.Keys.Parts {
		s.cfg.Keys.Parts[i].Announce()
	}
}

// announceTakeovers says of workers that are gone when their partitions are served again.
func (s *Shell) announceTakeovers(died []string) {
	for _, incarnation := range died {
		n := s.Moves.owned(incarnation)
		if n == 0 {
			continue
		}
		wait, obstacle := s.current.machine.Outlook().Claimable(records.Record{Owner: incarnation}, s.cfg.Keys.Instant(time.Now()).Mono)
		if wait == 0 && obstacle != handoff.ObstacleNone {
			wait = s.cfg.Settings.TTL
		}
		s.cfg.Logger.Warn("a worker is gone: its partitions are served again once its session is over", "worker", s.Moves.NameOf(incarnation),
			"partitions", n, "by", time.Now().Add(wait).Format(time.TimeOnly), "in_at_most", wait.Round(time.Millisecond))
	}
}

// givesFor returns the worker's own reason for giving partitions away, moveRebalance for none.
func (s *Shell) givesFor() reason {
	switch {
	case s.leaving:
		return moveLeave
	case s.drained:
		return moveDrain
	case s.appless != nil:
		return moveApp
	case s.agree.blocked:
		return moveStore
	}
	return moveRebalance
}

// perform carries out an effect on the request path or the cluster; calls to
// the store are made by call.
func (s *Shell) perform(l *life, effect handoff.Effect) {
	switch e := effect.(type) {
	case handoff.OpenTable:
		p := &s.cfg.Keys.Parts[e.Partition]
		s.cfg.Locks.Open(e)
		p.Open.Store(true)
		s.Moves.opened(l.incarnation, e)
		p.Announce()
		p.CheckSequence()
	case handoff.LocksWritten:
		s.cfg.Locks.Written(e.Partition, e.Locks)
	case handoff.LocksForgotten:
		s.cfg.Locks.WriteAgain()
	case handoff.LocksMoved:
		s.cfg.Locks.Drop(e.Partition)
	case handoff.Advance:
		first, limit := keyed.TokensOf(e.Epoch)
		s.cfg.Keys.Parts[e.Partition].Table.Advance(first, limit)
		s.cfg.Keys.Parts[e.Partition].CheckSequence()
	case handoff.Unblock:
		s.cfg.Keys.Parts[e.Partition].Table.Unblock(e.Key)
		s.Moves.unblocked(e.Partition, e.Key)
	case handoff.CancelHandlers:
		if lease := s.cfg.Keys.Lease.Load(); e.All && *lease != (handoff.Lease{}) {
			s.cfg.Logger.Warn("the session was not confirmed in time: running executions are cancelled", "worker", s.cfg.Name, "cause", s.renewals.blame(s.cfg.Keys.Now()))
		}
		s.cancelHandlers(e)
	case handoff.LeaseChanged:
		if l == s.current {
			s.renewals.confirmed(e.Lease, s.cfg.Settings.TTL)
		}
		s.agree.lease = e.Lease
		if !s.agree.blocked {
			s.cfg.Keys.Lease.Store(&e.Lease)
		}
		if e.Lease != (handoff.Lease{}) {
			l.confirmed = true
			s.agree.began, s.agree.trouble = true, nil
			if !s.agree.blocked {
				s.trouble.Store(nil)
			}
		}
	case handoff.Owner:
		p := &s.cfg.Keys.Parts[e.Partition]
		p.Record.Store(&e.Record)
		s.Moves.owner(l.incarnation, e.Partition, e.Record.Owner, s.givesFor())
		p.Announce()
	case handoff.Lost:
		s.lost.Add(1)
		s.Moves.untaken(l.incarnation, moveLost, moveSession)
		s.cfg.Logger.Warn("session lost: starting a new incarnation", "worker", s.cfg.Name, "incarnation", l.incarnation, "error", e.Err, "cause", s.renewals.last)
		s.renewals = renewals{}
		if l == s.current && !s.leaving {
			_ = s.beginLife(s.ctx) // the configuration was good the first time
			s.passView()
		}
	case handoff.Done:
		s.Moves.untaken(l.incarnation, moveGiven, moveLeave)
		s.endLife(l)
	case handoff.Renew:
		s.renewals.asked(s.cfg.Keys.Now(), e.ID)
		s.ended.Go(func() { s.call(l, e) })
	case handoff.Register:
		if l.astray { // its session is in another store
			s.post(event{life: l, input: handoff.Reply{ID: e.ID, Err: records.ErrSessionGone}})
			return
		}
		s.ended.Go(func() { s.call(l, e) })
	case handoff.StoreCall:
		s.ended.Go(func() { s.call(l, e) })
	}
}

func (s *Shell) closeTable(partition int) handoff.Closed {
	p := &s.cfg.Keys.Parts[partition]
	p.Open.Store(false)
	p.Term.Add(1)
	closed := s.cfg.Locks.Close(partition)
	p.Announce()
	p.EndStreams()
	return closed
}

func (s *Shell) cancelHandlers(e handoff.CancelHandlers) {
	if !e.All {
		s.cfg.Keys.Parts[e.Partition].CancelRunning()
		return
	}
	for i := range s.cfg.Keys.Parts {
		s.cfg.Keys.Parts[i].CancelRunning()
	}
}

// call makes a call to the store and posts the reply.
func (s *Shell) call(l *life, call handoff.StoreCall) {
	store := s.cfg.Store
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	asked := time.Now()
	var kind storeCall
	r := handoff.Reply{ID: call.CallID()}
	var id ring.StoreID
	switch e := call.(type) {
	case handoff.FetchGeneration:
		kind = callGeneration
		r.Generation, r.Err = store.Generation(ctx, !s.used())
		id = store.Settings().Store
	case handoff.Register:
		kind = callRegister
		r.States, r.Err = store.Register(ctx, e.Generation, e.Session, s.cfg.Settings.TTL, e.Holdings)
	case handoff.Renew:
		kind = callRenew
		r.Snapshot, r.Err = store.Renew(ctx, e.Generation, e.Incarnation, s.cfg.Settings.TTL)
	case handoff.Observe:
		kind = callObserve
		r.Snapshot, r.Err = store.Observe(ctx, e.Generation, e.Incarnation, e.Since, e.Suspects)
	case handoff.Apply:
		kind = callApply
		r.States, r.Err = store.Apply(ctx, e.Generation, e.Incarnation, e.Changes)
	case handoff.Clear:
		kind = callClear
		r.Err = store.Clear(ctx, e.Generation, e.Partition, e.Residue)
	case handoff.ClearLocks:
		kind = callClearLocks
		r.Err = store.ClearLocks(ctx, e.Generation, e.Moves)
	case handoff.WriteLocks:
		kind = callWriteLocks
		r.Wrote, r.Err = store.WriteLocks(ctx, e.Generation, e.Incarnation, e.Writes)
	case handoff.Release:
		kind = callRelease
		r.Err = store.Release(ctx, e.Incarnation)
	}
	s.calls.count(kind, time.Since(asked), r.Err)
	if r.Err != nil && !errors.Is(r.Err, records.ErrGeneration) && s.ctx.Err() == nil {
		s.cfg.Logger.Debug("call to the store failed", "call", kind.String(), "error", r.Err)
	}
	s.post(event{life: l, input: r, store: id, asked: asked})
}

// viewInput returns view as the input of a machine. sameRing says that its ring is that of the view
// before.
func viewInput(view *ring.View, before handoff.View, sameRing bool) handoff.View {
	in := handoff.View{Digest: view.Digest}
	for _, m := range view.Members {
		in.Floor = max(in.Floor, m.Epoch)
	}
	index := make(map[string]int32)
	for _, m := range view.Workers() {
		index[m.Incarnation] = int32(len(in.Workers))
		in.Workers = append(in.Workers, handoff.Peer{Incarnation: m.Incarnation, View: m.View})
	}
	if len(in.Workers) == 0 {
		return in
	}
	if sameRing {
		in.Owners = before.Owners
		return in
	}
	in.Owners = make([]int32, view.Table.Partitions())
	for p := range in.Owners {
		in.Owners[p] = -1
		if m, ok := view.Owner(p); ok {
			in.Owners[p] = index[m.Incarnation]
		}
	}
	return in
}

// used reports whether another worker is at work, which then has a store.
func (s *Shell) used() bool {
	view := s.cfg.Members.View()
	self := s.cfg.Keys.Incarnation()
	other := func(m ring.Member) bool { return m.Incarnation != self }
	return slices.ContainsFunc(view.Workers(), other) || len(ring.ActiveWorkers(view.Refused)) > 0
}
