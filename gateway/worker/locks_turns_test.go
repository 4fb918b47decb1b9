package worker_test

import (
	"testing"
	"testing/synctest"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/test/site"
)

// Tokens for those who are to have a key by one hold are nobody else's, and below those of who has the key then; those of a call
// that is repeated are others.
func TestTrapTokensOfTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		c := newCaller(t, w)
		var taken int64 // all that were minted so far are not above it
		above := func(g holds.Grant, turns int) {
			t.Helper()
			if g.Turns != turns || turns > 0 && g.Next <= max(g.Token, taken) {
				t.Errorf("%d turns from %d on, with token %d after %d; want %d", g.Turns, g.Next, g.Token, taken, turns)
			}
			taken = max(taken, g.Next+int64(g.Turns)-1)
		}
		id := holds.NewID()
		asks := holds.Request{ID: id, Turns: 5}
		first := c.acquireAs("k", asks)
		above(first, 5)
		_ = w.Do(t.Context(), sameAs(c.ring, "k"), func(x gateway.Execution) error {
			if x.Token() <= taken {
				t.Errorf("another key has token %d, of those up to %d that are reserved", x.Token(), taken)
			}
			taken = x.Token()
			return nil
		})
		again := c.acquireAs("k", asks)
		if again.Token != first.Token {
			t.Errorf("token %d, and %d when asked again", first.Token, again.Token)
		}
		above(again, 5)
		above(c.acquireAs("k", holds.Request{ID: id}), 0)
		c.release(id)
		_ = w.Do(t.Context(), "k", func(x gateway.Execution) error {
			if x.Token() <= taken {
				t.Errorf("then token %d, not above %d", x.Token(), taken)
			}
			return nil
		})
	})
}

// Tokens that are reserved are used up as others are: the next epoch is asked for when half of them are left.
func TestReservedTokensAreUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 1).Start()
		w.AwaitServing(t, 1)
		c := newCaller(t, w)
		asks := holds.Request{ID: holds.NewID(), Turns: holds.MaxTurns - 1}
		first := c.acquireAs("k", asks)
		for range 1<<19/asks.Turns + 100 {
			c.acquireAs("k", asks)
		}
		synctest.Wait()
		last := c.acquireAs("k", asks)
		if a, b := keyed.TokenEpoch(first.Next), keyed.TokenEpoch(last.Next); a == b {
			t.Errorf("all of epoch %d", a)
		}
	})
}
