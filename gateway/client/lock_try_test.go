package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/localmutex/locking"
	"github.com/keyway-go/keyway/ring"
)

// asks reports whether try asks an owner, whose answers are late.
func asks(s *site.Site, try func()) bool {
	s.Network.Delay(holds.Acquire, kit.TTL/100)
	defer s.Network.Delay("", 0)
	began := time.Now()
	try()
	return time.Since(began) > 0
}

// Who does not wait for a key that another caller of the same client has is told so without a call, and by whom.
func TestTryLockOfWhatIsHeldHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		s.StartServing()
		c, other := s.NewClient(), s.NewClient()
		refused := func(c *client.Client, want bool) {
			t.Helper()
			for what, try := range map[string]func() error{
				"TryLock": func() error {
					_, err := c.TryLock(t.Context(), "k")
					return err
				},
				"a mutex": func() error { return c.NewMutex("k").TryLock(t.Context()) },
				"TryDo": func() error {
					return c.TryDo(t.Context(), "k", func(gateway.Execution) error { return nil })
				},
			} {
				var err error
				if asked := asks(s, func() { err = try() }); asked != want {
					t.Errorf("%s asks the owner: %v", what, asked)
				}
				if !errors.Is(err, locking.ErrLocked) || !strings.Contains(err.Error(), "shop 7") {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		l := kit.Must(c.Lock(t.Context(), "k", locking.Label("shop 7")))
		refused(c, false)
		refused(other, true)
		time.Sleep(3 * kit.TTL)
		refused(c, false)
		within := kit.Must(c.TryLock(l.Context(), "k"))
		for _, l := range []*client.Lock{within, l} {
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		reader := kit.Must(c.TryRLock(t.Context(), "k", locking.Label("shop 7")))
		refused(c, false)
		second := kit.Must(c.TryRLock(t.Context(), "k"))
		for _, l := range []*client.Lock{reader, second} {
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := kit.Must(c.TryLock(t.Context(), "k")).Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An error of a lock says what it is about, and what to do.
func TestLockErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		s.StartServing()
		c := s.NewClient()
		l := kit.Must(c.Lock(t.Context(), "k", locking.Label("shop 7")))
		done, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("reason")
		cancel(reason)
		soon, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		_, empty := c.Lock(t.Context(), "")
		_, gone := c.Lock(done, "other")
		_, long := c.Lock(t.Context(), "other", locking.TTL(365*24*time.Hour))
		_, waited := c.Lock(t.Context(), "k", locking.Wait(time.Second))
		_, waitedElsewhere := s.NewClient().Lock(t.Context(), "k", locking.Wait(time.Second))
		_, own := c.Lock(soon, "k") // by its own caller, who does not say so
		_, here := c.TryLock(t.Context(), "k")
		_, elsewhere := s.NewClient().TryLock(t.Context(), "k")
		reader := kit.Must(c.RLock(t.Context(), "r"))
		_, upgrade := c.Lock(reader.Context(), "r")
		longer := l.Extend(t.Context(), 365*24*time.Hour)
		c.Close()
		closed := l.Unlock(t.Context())
		for what, tt := range map[string]struct {
			err  error
			is   error
			says []string
		}{
			"an empty key":             {empty, gateway.ErrNoKey, []string{"client: key"}},
			"a context that is done":   {gone, reason, []string{"\"other\""}},
			"too long a lease":         {long, locking.ErrOption, []string{"\"other\"", "24h", "Limits.MaxLease, --max-lease"}},
			"too long an extension":    {longer, locking.ErrOption, []string{"\"k\"", "24h", "Limits.MaxLease, --max-lease"}},
			"a bounded wait":           {waited, locking.ErrLocked, []string{"keyway: key \"k\" is still locked after 1s: locked by \"shop 7\", another caller of this client, at worker w1"}},
			"a bounded wait elsewhere": {waitedElsewhere, locking.ErrLocked, []string{"keyway: key \"k\" is locked by \"shop 7\" for another ", "at worker w1"}},
			"a wait for oneself":       {own, context.DeadlineExceeded, []string{"\"k\"", "locked by \"shop 7\""}},
			"a lock of this client":    {here, locking.ErrLocked, []string{"keyway: key \"k\" is locked by \"shop 7\", another caller of this client, at worker w1"}},
			"a lock of another client": {elsewhere, locking.ErrLocked, []string{"keyway: key \"k\" is locked by \"shop 7\" for another ", "at worker w1"}},
			"a lock for reading":       {upgrade, gateway.ErrLocked, []string{"keyway: key \"r\" is locked by the caller for reading: unlock it"}},
			"an Unlock after Close":    {closed, locking.ErrUnlockUnknown, []string{"\"k\"", "unlock first, then close"}},
		} {
			if !errors.Is(tt.err, tt.is) {
				t.Errorf("%s: %v, want %v", what, tt.err, tt.is)
				continue
			}
			for _, text := range tt.says {
				if says := tt.err.Error(); !strings.Contains(says, text) || strings.Count(says, `"k"`) > 1 {
					t.Errorf("%s: %v, which does not say %s", what, tt.err, text)
				}
			}
		}
	})
}

// Without an answer of its owner nobody knows that a key is locked.
func TestWaitWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		_ = kit.Must(s.NewClient().Lock(t.Context(), "k"))
		time.AfterFunc(time.Second, func() { s.Sever(w, true) })
		for _, what := range []string{"an owner that is cut off in the wait", "no owner"} {
			began := time.Now()
			_, err := c.Lock(t.Context(), "k", locking.Wait(3*time.Second))
			if took := time.Since(began); errors.Is(err, locking.ErrLocked) || !errors.Is(err, gateway.ErrUnavailable) || took > 3*time.Second+kit.TTL/50 {
				t.Errorf("%s: %v after %v", what, err, took)
			}
		}
	})
}

