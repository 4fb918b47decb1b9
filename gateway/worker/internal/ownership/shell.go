package ownership

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/ring"
)

// Start starts the shell of a worker. ctx bounds the start only.
func Start(ctx context.Context, cfg Config) (*Shell, error) {
	s := &Shell{cfg: cfg, wake: make(chan struct{}, 1), settled: make(chan struct{}), gone: make(chan struct{}), registered: make(chan struct{})}
	s.refused, s.refuse = context.WithCancelCause(context.Background())
	s.outlook.Store(new(handoff.Outlook))
	cfg.Keys.Owner = s
	s.agree.rivals = make(map[string]time.Time)
	s.Docket = newDocket(s)
	cfg.Keys.Guard = s.Docket
	s.Moves.init(&s.cfg)
	s.appless = cfg.Health(false)
	s.timeout = handoff.Config{TTL: cfg.Settings.TTL}.CallTimeout()
	if err := s.beginLife(ctx); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.ended.Go(s.run)
	s.Go(s.Docket.run)
	return s, nil
}

// Go runs f until the shell is closed, which waits for it.
func (s *Shell) Go(f func(ctx context.Context)) { s.ended.Go(func() { f(s.ctx) }) }

// Closed returns a channel that is closed when the shell is.
func (s *Shell) Closed() <-chan struct{} { return s.ctx.Done() }

// Close ends the shell, and what Go runs. The session expires by itself.
func (s *Shell) Close() {
	s.cfg.Keys.Draining.Store(true)
	s.cancel()
	s.ended.Wait()
}

// run is the goroutine that owns the machines.
func (s *Shell) run() {
	hints := s.cfg.Store.Watch(s.ctx)
	var hint <-chan time.Time // when to follow those that have come
	timer := time.NewTimer(0)
	defer timer.Stop()
	s.ended.Go(s.releasePrevious)
	for {
		changed := s.cfg.Members.Changed()
		s.passView()
		s.judge()
		s.followApps()
		s.followOrders()
		joins := s.join(time.Now())
		s.noteSettled()
		s.publish()
		s.turn.End()
		timer.Reset(min(s.untilNext(), joins, s.tellEpoch(time.Now()), s.Moves.flush(), s.noteProgress(time.Now())))
		select {
		case <-s.ctx.Done():
			return
		case <-changed:
		case <-timer.C:
			s.stepAll(handoff.Tick{})
		case h, ok := <-hints:
			if !ok {
				hints = nil
				continue
			}
			s.stepAll(handoff.Hinted{Hint: h})
			if s.current.machine.Knows(h) {
				continue
			}
			if delay := s.hintDelay(); hint == nil || delay == 0 {
				hint = time.After(delay)
			}
		case <-hint:
			hint = nil
			s.stepAll(handoff.Changed{})
		case <-s.wake:
			for _, e := range s.takeEvents() {
				s.handle(e)
			}
		}
	}
}

// hintDelay spreads the looks that follow a hint, which all workers get at once, over a
// millisecond for each of them; so several hints need one look. A worker that waits for others,
// until partitions or keys of its are free, looks at once. The store then serves it before the others, so
// even a few wait.
func (s *Shell) hintDelay() time.Duration {
	if s.Moves.waits() || s.shareOf(s.current.incarnation).owner != "" {
		return 0
	}
	return rand.N(time.Duration(max(s.crowd(), few)) * time.Millisecond)
}

// crowd returns how many workers there are. Those that have not joined the ring count too, by their sessions.
func (s *Shell) crowd() int { return max(len(s.view.Workers()), len(s.sessions)) }

// few is how many workers need not be spread out in time.
const few = 8

