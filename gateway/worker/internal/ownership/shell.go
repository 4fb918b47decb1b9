package ownership

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/ring"
)

// Shell drives the ownership machine: one goroutine, run, steps it with events and carries out its
// effects. All other goroutines only post events, under mu. A shell runs until ctx is cancelled;
// leaving and drained say how it stands to the ring, and one life follows another when its session
// is lost.
type Shell struct {
	cfg       Config
	outlook   atomic.Pointer[handoff.Outlook] // of the present incarnation
	offRing   atomic.Bool                     // it was told to leave the ring, see leaveRing
	isSettled atomic.Bool                     // the present incarnation has served all that the ring gave it
	trouble   atomic.Pointer[error]           // why the worker does not begin, or has stopped
	lost      atomic.Int64                    // sessions

	ctx     context.Context // of the goroutine and of calls to the store
	cancel  context.CancelFunc
	ended   sync.WaitGroup
	settled chan struct{} // closed when isSettled is true for the first time
	gone    chan struct{} // closed when the last life has released its session

	refused    context.Context // done when the worker has not begun for a TTL, with the reason
	refuse     context.CancelCauseFunc
	registered chan struct{} // closed when the first life's session was confirmed

	wake  chan struct{} // holds one token while inbox is not empty, or run is to look around
	mu    sync.Mutex    // guards inbox
	inbox []event
	turn  wake.Round // of run

	calls storeCalls

	// The fields below belong to run, except a part of Moves.
	view       *ring.View
	viewed     handoff.View // what the machines were told of view
	changed    time.Time    // when another worker came, went or changed its state
	current    *life
	lives      []*life // current, and lost ones that still have handlers to wait for
	leaving    bool
	wasSettled bool
	sessions   []records.SessionState // in the latest snapshot
	peers      []string               // last passed to OnPeers
	agree      agreement
	appless    error // why the worker is off the ring because of its app; nil if it is not
	drained    bool  // it was told to leave the ring, until it is told to come back
	Moves      Moves
	renewals   renewals
	progress   time.Time // when the progress of leaving is logged next

	highest int64     // epoch that any life knew of
	floor   int64     // highest epoch that a member of view announces
	told    int64     // highest epoch that this member has announced
	toldAt  time.Time // when that was
	tellAt  time.Time // earliest time of the next announcement; zero if there is none

	timeout time.Duration // of a call to the store; never changes
}

// life is one incarnation of the worker. run owns it. It gets its session confirmed and joins the
// ring. If the session is lost, a new life follows unless the worker leaves; the lost one ends
// after its handlers.
type life struct {
	machine     *handoff.Machine
	incarnation string
	first       bool          // of the process
	confirmed   bool          // its session, at least once
	told        bool          // by the store, of wait
	wait        time.Duration // how long to stay off the ring, when last told
	joins       time.Time     // since when it could be on the ring; zero while it could not
	announced   bool          // as active
	store       ring.StoreID  // in which it is
	astray      bool          // the store has become another one
}

// event is an input for one life, or with a nil life for all.
type event struct {
	life  *life
	input handoff.Input
	store ring.StoreID // with the reply to handoff.FetchGeneration: where that comes from
}

// Start starts the shell of a worker. ctx bounds the start only.
func Start(ctx context.Context, cfg Config) (*Shell, error) {
	s := &Shell{cfg: cfg, wake: make(chan struct{}, 1), settled: make(chan struct{}), gone: make(chan struct{}), registered: make(chan struct{})}
	s.refused, s.refuse = context.WithCancelCause(context.Background())
	s.outlook.Store(new(handoff.Outlook))
	cfg.Keys.Owner = s
	s.agree.rivals = make(map[string]time.Time)
	s.Moves.init(&s.cfg)
	s.appless = cfg.Health(false)
	s.timeout = handoff.Config{TTL: cfg.Settings.TTL}.CallTimeout()
	if err := s.beginLife(ctx); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.ended.Go(s.run)
	return s, nil
}

// Go runs f until the shell is closed, which waits for it.
func (s *Shell) Go(f func(ctx context.Context)) { s.ended.Go(func() { f(s.ctx) }) }

// Closed returns a channel that is closed when the shell is.
func (s *Shell) Closed() <-chan struct{} { return s.ctx.Done() }

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

// Close ends the shell, and what Go runs. The session expires by itself.
func (s *Shell) Close() {
	s.cfg.Keys.Draining.Store(true)
	s.cancel()
	s.ended.Wait()
}

// Post passes in to all lives.
func (s *Shell) Post(in handoff.Input) { s.post(nil, in) }

func (s *Shell) post(l *life, in handoff.Input) { s.postEvent(event{life: l, input: in}) }

func (s *Shell) postEvent(e event) {
	s.mu.Lock()
	s.inbox = append(s.inbox, e)
	s.mu.Unlock()
	s.Poke()
}

