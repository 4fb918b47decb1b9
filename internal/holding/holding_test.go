package holding_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/holding"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/localmutex/locking"
)

const (
	ttl    = 10 * time.Second
	margin = 500 * time.Millisecond
	every  = 3 * time.Second
)

var errLost = errors.New("lost")

// kept is a lock that a store keeps. It counts its renewals. Each fails unless the store answers. A worker that keeps it
// never answers.
type kept struct {
	holding.Hold
	set      *holding.Set
	answers  bool
	renewals int
}

func (k *kept) Lost(holder.Decision) error { return errLost }

func (k *kept) Renew(holder.Decision) {
	k.renewals++
	if k.set.Policy.Keeper == holder.Worker {
		return
	}
	sent := k.set.Now()
	go func() {
		defer k.EndCall()
		k.Decide(func(now lease.Instant) holder.Decision {
			if k.answers {
				return k.Lock.Renewed(now, sent, holder.Held, holder.Promise{})
			}
			k.Lock.Failed(false)
			return holder.Wait
		})
	}()
}

// grant begins the work of a caller with a lock.
func grant(ctx context.Context, clock func() time.Time, answers bool) (*kept, *holding.Use) {
	s := new(holding.Set)
	s.Init(holder.Policy{TTL: ttl, Keeper: holder.Store, Margin: margin, Every: every, TurnsFor: holder.Never}, clock)
	return grantIn(ctx, s, answers, ttl)
}

// grantIn is grant for one of several locks, of that term.
func grantIn(ctx context.Context, s *holding.Set, answers bool, term time.Duration) (*kept, *holding.Use) {
	k := &kept{set: s, answers: answers}
	k.Init(s, k, []string{"k"}, false, holder.New(&s.Policy, s.Now(), holder.Grant{Token: 7, Lease: term, Promise: holder.Promise{Cancel: term, Surrender: term}}))
	s.Lock()
	defer s.Unlock()
	u, _ := k.BeginLocked(ctx, true)
	return k, &u
}

// endsAfter fails the test unless the work of u, which has begun at began, ends that much later.
func endsAfter(t *testing.T, u *holding.Use, began time.Time, want time.Duration) {
	t.Helper()
	<-u.Context().Done()
	if d := time.Since(began); d != want {
		t.Errorf("the work ends after %v, want %v", d, want)
	}
}

func (k *kept) isForgotten() bool {
	k.set.Lock()
	defer k.set.Unlock()
	return k.set.LenLocked() == 0
}

// The timer has a lock renewed when that is due, until its work ends at its deadline, to the instant. It is forgotten
// then, even if its caller never unlocks it.
func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, u := grant(t.Context(), nil, true)
		if time.Sleep(4 * ttl); u.Context().Err() != nil || k.renewals < 12 || k.renewals > 13 {
			t.Errorf("after four TTLs: %v, with %d renewals", context.Cause(u.Context()), k.renewals)
		}
		k, u = grant(t.Context(), nil, false)
		began := time.Now()
		<-u.Context().Done()
		if d := time.Since(began); d != ttl-margin || !errors.Is(context.Cause(u.Context()), errLost) || !k.isForgotten() {
			t.Errorf("without an answer its work ends after %v, with %v", d, context.Cause(u.Context()))
		}
		if left, err := u.Left(); left != 0 || !errors.Is(err, locking.ErrNotOwner) {
			t.Errorf("after the end: %v, %v", left, err)
		}
	})
}

// The timer looks at a lock when its work has to end, whoever keeps it, and whatever else it looks at.
func TestTrapTimerIsLate(t *testing.T) {
	for name, test := range map[string]func(t *testing.T){
		"a worker keeps it": func(t *testing.T) {
			s := new(holding.Set)
			s.Init(holder.Policy{TTL: ttl, TurnsFor: holder.Never}, nil)
			began := time.Now()
			grantIn(t.Context(), s, false, ttl) // others have the timer run at other times
			time.Sleep(ttl / 200)
			_, u := grantIn(t.Context(), s, false, ttl)
			endsAfter(t, u, began, ttl/200+ttl*8/10)
		},
		"another lock begins before": func(t *testing.T) {
			began := time.Now()
			k, u := grant(t.Context(), nil, false)
			time.Sleep(ttl - margin - 10*time.Millisecond)
			grantIn(t.Context(), k.set, true, 4*time.Second)
			endsAfter(t, u, began, ttl-margin)
		},
		"among many": func(t *testing.T) {
			k, _ := grant(t.Context(), nil, true)
			for range 20_000 {
				grantIn(t.Context(), k.set, true, ttl)
			}
			const term = 20 * time.Millisecond
			_, lasts := grantIn(t.Context(), k.set, true, term)
			began := time.Now()
			_, u := grantIn(t.Context(), k.set, false, term)
			endsAfter(t, u, began, term-margin*term/ttl)
			if time.Sleep(10 * term); lasts.Context().Err() != nil {
				t.Error("a lock is not renewed in time")
			}
			k.set.Lock()
			k.set.CloseLocked()
			k.set.Unlock()
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// A store is asked about a lock by one call at a time, and the timer looks at the deadline meanwhile.
func TestTrapCallsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, u := grant(t.Context(), nil, true)
		err := u.Alone(t.Context(), func() error {
			done, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := u.Alone(done, func() error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a second call: %v", err)
			}
			<-u.Context().Done()
			return nil
		})
		if err != nil || k.renewals > 0 {
			t.Errorf("%v; %d renewals beside a call", err, k.renewals)
		}
		if err := u.Alone(t.Context(), func() error { t.Error("a call is made"); return nil }); !errors.Is(err, locking.ErrNotOwner) {
			t.Errorf("about what was lost: %v", err)
		}
		if err := u.While(func(lease.Instant) { t.Error("it is the caller's") }); !errors.Is(err, locking.ErrNotOwner) {
			t.Errorf("while it is lost: %v", err)
		}
	})
}

// The monotonic clock stands still while a machine is suspended. Whoever asks then sees the end by the wall clock, and the
// timer soon does.
func TestTrapWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		_, u := grant(t.Context(), clock, true)
		ctx := u.Context()
		if ahead.Store(int64(ttl)); ctx.Err() == nil {
			t.Error("its context lasts")
		}
		ahead.Store(0)
		_, u = grant(t.Context(), clock, true)
		done := u.Context().Done()
		ahead.Store(int64(ttl))
		time.Sleep(ttl / 50)
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("the timer does not see it")
		}
	})
}

// What a closed Set holds has ended, even if it was granted later, and is still to be released.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, u := grant(t.Context(), nil, true)
		k.set.Lock()
		k.set.CloseLocked()
		late := &kept{set: k.set}
		late.Init(k.set, late, []string{"l"}, false, holder.New(&k.set.Policy, k.set.Now(), holder.Grant{Token: 8, Lease: ttl}))
		after, begun := late.BeginLocked(t.Context(), true)
		k.set.Unlock()
		if begun || u.Context().Err() == nil || after.Context().Err() == nil || !k.isForgotten() {
			t.Errorf("after Close: %v, %v, %v", u.Context().Err(), after.Context().Err(), begun)
		}
		d := k.Decide(func(now lease.Instant) holder.Decision {
			if last, err := u.EndLocked(context.Canceled); !last || !errors.Is(err, errLost) {
				t.Errorf("its end: %v, %v", last, err)
			}
			return k.EndLocked(now, false)
		})
		if d != holder.Release {
			t.Errorf("decision %v", d)
		}
	})
}
