package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// pair is two workers, a key of each, and a client. The keys' order is that of the workers.
func pair(t *testing.T, change ...func(*client.Config, *site.Worker)) (s *site.Site, a, b *site.Worker, ka, kb string, c *client.Client) {
	s = site.NewInBubble(t)
	a, b = s.StartServing(), s.StartServing()
	time.Sleep(5 * time.Second)
	c = s.NewClient(func(cfg *client.Config) {
		for _, f := range change {
			f(cfg, b)
		}
	})
	return s, a, b, s.KeyOf(a, "a"), s.KeyOf(b, "b"), c
}

// Several keys are locked together, with the options of one, and so they are extended and unlocked.
func TestLockAll(t *testing.T) {
	for _, local := range []bool{false, true} { // the second key is at the process's own worker
		synctest.Test(t, func(t *testing.T) {
			_, a, b, ka, kb, c := pair(t, func(cfg *client.Config, w *site.Worker) {
				if local {
					cfg.Local = w.Local(w.Handler(nil))
				}
			})
			l := kit.Must(c.LockAll(t.Context(), []string{kb, ka, kb}, locking.TTL(kit.TTL/2), locking.Wait(time.Second), locking.Label("both")))
			if keys := l.Keys(); !slices.Equal(keys, []string{ka, kb}) || l.TokenOf(ka) == 0 || l.TokenOf(kb) == 0 || l.TokenOf("other") != 0 {
				t.Errorf("keys %q, tokens %d %d %d", keys, l.TokenOf(ka), l.TokenOf(kb), l.TokenOf("other"))
			}
			if left := time.Until(l.Until()); left <= 0 || left > kit.TTL/2 {
				t.Errorf("%v left", left)
			}
			time.Sleep(2 * kit.TTL)
			if a.IsFree(t, ka) || b.IsFree(t, kb) || l.Context().Err() != nil {
				t.Errorf("after a while: %v", context.Cause(l.Context()))
			}
			if err := l.Extend(t.Context(), kit.TTL); err != nil || time.Until(l.Until()) < kit.TTL/2 {
				t.Errorf("Extend: %v, %v left", err, time.Until(l.Until()))
			}
			within := kit.Must(c.Lock(l.Context(), ka))
			if err := within.Unlock(t.Context()); err != nil || within.Token() != l.TokenOf(ka) {
				t.Errorf("a lock within: %v, token %d, want %d", err, within.Token(), l.TokenOf(ka))
			}
			if err := l.Unlock(t.Context()); err != nil || !a.IsFree(t, ka) || !b.IsFree(t, kb) || l.Context().Err() == nil {
				t.Errorf("Unlock: %v", err)
			}
			for what, err := range map[string]error{"Unlock": l.Unlock(t.Context()), "Extend": l.Extend(t.Context(), 0)} {
				if !errors.Is(err, locking.ErrNotOwner) {
					t.Errorf("%s of what was unlocked: %v", what, err)
				}
			}
		})
	}
}

// All keys are locked or none, in one order whoever names them, and the wait for all has one bound.
func TestTrapLockAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b, ka, kb, c := pair(t)
		second := kit.Must(c.Lock(t.Context(), kb, locking.Label("the second")))
		time.AfterFunc(kit.TTL, func() {
			if a.IsFree(t, ka) {
				t.Error("the first key is free while the second one is waited for")
			}
		})
		began := time.Now()
		l, err := c.LockAll(t.Context(), []string{kb, ka}, locking.Wait(2*kit.TTL))
		if d := time.Since(began); l != nil || !errors.Is(err, locking.ErrLocked) || !strings.Contains(err.Error(), kb) || d != 2*kit.TTL {
			t.Errorf("after %v: %v", d, err)
		}
		synctest.Wait()
		if !a.IsFree(t, ka) {
			t.Fatal("the first key is held")
		}
		first := kit.Must(c.Lock(t.Context(), ka))
		time.AfterFunc(kit.TTL, func() { _ = first.Unlock(t.Context()) })
		began = time.Now()
		l, err = c.LockAll(t.Context(), []string{ka, kb}, locking.Wait(2*kit.TTL))
		if d := time.Since(began); l != nil || !errors.Is(err, locking.ErrLocked) || d != 2*kit.TTL {
			t.Errorf("the first key has come late: after %v: %v", d, err)
		}
		if err := second.Unlock(t.Context()); err != nil || !b.IsFree(t, kb) {
			t.Error(err)
		}
		many := make([]string, 65)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		for what, tt := range map[string]struct {
			keys []string
			opt  locking.Option
			want error
		}{
			"no key":       {nil, locking.TTL(0), gateway.ErrNoKey},
			"an empty key": {[]string{ka, ""}, locking.TTL(0), gateway.ErrNoKey},
			"a bad key":    {[]string{ka, "\x00"}, locking.TTL(0), gateway.ErrBadKey},
			"many keys":    {many, locking.TTL(0), gateway.ErrBadKey},
			"a bad TTL":    {[]string{ka}, locking.TTL(-1), locking.ErrOption},
		} {
			if l, err := c.LockAll(t.Context(), tt.keys, tt.opt); l != nil || !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// The loss of one key ends the work with all, and Unlock says which one it was.
func TestTrapLockAllLosesOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b, ka, kb, c := pair(t)
		l := kit.Must(c.LockAll(t.Context(), []string{ka, kb}))
		_ = s.Store.Release(t.Context(), a.Incarnation())
		<-l.Context().Done()
		if cause := context.Cause(l.Context()); !errors.Is(cause, gateway.ErrOwnershipLost) || l.Until().After(time.Now()) {
			t.Errorf("%v, until %v", cause, l.Until())
		}
		err := l.Unlock(t.Context())
		if !errors.Is(err, locking.ErrNotOwner) || !strings.Contains(err.Error(), ka) || strings.Contains(err.Error(), fmt.Sprintf("%q", kb)) {
			t.Errorf("Unlock: %v", err)
		}
		if !b.IsFree(t, kb) {
			t.Error("the other key is held")
		}
	})
}
