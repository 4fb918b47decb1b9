package gossip_test

import (
	"slices"
	"testing"
	"time"

	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// Changes do not wait for memberlist's rounds, which come every half second. A few may: all
// repetitions of a newcomer's description can go to members that have it.
func TestChangesDoNotWait(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		all := b.startAll(6)
		late := map[string]int{}
		within := func(limit time.Duration, what string, cond func() bool) {
			if b.eventually(20*time.Second, what, cond) > limit {
				late[what]++
			}
		}
		for round := range 6 {
			time.Sleep(10*time.Second + time.Duration(round)*130*time.Millisecond) // nothing is on its way any more
			for i, what := range []string{"the others know a change", "the others know the change after it"} {
				if err := all[4].Announce(func(m *ring.Member) { m.Epoch++ }); err != nil {
					t.Fatal(err)
				}
				ignorant := func(c *gossip.Cluster) bool {
					m, _ := find(c, "worker-04")
					return m.Epoch != all[4].Self().Epoch
				}
				within([]time.Duration{150 * time.Millisecond, 80 * time.Millisecond}[i], what, func() bool { return !slices.ContainsFunc(all, ignorant) })
			}
			n := len(all)
			newcomer := b.start(b.config(n), address(n))
			within(300*time.Millisecond, "the others know a newcomer", func() bool { return agree(append(all, newcomer), n+1) })
			began := time.Now()
			if err := newcomer.Leave(t.Context()); err != nil {
				t.Error(err)
			}
			if time.Since(began) > 700*time.Millisecond {
				late["a leaver has told all"]++
			}
			within(300*time.Millisecond, "the others know a leaver", func() bool { return agree(all, n) })
		}
		for what, n := range late {
			if n > 3 {
				t.Errorf("late in %d of 6 rounds: %s", n, what)
			}
		}
	})
}