func (s *Shell) handle(e event) {
	switch in := e.input.(type) {
	case handoff.Leave:
		if !s.leaving {
			s.leaving = true
			s.cfg.Keys.Draining.Store(true)
			s.announce(func(self *ring.Member) { self.State = ring.StateLeaving })
			s.passView()
		}
	case handoff.LocksEnded:
		if s.cfg.Locks.Lingers(in.Partition) {
			return // it was served again meanwhile, and closed with other locks
		}
	case handoff.Reply:
		if e.life == s.current {
			s.renewals.answered(s.cfg.Keys.Now(), in, s.timeout)
		}
		if sessions := in.Snapshot.Sessions; in.Err == nil && len(sessions) > 0 {
			s.looked = e.asked
			if len(sessions) != len(s.sessions) || &sessions[0] != &s.sessions[0] { // others than last time
				s.sessions = sessions
				s.tellPeers(sessions)
				for _, session := range sessions {
					s.Moves.session(session.Incarnation, session.Name)
				}
			}
			s.tellWait(e.life, in.Snapshot)
			s.seePlacements(in.Snapshot)
			s.Docket.see(in.Snapshot.Notes[records.Suspects], sessions)
		}
		if in.Err == nil && in.Generation != "" {
			in.Err = s.arrive(e.life, e.store)
			e.input = in
		}
		s.noteAgreement(in.Err)
	}
	if e.life == nil {
		s.stepAll(e.input)
	} else {
		s.step(e.life, e.input)
	}
}

// tellPeers passes on where the store's live sessions gossip.
func (s *Shell) tellPeers(sessions []records.SessionState) {
	if s.cfg.OnPeers == nil {
		return
	}
	var peers []string
	for _, session := range sessions {
		if session.Gossip != "" {
			peers = append(peers, session.Gossip)
		}
	}
	slices.Sort(peers)
	if !slices.Equal(peers, s.peers) {
		s.peers = peers
		s.cfg.OnPeers(peers)
	}
}

func (s *Shell) takeEvents() []event {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.inbox
	s.inbox = nil
	return taken
}

func (s *Shell) untilNext() time.Duration {
	now := s.cfg.Keys.Instant(time.Now())
	wait := time.Hour
	for _, l := range s.lives {
		wait = min(wait, l.machine.Next(now))
	}
	return wait
}

// tellEvery is the least interval between announcements of a higher epoch.
const tellEvery = time.Second

// tellEpoch announces the highest epoch, unless another member has. It returns after how long it
// must be called again.
func (s *Shell) tellEpoch(now time.Time) time.Duration {
	if s.highest <= max(s.floor, s.told) {
		s.tellAt = time.Time{}
		return time.Hour
	}
	if s.tellAt.IsZero() { // whoever comes first tells for all that know of no higher one
		s.tellAt = now
		if n := s.crowd(); n > few {
			s.tellAt = now.Add(rand.N(time.Duration(n) * 10 * time.Millisecond))
		}
	}
	if wait := max(tellEvery-now.Sub(s.toldAt), s.tellAt.Sub(now)); wait > 0 {
		return wait
	}
	s.announce(func(*ring.Member) {})
	return time.Hour
}

// tellWait records how long the store wants a life to stay off the ring.
func (s *Shell) tellWait(l *life, snapshot records.Snapshot) {
	for _, session := range snapshot.Sessions {
		if session.Incarnation != l.incarnation {
			continue
		}
		wait := max(0, session.Joins-snapshot.Now)
		if wait > 0 && !l.told && l.first {
			s.cfg.Logger.Warn("this worker's name has died several times in a row: it joins the ring later", "worker", s.cfg.Name, "after", wait)
		}
		if !l.told && l.first {
			close(s.registered)
		}
		l.told, l.wait = true, wait
	}
}

// progressEvery is how often it is logged what a worker that leaves the ring still has.
const progressEvery = 5 * time.Second

// noteProgress logs that. It returns after how long it wants to be called again.
func (s *Shell) noteProgress(now time.Time) time.Duration {
	if !s.leaving && !s.drained {
		s.progress = time.Time{}
		return time.Hour
	}
	if s.progress.IsZero() {
		s.progress = now.Add(progressEvery)
	}
	if left := s.progress.Sub(now); left > 0 {
		return left
	}
	s.progress = now.Add(progressEvery)
	if serving, running := s.cfg.Keys.Serving(), s.cfg.Keys.Running(); serving+running > 0 {
		s.cfg.Logger.Info("this worker is still leaving the ring", "worker", s.cfg.Name, "partitions", serving, "running", running)
	}
	return progressEvery
}

