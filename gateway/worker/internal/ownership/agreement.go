package ownership

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/ring"
)

// detection is how long gossip may take, at most, to notice that a member died.
const detection = 20 * time.Second

// pinger is a membership that can ask a member whether it lives.
type pinger interface{ Ping(m ring.Member) bool }

// agreement makes workers that share a ring share a store. With two stores a key would have an
// owner in each. The shell's goroutine owns it.
//
// A worker that joins does not begin while active workers use another store. When active workers
// meet, those with the younger store stop. If the stores have the same identity, because one is a
// copy, a worker notices active workers without a session in its own store. They count if they
// answer, since a dead worker is active too until gossip notices. Then the smaller group stops, or on
// a tie the group without the lowest incarnation.
type agreement struct {
	rivals  map[string]time.Time // by incarnation: when one before which we stop was last seen at work
	blocked bool                 // there are rivals
	lease   handoff.Lease        // what the worker's would be if it were not blocked
	missing map[string]*absence  // active workers that have no session in the latest snapshot
	trouble error                // why the worker may not begin; nil for no reason
	since   time.Time            // when trouble began
	began   bool                 // a session was confirmed
	warned  bool                 // of workers that should stop
}

// absence is that of an active worker from our store.
type absence struct {
	since   time.Time
	asked   time.Time    // latest
	answers atomic.Int32 // to pings
}

// arrive takes note of the store's identity as it is in the generation that a
// life has fetched, and returns why the life must not register there.
func (s *Shell) arrive(l *life, store ring.StoreID) error {
	if l.store != 0 && l.store != store {
		s.cfg.Logger.Error("the store is another one than before: this incarnation ends", "worker", s.cfg.Name, "was", l.store, "is", store)
		l.astray = true
		return nil
	}
	l.store = store
	if l != s.current {
		return nil
	}
	s.announce(func(self *ring.Member) { self.StoreID = store })
	s.passView()
	if refused := ring.ActiveWorkers(s.view.Refused); len(refused) > 0 && !l.confirmed {
		return hop.OtherStore(s.current.store, refused[0])
	}
	return nil
}

// noteAgreement remembers why the store was not to be used, or that it was.
func (s *Shell) noteAgreement(err error) {
	if !errors.Is(err, ring.ErrSettings) {
		return
	}
	if s.agree.trouble == nil {
		s.agree.since = time.Now()
	}
	if s.agree.trouble == nil || s.agree.trouble.Error() != err.Error() {
		s.cfg.Logger.Error("this worker does not begin", "worker", s.cfg.Name, "error", err)
	}
	s.agree.trouble = err
	s.trouble.Store(&err)
}

// judge decides whether the worker stops, and whether it gives up beginning.
func (s *Shell) judge() {
	a, now := &s.agree, time.Now()
	if a.trouble != nil && !a.began && now.Sub(a.since) >= s.cfg.Settings.TTL {
		s.refuse(a.trouble)
	}
	why := cmp.Or(s.olderStore(now), s.copiedStore(now))
	for inc, seen := range a.rivals {
		if _, agrees := s.view.Find(inc); agrees && !s.isElsewhere(inc) || now.Sub(seen) > s.cfg.Settings.TTL {
			delete(a.rivals, inc)
		}
	}
	switch blocked := len(a.rivals) > 0; {
	case blocked && !a.blocked:
		a.blocked = true
		s.cfg.Logger.Error("this worker stops", "worker", s.cfg.Name, "error", why)
		s.trouble.Store(&why)
		s.cfg.Keys.Lease.Store(new(handoff.Lease))
		s.cancelHandlers(handoff.CancelHandlers{All: true})
		s.announceState()
	case !blocked && a.blocked:
		a.blocked = false
		s.cfg.Logger.Warn("this worker goes on", "worker", s.cfg.Name)
		s.trouble.Store(nil)
		lease := a.lease
		s.cfg.Keys.Lease.Store(&lease)
		s.announceState()
	}
}

// olderStore adds active workers of an older store to the rivals.
func (s *Shell) olderStore(now time.Time) (why error) {
	for _, m := range ring.ActiveWorkers(s.view.Refused) {
		if s.current.confirmed && m.StoreID < s.current.store {
			s.agree.rivals[m.Incarnation] = now
			why = hop.OtherStore(s.current.store, m)
		}
	}
	return why
}

// copiedStore adds active workers that have had no session in our store for long enough to the
// rivals, if this worker must stop before them.
func (s *Shell) copiedStore(now time.Time) (why error) {
	a := &s.agree
	if s.sessions == nil {
		return nil
	}
	shown := make(map[string]bool, len(s.sessions))
	for _, session := range s.sessions {
		shown[session.Incarnation] = true
	}
	var elsewhere []ring.Member
	before := a.missing
	a.missing = make(map[string]*absence)
	for _, m := range s.view.Workers() {
		if shown[m.Incarnation] || m.Incarnation == s.current.incarnation {
			continue
		}
		a.missing[m.Incarnation] = cmp.Or(before[m.Incarnation], &absence{since: now})
		s.ask(m, a.missing[m.Incarnation], now)
		if s.isElsewhere(m.Incarnation) {
			elsewhere = append(elsewhere, m)
		}
	}
	if len(elsewhere) == 0 {
		return nil
	}
	here := slices.DeleteFunc(slices.Clone(s.view.Workers()), func(m ring.Member) bool { return a.missing[m.Incarnation] != nil })
	first := elsewhere[0]
	why = fmt.Errorf("%w: worker %q (%s) is active without a session in this store, %v: it uses another one: give all members of a cluster the same --store or --redis", ring.ErrSettings, first.Name, first.Gossip, s.current.store)
	if len(elsewhere) < len(here) || len(elsewhere) == len(here) && lowest(here) < lowest(elsewhere) {
		if !a.warned {
			s.cfg.Logger.Error("a worker uses another store, and should stop", "worker", s.cfg.Name, "error", why)
		}
		a.warned = true
		return nil
	}
	for _, m := range elsewhere {
		a.rivals[m.Incarnation] = now
	}
	return why
}

// ask pings a missing worker twice, from half a TTL on, in case it begins a new incarnation meanwhile.
func (s *Shell) ask(m ring.Member, missing *absence, now time.Time) {
	ttl := s.cfg.Settings.TTL
	members, asks := s.cfg.Members.(pinger)
	if !asks || missing.answers.Load() > 1 || now.Sub(missing.since) < ttl/2 || now.Sub(missing.asked) < ttl/4 {
		return
	}
	missing.asked = now
	s.ended.Go(func() {
		if members.Ping(m) {
			missing.answers.Add(1)
		}
	})
}

// isElsewhere reports whether a worker has lived for a TTL without a session in our store. Only snapshots show that:
// time without any shows nothing.
func (s *Shell) isElsewhere(incarnation string) bool {
	missing := s.agree.missing[incarnation]
	if missing == nil {
		return false
	}
	absent := s.looked.Sub(missing.since)
	return absent >= s.cfg.Settings.TTL && (missing.answers.Load() > 1 || absent >= detection)
}

func lowest(members []ring.Member) string {
	return slices.MinFunc(members, func(a, b ring.Member) int { return cmp.Compare(a.Incarnation, b.Incarnation) }).Incarnation
}

// announceState announces whether the worker is on the ring.
func (s *Shell) announceState() {
	if s.leaving || !s.current.announced {
		return
	}
	state := ring.StateActive
	if s.agree.blocked || s.appless != nil || s.drained {
		state = ring.StateJoining
	}
	s.announce(func(self *ring.Member) { self.State = state })
}
