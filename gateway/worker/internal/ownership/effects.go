package ownership

import (
	"context"
	"errors"

	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

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
			s.agree.began, s.agree.trouble = true, nil
			if !s.agree.blocked {
				s.trouble.Store(nil)
			}
		}
		s.confirm(l, e.Lease)
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
		s.ended.Go(func() { s.call(l, effect) })
	case handoff.Register:
		if l.astray { // its session is in another store
			s.post(l, handoff.Reply{ID: e.ID, Err: records.ErrSessionGone})
			return
		}
		s.ended.Go(func() { s.call(l, effect) })
	default:
		s.ended.Go(func() { s.call(l, effect) })
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
func (s *Shell) call(l *life, effect handoff.Effect) {
	store := s.cfg.Store
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	began := s.cfg.Keys.Now()
	var kind storeCall
	var r handoff.Reply
	var id ring.StoreID
	switch e := effect.(type) {
	case handoff.FetchGeneration:
		kind, r.ID = callGeneration, e.ID
		if s.used() {
			r.Err = store.Exists(ctx)
		}
		if r.Err == nil {
			r.Generation, r.Err = store.Generation(ctx)
			id = store.Settings().Store
		}
	case handoff.Register:
		kind, r.ID = callRegister, e.ID
		r.States, r.Err = store.Register(ctx, e.Generation, e.Session, s.cfg.Settings.TTL, e.Holdings)
	case handoff.Renew:
		kind, r.ID = callRenew, e.ID
		r.Snapshot, r.Err = store.Renew(ctx, e.Generation, e.Incarnation, s.cfg.Settings.TTL)
	case handoff.Observe:
		kind, r.ID = callObserve, e.ID
		r.Snapshot, r.Err = store.Observe(ctx, e.Generation, e.Incarnation, e.Since, e.Suspects)
	case handoff.Apply:
		kind, r.ID = callApply, e.ID
		r.States, r.Err = store.Apply(ctx, e.Generation, e.Incarnation, e.Changes)
	case handoff.Clear:
		kind, r.ID = callClear, e.ID
		r.Err = store.Clear(ctx, e.Generation, e.Partition, e.Residue)
	case handoff.ClearLocks:
		kind, r.ID = callClearLocks, e.ID
		r.Err = store.ClearLocks(ctx, e.Generation, e.Moves)
	case handoff.WriteLocks:
		kind, r.ID = callWriteLocks, e.ID
		r.Wrote, r.Err = store.WriteLocks(ctx, e.Generation, e.Incarnation, e.Writes)
	case handoff.Release:
		kind, r.ID = callRelease, e.ID
		r.Err = store.Release(ctx, e.Incarnation)
	}
	s.calls.count(kind, s.cfg.Keys.Now()-began, r.Err)
	if r.Err != nil && !errors.Is(r.Err, records.ErrGeneration) && s.ctx.Err() == nil {
		s.cfg.Logger.Debug("call to the store failed", "call", kind.String(), "error", r.Err)
	}
	s.postEvent(event{life: l, input: r, store: id})
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