// Only the owner refuses a key that the client may have held for the last time.
func TestTrapTryLockOfWhatIsNotHeldHere(t *testing.T) {
	for name, tt := range map[string]struct {
		term   time.Duration // of the lock
		before func(s *site.Site, w *site.Worker, l *client.Lock)
		free   bool
	}{
		"it was unlocked": {kit.TTL, func(s *site.Site, _ *site.Worker, l *client.Lock) { _ = l.Unlock(s.T.Context()) }, true},
		"it is lost": {kit.TTL, func(s *site.Site, w *site.Worker, l *client.Lock) {
			_ = s.Store.Release(s.T.Context(), w.Incarnation())
			<-l.Context().Done()
		}, false},
		"its time is over": {kit.TTL, func(s *site.Site, w *site.Worker, _ *client.Lock) {
			s.Sever(w, true)
			time.Sleep(kit.TTL + time.Millisecond)
			s.Sever(w, false)
		}, true},
		"its last renewals have failed": {6 * kit.TTL, func(s *site.Site, w *site.Worker, _ *client.Lock) {
			s.Sever(w, true)
			time.Sleep(kit.TTL/2 + time.Millisecond) // between two attempts
			s.Sever(w, false)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := site.NewInBubble(t)
				w := s.StartServing()
				c := s.NewClient()
				l := kit.Must(c.Lock(t.Context(), "k", locking.TTL(tt.term)))
				tt.before(s, w, l)
				var got *client.Lock
				var err error
				if !asks(s, func() { got, err = c.TryLock(t.Context(), "k") }) || (err == nil) != tt.free {
					t.Errorf("without asking the owner, or its answer is %v", err)
				}
				if got != nil {
					_ = got.Unlock(t.Context())
				}
			})
		})
	}
}

// A worker that has just started has its partitions before it takes calls. Callers of a lock wait for it, as requests do.
func TestLockWaitsForAWorkerThatTakesNoCallsYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w, c := s.StartServing(), s.NewClient()
		takesCalls := func(does bool) {
			if err := w.Member.Announce(func(self *ring.Member) { self.Link = does }); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		takesCalls(false)
		if _, err := c.TryLock(t.Context(), "k"); !errors.Is(err, gateway.ErrUnavailable) {
			t.Errorf("TryLock returned %v", err)
		}
		time.AfterFunc(kit.TTL/10, func() { takesCalls(true) })
		l, err := c.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
