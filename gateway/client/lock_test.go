package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/local"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/lockingtest"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// Locks of clients elsewhere, and of the owner's own process, are as all locks are.
func TestLocker(t *testing.T) {
	c := site.New(t, 16)
	w := c.StartReady()
	h := w.Handler(nil)
	addr := w.Listen(t, h)
	kit.Eventually(t, "it takes the link", func() bool {
		m, _ := w.Member.View().Find(w.Incarnation())
		return m.Link && m.Addr == addr
	})
	locker := func(at local.Worker) locking.Locker {
		return locking.Of(site.NewClient(t, client.Config{Members: w.Member, Local: at}))
	}
	for name, two := range map[string][2]locking.Locker{
		"elsewhere":            {locker(nil), locker(nil)},
		"at one's own worker":  {locker(w.Local(h)), locker(w.Local(h))},
		"there, and elsewhere": {locker(w.Local(h)), locker(nil)},
	} {
		t.Run(name, func(t *testing.T) { lockingtest.Run(t, two[0], two[1]) })
	}
}

// A lock is renewed until it is unlocked, and free at its owner when Unlock returns.
func TestLock(t *testing.T) {
	for _, term := range []time.Duration{0, kit.TTL / 10} {
		synctest.Test(t, func(t *testing.T) {
			s := site.NewInBubble(t)
			w := s.StartServing()
			l := kit.Must(s.NewClient().Lock(t.Context(), "k", locking.TTL(term)))
			time.Sleep(3 * kit.TTL)
			if err := l.Context().Err(); err != nil || w.IsFree(t, "k") {
				t.Errorf("TTL %v: after a while: %v", term, context.Cause(l.Context()))
			}
			if err := l.Unlock(t.Context()); err != nil || !w.IsFree(t, "k") {
				t.Errorf("TTL %v: Unlock: %v", term, err)
			}
		})
	}
}

// A TTL that is shorter than the session's is kept: its lock ends in that time without its
// holder, whose work has ended before.
func TestTrapShortLeaseEnds(t *testing.T) {
	const term = kit.TTL / 10
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		l := kit.Must(s.NewClient().Lock(t.Context(), "k", locking.TTL(term)))
		time.Sleep(kit.TTL)
		s.Sever(w, true)
		cut := time.Now()
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error { return nil })
		if d := time.Since(cut); d > term || d < term*7/10 || l.Context().Err() == nil || l.Until().After(time.Now()) {
			t.Errorf("free after %v, with the holder at work: %v, until %v", d, l.Context().Err() == nil, time.Until(l.Until()))
		}
	})
}

// A lock that lasts longer than a session outlives its owner: its holder goes on, and nobody else has it.
func TestTrapLongLockOutlivesItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		a := s.StartServing()
		l := kit.Must(s.NewClient().Lock(t.Context(), "k", locking.TTL(6*kit.TTL)))
		time.Sleep(kit.TTL) // it has been renewed
		b := s.StartServing()
		s.Kill(a)
		b.AwaitServing(t, 16)
		for range 4 {
			if l.Context().Err() != nil || b.IsFree(t, "k") {
				t.Fatalf("at the next owner: context %v, free: %v", context.Cause(l.Context()), b.IsFree(t, "k"))
			}
			time.Sleep(2 * kit.TTL)
		}
		if err := l.Unlock(t.Context()); err != nil || !b.IsFree(t, "k") {
			t.Errorf("Unlock: %v", err)
		}
	})
}

// Whoever waits longer than a worker lets him goes on to wait.
func TestLockWaitsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing(func(cfg *worker.Config) { cfg.MaxWait = time.Second })
		c := s.NewClient()
		var all sync.WaitGroup
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			all.Go(func() {
				l, err := c.Lock(t.Context(), "k")
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if _, err := c.Lock(t.Context(), "k", locking.Wait(3*time.Second)); !errors.Is(err, locking.ErrLocked) {
					t.Errorf("a bounded wait: %v", err)
				}
			})
			time.Sleep(5 * time.Second)
			return nil
		})
		all.Wait()
		if !w.IsFree(t, "k") {
			t.Error("the key is held")
		}
	})
}

