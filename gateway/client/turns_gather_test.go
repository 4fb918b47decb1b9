package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/internal/test/site"
)

// Who comes while others have their turns is asked for when the last of these begins, together with those who have come
// until then. But he does not wait long for that, and nobody else is before him who comes later.
func TestTurnsGather(t *testing.T) {
	short, long := 300*time.Microsecond, time.Second
	for _, c := range []struct {
		name      string
		a2        time.Duration // for how long a2 has the lock
		pause     time.Duration // before somebody else comes
		wantFirst string        // of those who come later
		grants    float64       // for all of a's, that is
	}{
		{"short turns", short, 0, "Do", 3}, // a1, a2 to a4, a5 and a6
		{"a long turn", long, 2 * time.Millisecond, "a5", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := site.NewInBubble(t)
				w := s.StartServing()
				a := s.NewClient()
				q := &queue{t: t}
				_ = w.Do(t.Context(), "k", func(x gateway.Execution) error {
					q.lock(a, "a1", nil)
					q.lock(a, "a2", func(*client.Lock) {
						q.lock(a, "a5", nil)
						time.Sleep(c.pause)
						q.do(w, "Do")
						time.Sleep(c.a2)
						q.lock(a, "a6", nil)
					})
					q.lock(a, "a3", nil)
					q.lock(a, "a4", nil)
					q.last = x.Token()
					return nil
				})
				q.all.Wait()
				if i := slices.Index(q.order, "a4"); i < 0 || q.order[i+1] != c.wantFirst {
					t.Errorf("the lock went to %v, want %s after a4", q.order, c.wantFirst)
				}
				if n := grants(t, w); n != c.grants {
					t.Errorf("%v locks were granted, want %v", n, c.grants)
				}
			})
		})
	}
}

// When those have given up whose turns a call would wait for, it is made.
func TestTurnsGatherForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		a := s.NewClient()
		q := &queue{t: t}
		ctx, giveUp := context.WithCancel(t.Context())
		var unlocked, got time.Time
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			q.lock(a, "1", nil)
			q.lock(a, "2", func(*client.Lock) {
				q.lock(a, "4", func(*client.Lock) { got = time.Now() })
				giveUp()
				synctest.Wait()
				unlocked = time.Now()
			})
			q.all.Go(func() {
				if l, err := a.Lock(ctx, "k"); !errors.Is(err, context.Canceled) {
					t.Errorf("%v, %v", l, err)
				}
			})
			synctest.Wait()
			return nil
		})
		q.expect("1", "2", "4")
		if waited := got.Sub(unlocked); waited >= time.Millisecond {
			t.Errorf("who came meanwhile has the lock after %v", waited)
		}
	})
}
