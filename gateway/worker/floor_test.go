package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/memstore"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

// newBehindCluster returns a cluster whose store can lose everything and come
// back with its clock an hour behind.
func newBehindCluster(t *testing.T, partitions int) (c *site.Site, lose func()) {
	var behind atomic.Int64
	c = site.New(t, partitions)
	st := memstore.New(memstore.Config{
		Settings:   c.Settings,
		NewCluster: true,
		Clock:      func() time.Time { return time.Now().Add(time.Duration(-behind.Load())) },
	})
	c.Store = st
	return c, func() {
		behind.Store(int64(time.Hour))
		st.Lose()
	}
}

func tokenOf(t *testing.T, w *site.Worker, key string) (token int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		err := w.Do(ctx, key, func(x gateway.Execution) error {
			token = x.Token()
			return nil
		})
		switch {
		case err == nil:
			return token
		case ctx.Err() != nil:
			t.Fatalf("%s is not served: %v", key, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// silentMembers tells the others of no epoch.
type silentMembers struct{ gateway.Members }

func (m silentMembers) Announce(change func(*ring.Member)) error {
	return m.Members.Announce(func(self *ring.Member) {
		change(self)
		self.Epoch = 0
	})
}

// A process that has lost its session, and then finds the store empty with its
// clock behind, goes on above the tokens that it gave before, and above those of
// others that it has seen.
func TestTrapTokensRiseInTheNextLifeOfAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, lose := newBehindCluster(t, 64)
		store := &site.CutStore{Store: c.Store}
		silent := func(cfg *worker.Config) { cfg.Members = silentMembers{cfg.Members} }
		w := c.Start(silent, func(cfg *worker.Config) { cfg.Store = store })
		w.AwaitServing(t, 64)
		other := c.Start(silent)
		time.Sleep(20 * time.Second)
		before := make(map[string]int64)
		for i := range 26 {
			key := string(rune('a' + i))
			for before[key] == 0 {
				for _, v := range []*site.Worker{w, other} {
					_ = v.Do(t.Context(), key, func(x gateway.Execution) error {
						before[key] = x.Token()
						return nil
					})
				}
				time.Sleep(time.Millisecond)
			}
		}
		if n := other.Serving(); n == 0 || n == 64 {
			t.Fatalf("the other worker serves %d of 64 partitions", n)
		}
		first := w.Incarnation()
		store.Set(true)
		for w.Incarnation() == first {
			time.Sleep(time.Second)
		}
		other.Close()
		other.Member.Vanish()
		lose()
		store.Set(false)
		for key, before := range before {
			if token := tokenOf(t, w, key); token <= before {
				t.Errorf("%s: token %d follows %d", key, token, before)
			}
		}
	})
}

// A process that starts on an empty store whose clock is behind goes on above
// the tokens that others gave, if one of their processes is still a member.
func TestTrapTokensRiseAtAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, lose := newBehindCluster(t, 16)
		store := &site.CutStore{Store: c.Store}
		w := c.Start(func(cfg *worker.Config) { cfg.Store = store })
		w.AwaitServing(t, 16)
		before := tokenOf(t, w, "k")
		time.Sleep(2 * time.Second) // for its members to be told
		first := w.Incarnation()
		store.Set(true)
		for w.Incarnation() == first {
			time.Sleep(time.Second)
		}
		lose()
		other := c.Start()
		if token := tokenOf(t, other, "k"); token <= before {
			t.Errorf("token %d follows %d", token, before)
		}
	})
}