// Poke makes run look around.
func (s *Shell) Poke() { wake.Up(s.wake) }

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
		case _, ok := <-hints:
			if !ok {
				hints = nil
				continue
			}
			if hint == nil {
				hint = time.After(s.hintDelay())
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

// few is how many workers need not be spread out in time.
const few = 8

// hintDelay spreads the looks that follow a hint, which all workers get at once, over a
// millisecond for each of them; so several hints need one look. A worker that waits for others,
// until partitions or keys of its are free, looks at once, and so does each of a few.
func (s *Shell) hintDelay() time.Duration {
	delay := s.spread(time.Millisecond)
	if delay > 0 && (s.Moves.waits() || s.awaits(s.current.incarnation)) {
		return 0
	}
	return delay
}

// spread returns a random part of that much for each worker, and 0 where they are few. Workers that have not joined
// the ring count too, by their sessions.
func (s *Shell) spread(each time.Duration) time.Duration {
	if n := max(len(s.view.Workers()), len(s.sessions)); n > few {
		return rand.N(time.Duration(n) * each)
	}
	return 0
}

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
	case handoff.Finished:
		s.Moves.finished(in)
	case handoff.Reply:
		if e.life == s.current {
			s.renewals.answered(s.cfg.Keys.Now(), in, s.timeout)
		}
		if sessions := in.Snapshot.Sessions; in.Err == nil && len(sessions) > 0 {
			if len(sessions) != len(s.sessions) || &sessions[0] != &s.sessions[0] { // others than last time
				s.sessions = sessions
				s.tellPeers(sessions)
				s.observed(sessions)
			}
			s.tellWait(e.life, in.Snapshot)
		}
		if in.Err == nil && in.Generation != "" {
			in.Err = s.arrive(e.life, e.store)
			e.input = in
		}
		s.noteAgreement(in.Err)
		s.calls.noteResult(in.Err)
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

// beginLife starts a new incarnation, unless ctx has ended.
func (s *Shell) beginLife(ctx context.Context) error {
	cfg := &s.cfg
	id, self := crand.Text(), cfg.Members.Self()
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

func (s *Shell) announce(update func(*ring.Member)) {
	s.told, s.toldAt = s.highest, time.Now()
	err := s.cfg.Members.Announce(func(self *ring.Member) {
		update(self)
		self.Epoch = max(self.Epoch, s.highest)
	})
	if err != nil {
		s.cfg.Logger.Error("cannot tell the other members of a change", "error", err)
	}
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
		s.tellAt = now.Add(s.spread(10 * time.Millisecond))
	}
	if wait := max(tellEvery-now.Sub(s.toldAt), s.tellAt.Sub(now)); wait > 0 {
		return wait
	}
	s.announce(func(*ring.Member) {})
	return time.Hour
}

// passView passes a changed view on.
func (s *Shell) passView() {
	view := s.cfg.Members.View()
	if view == s.view {
		return
	}
	sameRing := s.view != nil && s.view.Digest == view.Digest
	s.view = view
	died, changed := s.Moves.view(view, sameRing)
	if changed {
		s.changed = time.Now()
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

// confirm records that a life's session was confirmed for the first time.
func (s *Shell) confirm(l *life, lease handoff.Lease) {
	if l.confirmed || lease == (handoff.Lease{}) {
		return
	}
	l.confirmed = true
	if l.first {
		close(s.registered)
	}
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
		l.told, l.wait = true, wait
	}
}

// announceTakeovers says of workers that are gone when their partitions are served
// again.
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
// once. The calm lasts joinCalm, or joinEach per member if that is longer. The worker waits for it
// at most joinMost times as long.
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
	if n := len(s.view.Members); n > few {
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
	given, served, onRing := s.share(s.current.incarnation)
	if !onRing || served < given {
		return
	}
	s.isSettled.Store(true)
	s.cfg.Logger.Info("this worker is active: it serves all that the ring gives it", "worker", s.cfg.Name, "partitions", served)
	if !s.wasSettled {
		s.wasSettled = true
		close(s.settled)
	}
}

// publish stores the outlook: refused calls say by it what an unserved partition waits for.
func (s *Shell) publish() {
	if outlook := s.current.machine.Outlook(); !outlook.Same(s.outlook.Load()) {
		s.Moves.quarantine = max(s.Moves.quarantine, outlook.Quarantine())
		s.outlook.Store(outlook)
	}
}

func (s *Shell) endLife(l *life) {
	s.lives = slices.DeleteFunc(s.lives, func(other *life) bool { return other == l })
	if s.leaving && len(s.lives) == 0 {
		close(s.gone)
	}
}

// releasePrevious releases the sessions of processes that are known to be dead. It
// waits until their app has had its time, and until this process has a session: the
// store believes that a name's latest incarnation, when it is released, has left in
// order. It tries until the sessions have expired by themselves.
func (s *Shell) releasePrevious() {
	cfg, began := &s.cfg, time.Now()
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Settings.TTL)
	defer cancel()
	sooner := func(a, b string) int { return cmp.Compare(cfg.Previous[a], cfg.Previous[b]) }
	for _, id := range slices.SortedFunc(maps.Keys(cfg.Previous), sooner) {
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
		for cfg.Store.Release(ctx, id) != nil {
			if !wake.Sleep(s.timeout/4, ctx.Done()) {
				cfg.Logger.Warn("could not release the session of the process before this one: its partitions are taken over when it expires", "incarnation", id)
				return
			}
		}
	}
}