// In a cluster of more than a few members a worker joins the ring after a calm: a time without
// changes of other workers. Workers that start together then join together, and the ring changes
// once. The calm lasts joinCalm, or joinEach per member if that is longer. It ends when another worker joins,
// since the ring changes then anyway, or when the worker has waited joinMost times as long.
const (
	joinCalm = 500 * time.Millisecond
	joinEach = 10 * time.Millisecond
	joinMost = 6
)

// join puts the worker on the ring once its session is confirmed. A process whose predecessors died
// one after the other waits for as long as the store says, if another worker serves meanwhile. It
// returns after how long it must be called again.
func (s *Shell) join(now time.Time) time.Duration {
	l := s.current
	if l.announced || !l.confirmed || !l.told || s.leaving || l.first && l.wait > 0 && s.othersServe() {
		return time.Hour
	}
	if l.joins.IsZero() {
		l.joins = now
	}
	if n := len(s.view.Members); n > few && !s.joined.After(l.joins) {
		calm := max(joinCalm, time.Duration(n)*joinEach)
		if wait := min(s.changed.Add(calm).Sub(now), l.joins.Add(joinMost*calm).Sub(now)); wait > 0 {
			return wait
		}
	}
	l.announced = true
	s.announceState()
	s.passView()
	return time.Hour
}

// noteSettled records when the worker serves all that the ring gives it.
func (s *Shell) noteSettled() {
	if s.isSettled.Load() || s.leaving {
		return
	}
	of := s.shareOf(s.current.incarnation)
	if !of.onRing || of.served < of.given {
		return
	}
	s.isSettled.Store(true)
	s.cfg.Logger.Info("this worker is active: it serves all that the ring gives it", "worker", s.cfg.Name, "partitions", of.served)
	if !s.wasSettled {
		s.wasSettled = true
		close(s.settled)
	}
}

// publish stores the outlook: refused calls say by it what an unserved partition waits for.
func (s *Shell) publish() {
	outlook := s.current.machine.Outlook()
	s.Moves.quarantine = max(s.Moves.quarantine, outlook.Quarantine())
	s.outlook.Store(outlook)
}

// joinKnown, and the time that a release takes, is as a rule enough for few members to learn that a worker has joined the ring.
const joinKnown = 20 * time.Millisecond

// releasePrevious releases the sessions of processes that are known to be dead. It
// waits until their app has had its time, and until this process has a session: the
// store believes that a name's latest incarnation, when it is released, has left in
// order. By then the process has also joined the ring, if it may. So it takes over itself
// what the others would have to give back. It tries until the sessions have expired by themselves.
func (s *Shell) releasePrevious() {
	cfg, began := &s.cfg, time.Now()
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Settings.TTL)
	defer cancel()
	sooner := func(a, b string) int { return cmp.Compare(cfg.Previous[a], cfg.Previous[b]) }
	for i, id := range slices.SortedFunc(maps.Keys(cfg.Previous), sooner) {
		if wait := cfg.Previous[id] - time.Since(began); wait > 0 {
			cfg.Logger.Info("the app may still work for the worker before this one: its session is released when the app has had time to end", "incarnation", id, "wait", wait)
			if !wake.Sleep(wait, ctx.Done()) {
				return
			}
		}
		select {
		case <-s.registered:
		case <-ctx.Done():
		}
		if i == 0 && s.othersServe() {
			wake.Sleep(joinKnown, ctx.Done())
		}
		for cfg.Store.Release(ctx, id) != nil {
			if !wake.Sleep(s.timeout/4, ctx.Done()) {
				cfg.Logger.Warn("could not release the session of the process before this one: its partitions are taken over when it expires", "incarnation", id)
				return
			}
		}
		s.Post(handoff.Changed{}) // the store's own hint may have come before this process listened
	}
}
