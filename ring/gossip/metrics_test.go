package gossip_test

import (
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/ring"
)

func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		const workers, router = `keyway_gossip_members{role="worker",state="active"}`, `keyway_gossip_members{role="router",state="active"}`
		all := b.startAll(4)
		before := metrictest.Gather(t, all[0])
		if before[workers] != 3 || before[router] != 1 || before["keyway_gossip_disagreeing_members"] != 0 || before["keyway_gossip_health_score"] != 0 {
			t.Errorf("%v", before)
		}
		disagreeing := func() float64 { return metrictest.Gather(t, all[0])["keyway_gossip_disagreeing_members"] }
		if err := all[1].Announce(func(self *ring.Member) { self.State = ring.StateLeaving }); err != nil {
			t.Fatal(err)
		}
		b.eventually(time.Minute, "some have not seen yet that one leaves", func() bool { return disagreeing() > 0 })
		b.eventually(time.Minute, "all have", func() bool { return disagreeing() == 0 })
		all[2].Close()
		b.eventually(time.Minute, "one is lost", func() bool {
			changed := metrictest.Gather(t, all[0]).Changed(before)
			return changed["keyway_gossip_members_lost_total"] == 1 && changed[workers] == -2 &&
				changed[`keyway_gossip_members{role="worker",state="leaving"}`] == 1 && changed["keyway_gossip_view_changes_total"] >= 2
		})
		if err := all[3].Announce(func(self *ring.Member) { self.StoreID = 7 }); err != nil {
			t.Fatal(err)
		}
		if err := all[0].Announce(func(self *ring.Member) { self.StoreID = 8 }); err != nil {
			t.Fatal(err)
		}
		b.eventually(time.Minute, "one is refused", func() bool { return metrictest.Gather(t, all[0])["keyway_gossip_refused_members"] == 1 })
	})
}