// Unlock says whether the lock was the caller's up to then, or that nobody knows.
func TestTrapUnlockTellsTheTruth(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(s *site.Site, w *site.Worker, l *client.Lock)
		want   error
	}{
		"held":                   {func(*site.Site, *site.Worker, *client.Lock) {}, nil},
		"its connection is lost": {func(s *site.Site, w *site.Worker, _ *client.Lock) { s.Sever(w, false) }, nil},
		"it has expired": {func(s *site.Site, w *site.Worker, l *client.Lock) {
			s.Sever(w, true)
			<-l.Context().Done()
			time.Sleep(kit.TTL)
			s.Sever(w, false)
		}, locking.ErrNotOwner},
		"its owner has lost its session": {func(s *site.Site, w *site.Worker, l *client.Lock) {
			_ = s.Store.Release(s.T.Context(), w.Incarnation())
			<-l.Context().Done()
		}, locking.ErrNotOwner},
		"its owner cannot be reached": {func(s *site.Site, w *site.Worker, _ *client.Lock) { s.Sever(w, true) }, locking.ErrUnlockUnknown},
		"the answer is lost": {func(s *site.Site, w *site.Worker, _ *client.Lock) {
			s.Mute(w)
			time.AfterFunc(kit.TTL/4, func() { s.Unmute(w) })
		}, nil},
		"the answer is lost, and what its owner knows": {func(s *site.Site, w *site.Worker, _ *client.Lock) {
			s.Mute(w)
			time.AfterFunc(kit.TTL/4, func() {
				_ = s.Store.Release(s.T.Context(), w.Incarnation())
				time.Sleep(kit.TTL / 4)
				s.Unmute(w)
			})
		}, locking.ErrUnlockUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := site.NewInBubble(t)
				w := s.StartServing()
				l := kit.Must(s.NewClient().Lock(t.Context(), "k"))
				tt.before(s, w, l)
				err := l.Unlock(t.Context())
				if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
					t.Errorf("%v, want %v", err, tt.want)
				}
			})
		})
	}
}

// A lock is released in the background when its caller does not wait for that.
func TestUnlockGoesOnInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		l := kit.Must(c.Lock(t.Context(), "k"))
		s.Sever(w, true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Unlock(ctx); !errors.Is(err, locking.ErrUnlockUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		s.Sever(w, false)
		time.Sleep(kit.TTL / 5)
		if !w.IsFree(t, "k") {
			t.Error("the key is held though its owner can be reached again")
		}
	})
}

// A call for a key that is held along the context is a part of what holds it.
func TestNestedLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		outer := kit.Must(c.Lock(t.Context(), "k"))
		inner := kit.Must(c.TryLock(outer.Context(), "k"))
		if inner.Token() != outer.Token() || time.Until(inner.Until()) <= 0 {
			t.Errorf("tokens %d and %d, until %v", inner.Token(), outer.Token(), inner.Until())
		}
		if err := inner.Unlock(t.Context()); err != nil || w.IsFree(t, "k") || outer.Context().Err() != nil {
			t.Errorf("the inner Unlock: %v", err)
		}
		late := kit.Must(c.Lock(outer.Context(), "k"))
		if err := outer.Unlock(t.Context()); err != nil || w.IsFree(t, "k") || late.Context().Err() != nil {
			t.Errorf("the outer Unlock: %v, with the inner one at work: %v", err, late.Context().Err() == nil)
		}
		if err := late.Unlock(t.Context()); err != nil || !w.IsFree(t, "k") || outer.Context().Err() == nil {
			t.Errorf("an Unlock after the outer one: %v", err)
		}
	})
}

// Who extends a lock to a shorter TTL counts on no more than its owner gives it from then on, also
// if he has not heard of that.
func TestTrapExtensionWithoutAnAnswer(t *testing.T) {
	const short = kit.TTL / 5
	for _, answered := range []bool{true, false} {
		t.Run(fmt.Sprint("answered ", answered), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := site.NewInBubble(t)
				w := s.StartServing()
				l := kit.Must(s.NewClient().Lock(t.Context(), "k"))
				if !answered {
					s.Mute(w)
				}
				ctx, cancel := context.WithTimeout(t.Context(), kit.TTL/20)
				defer cancel()
				if err := l.Extend(ctx, short); (err == nil) != answered {
					t.Errorf("Extend: %v", err)
				}
				s.Unmute(w)
				time.Sleep(2 * kit.TTL)
				if l.Context().Err() != nil {
					t.Fatal("the lock is lost")
				}
				s.Sever(w, true)
				_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
					if l.Context().Err() == nil || l.Until().After(time.Now()) {
						t.Errorf("the key is another's, and its holder has it for %v", time.Until(l.Until()))
					}
					return nil
				})
			})
		})
	}
}

