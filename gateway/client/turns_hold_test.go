package client_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// hold has a caller come who works while the key is held. It returns when he waits or has it.
func (q *queue) hold(c *client.Client, name string, work func()) {
	q.all.Go(func() {
		err := c.Do(q.t.Context(), "k", func(x gateway.Execution) error {
			token := x.Token()
			q.got(name, token)
			if work != nil {
				work()
			}
			return nil
		})
		if err != nil {
			q.t.Errorf("%s: %v", name, err)
		}
	})
	synctest.Wait()
}

// Functions that hold a key take turns with each other, with locks, and with DoAll.
func TestHoldsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		q := &queue{t: t}
		_ = w.Do(t.Context(), "k", func(x gateway.Execution) error {
			q.hold(c, "1", nil)
			q.lock(c, "2", func(*client.Lock) { time.Sleep(time.Second) })
			q.hold(c, "3", func() { time.Sleep(2 * kit.TTL) })
			q.all.Go(func() {
				err := c.DoAll(t.Context(), []string{"a", "k"}, func(xs gateway.Execution) error {
					q.got("4", xs.TokenOf("k"))
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			q.hold(c, "5", nil)
			q.last = x.Token()
			return nil
		})
		q.expect("1", "2", "3", "4", "5")
		if n := grants(t, w); n != 3 {
			t.Errorf("the owner has granted %v locks, want those of a, of 1, and of 2 to 5 together", n)
		}
		synctest.Wait()
		if !w.IsFree(t, "k") {
			t.Error("the key is held")
		}
	})
}

// Who waits for his turn to hold a key, behind others whose work does not end, hears that it is too long.
func TestTrapTurnsOfHoldsEnd(t *testing.T) {
	const inLine, maxWait = 30 * time.Second, 3 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing(func(cfg *worker.Config) { cfg.MaxWait = maxWait })
		c := s.NewClient()
		q := &queue{t: t}
		never := func(gateway.Execution) error {
			t.Error("the function runs")
			return nil
		}
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			q.hold(c, "1", nil)
			q.hold(c, "2", func() { time.Sleep(time.Hour) })
			q.all.Go(func() { // of one call with the second
				began := time.Now()
				err := c.Do(t.Context(), "k", never)
				if d := time.Since(began); !errors.Is(err, gateway.ErrWaited) || d > inLine+maxWait+time.Second {
					t.Errorf("after %v: %v", d, err)
				}
			})
			synctest.Wait()
			return nil
		})
		q.expect("1", "2")
	})
}