// A lock whose extension had no answer can be extended again.
func TestExtendAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		l := kit.Must(s.NewClient().Lock(t.Context(), "k", locking.TTL(kit.TTL/5)))
		s.Mute(w)
		ctx, cancel := context.WithTimeout(t.Context(), kit.TTL/50)
		defer cancel()
		if err := l.Extend(ctx, kit.TTL/2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without an answer: %v", err)
		}
		s.Unmute(w)
		if err := l.Extend(t.Context(), kit.TTL); err != nil || time.Until(l.Until()) < kit.TTL*7/10 {
			t.Errorf("again: %v, %v left", err, time.Until(l.Until()))
		}
		time.Sleep(2 * kit.TTL)
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A lock at the process's own worker that is to outlast it is one of its owner, as elsewhere.
func TestLockAtOnesOwnWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient(func(cfg *client.Config) { cfg.Local = w.Local(w.Handler(nil)) })
		for term, holds := range map[time.Duration]int{0: 0, kit.TTL: 0, 2 * kit.TTL: 1} {
			l := kit.Must(c.Lock(t.Context(), "k", locking.TTL(term)))
			if got := w.Status().Holds; got != holds {
				t.Errorf("TTL %v: %d holds, want %d", term, got, holds)
			}
			if err := l.Extend(t.Context(), kit.TTL+1); (err == nil) != (holds == 1) || err != nil && !errors.Is(err, locking.ErrOption) {
				t.Errorf("TTL %v: Extend: %v", term, err)
			}
			if err := l.Unlock(t.Context()); err != nil || !w.IsFree(t, "k") {
				t.Errorf("TTL %v: Unlock: %v", term, err)
			}
		}
		_ = w.Do(t.Context(), "k", func(x gateway.Execution) error {
			l := kit.Must(c.Lock(x.Context(), "k"))
			if l.Token() != x.Token() {
				t.Errorf("token %d in an execution with token %d", l.Token(), x.Token())
			}
			return l.Unlock(t.Context())
		})
		l := kit.Must(c.Lock(t.Context(), "k"))
		_ = s.Store.Release(s.T.Context(), w.Incarnation())
		<-l.Context().Done()
		if err := l.Unlock(t.Context()); !errors.Is(err, locking.ErrNotOwner) || !errors.Is(err, gateway.ErrOwnershipLost) {
			t.Errorf("a lock that was lost: %v", err)
		}
	})
}

// late is a worker that grants keys at the very moment at which their callers give up.
type late struct {
	local.Worker
	giveUp func()
}

func (l late) Acquire(ctx context.Context, key string, epoch int64, try bool, wait time.Duration) (context.Context, int64, func(), error) {
	defer l.giveUp()
	return l.Worker.Acquire(ctx, key, epoch, try, wait)
}

// A context that is done loses against a grant, and leaves nothing locked.
func TestTrapGrantedWhenGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		reason := errors.New("reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		c := s.NewClient(func(cfg *client.Config) {
			cfg.Local = late{w.Local(w.Handler(nil)), func() { cancel(reason) }}
		})
		if l, err := c.Lock(ctx, "k"); l != nil || !errors.Is(err, reason) || !w.IsFree(t, "k") {
			t.Errorf("%v, %v", l, err)
		}
	})
}

func TestLockOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		s.StartServing()
		c := s.NewClient()
		for what, opt := range map[string]locking.Option{
			"a label that is too long for the wire": locking.Label(strings.Repeat("x", 65)),
			"a label with control characters":       locking.Label("a\nb"),
		} {
			if l, err := c.Lock(t.Context(), "k", opt); l != nil || !errors.Is(err, locking.ErrOption) {
				t.Errorf("%s: %v", what, err)
			}
		}
		l := kit.Must(c.Lock(t.Context(), "k", locking.Label("shop 7")))
		if _, err := c.TryLock(t.Context(), "k"); !errors.Is(err, locking.ErrLocked) || !strings.Contains(err.Error(), "shop 7") {
			t.Errorf("%v, which does not name the holder", err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		m, other := c.NewMutex("k", locking.TTL(kit.TTL/2)), c.NewMutex("k")
		unlocked := func(m *client.Mutex) {
			t.Helper()
			if m.Token() != 0 || !m.Until().IsZero() || m.Context().Err() == nil {
				t.Errorf("token %d, until %v, context %v", m.Token(), m.Until(), m.Context().Err())
			}
			for what, err := range map[string]error{"Unlock": m.Unlock(t.Context()), "Extend": m.Extend(t.Context(), 0)} {
				if !errors.Is(err, locking.ErrNotOwner) {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		unlocked(m)
		last := int64(0)
		for _, lock := range []func(context.Context) error{m.Lock, m.TryLock} {
			if err := lock(t.Context()); err != nil || m.Token() <= last || m.Context().Err() != nil || time.Until(m.Until()) <= 0 {
				t.Fatalf("%v, token %d after %d", err, m.Token(), last)
			}
			last = m.Token()
			for what, err := range map[string]error{"itself": m.Lock(t.Context()), "another": other.TryLock(t.Context())} {
				if !errors.Is(err, locking.ErrLocked) {
					t.Errorf("locked by %s: %v", what, err)
				}
			}
			if err := m.Extend(t.Context(), kit.TTL); err != nil || time.Until(m.Until()) < kit.TTL/2 {
				t.Errorf("Extend: %v, until %v", err, time.Until(m.Until()))
			}
			if err := m.Unlock(t.Context()); err != nil || !w.IsFree(t, m.Key()) {
				t.Errorf("Unlock: %v", err)
			}
			unlocked(m)
		}
	})
}

// Readers have a key together, also at their own worker and over a move, and no writer beside
// them or within one of their locks.
func TestRLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		h := w.Handler(nil)
		a, b := s.NewClient(), s.NewClient(func(cfg *client.Config) { cfg.Local = w.Local(h) })
		first := kit.Must(a.RLock(t.Context(), "k"))
		second := kit.Must(b.TryRLock(t.Context(), "k"))
		if first.Token() != second.Token() {
			t.Errorf("tokens %d and %d", first.Token(), second.Token())
		}
		if l, err := b.TryLock(t.Context(), "k"); !errors.Is(err, locking.ErrLocked) {
			t.Errorf("beside readers: %v, %v", l, err)
		}
		within := kit.Must(a.RLock(first.Context(), "k"))
		for _, lock := range []func(context.Context, string, ...locking.Option) (*client.Lock, error){a.Lock, a.TryLock} {
			if l, err := lock(within.Context(), "k"); !errors.Is(err, gateway.ErrLocked) {
				t.Errorf("within a reader's lock: %v, %v", l, err)
			}
		}
		if err := within.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		next := s.StartServing()
		if err := w.LeaveRing(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * kit.TTL)
		third := kit.Must(a.RLock(t.Context(), "k"))
		if third.Token() != first.Token() || first.Context().Err() != nil || second.Context().Err() != nil {
			t.Errorf("after a move: token %d became %d; %v %v", first.Token(), third.Token(), context.Cause(first.Context()), context.Cause(second.Context()))
		}
		for _, l := range []*client.Lock{first, second, third} {
			if next.IsFree(t, "k") {
				t.Error("free beside readers")
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if !next.IsFree(t, "k") {
			t.Error("held after the last reader")
		}
	})
}

// An owner that has been asked to release a lock, and has not answered for a session TTL, may have released it before it
// says that it does not hold it.
func TestTrapUnlockAgainAtTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := site.ClientOf(t, func(w *link.ResponseWriter, r *link.ServerRequest) {
			_ = kit.Must(io.ReadAll(r.Body))
			answer := holds.Grant{Token: 1, Lease: 10 * kit.TTL, Promise: holder.Promise{Cancel: kit.TTL, Surrender: kit.TTL}}.Append(nil)
			switch {
			case r.Method == holds.Release && r.Key == "":
				answer = holds.Answers{States: []holder.Answer{holder.Elsewhere}}.Append(nil)
			case r.Method == holds.Release && time.Since(began) < kit.TTL:
				<-r.Context().Done()
				return
			case r.Method == holds.Release:
				answer = holds.Answers{States: []holder.Answer{holder.Gone}}.Append(nil)
			}
			_, _ = w.Write(answer)
		})
		l := kit.Must(c.Lock(t.Context(), "k", locking.TTL(10*kit.TTL)))
		if err := l.Unlock(t.Context()); !errors.Is(err, locking.ErrUnlockUnknown) {
			t.Errorf("%v, want %v", err, locking.ErrUnlockUnknown)
		}
	})
}
