package gossip_test

import (
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/ring/gossip"
)

// spread bounds the time until all have heard of placements: every few seconds each member tells one other, chosen at random.
const spread = 2 * time.Minute

// placed is the text of a placement.
func placed(partition int, worker string) string {
	return placement.Encode([]placement.Placement{{Partition: partition, Worker: worker}})
}

// allGive reports whether all members give a partition to a worker, and agree.
func allGive(all []*gossip.Cluster, partition int, worker string) bool {
	for _, c := range all {
		if m, ok := c.View().Owner(partition); !ok || m.Name != worker {
			return false
		}
	}
	return agree(all, len(all))
}

func TestPlacementsReachAll(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		all := b.startAll(6)
		place := func(version int64, worker string) {
			t.Helper()
			if err := all[1].Place(placed(7, worker), version); err != nil {
				t.Fatal(err)
			}
			if m, _ := all[1].View().Owner(7); m.Name != worker || all[1].View().Placements != placed(7, worker) {
				t.Errorf("right after, %s is to own the partition, want %s", m.Name, worker)
			}
			took := b.eventually(spread, "all go by the placement", func() bool { return allGive(all, 7, worker) })
			t.Logf("placements are known by all after %v", took)
		}
		place(10, "worker-02")
		place(11, "worker-03")
		place(5, "worker-04") // from a store whose versions began anew
		late := b.start(b.config(6), address(6))
		b.eventually(spread, "a late member goes by it", func() bool { return allGive(append(all, late), 7, "worker-04") })
	})
}

// A member that reads placements itself goes by those, whatever others say.
func TestPlacementsOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		all := b.startAll(4)
		for i, text := range []string{"", placed(7, "worker-03")} {
			if err := all[1].Place(text, int64(10*i)); err != nil {
				t.Fatal(err)
			}
			if err := all[2].Place(placed(7, "worker-02"), 100); err != nil {
				t.Fatal(err)
			}
			b.eventually(spread, "a member that reads none hears of the highest version", func() bool {
				return all[3].View().Placements == placed(7, "worker-02")
			})
			time.Sleep(time.Minute)
			if got := all[1].View().Placements; got != text {
				t.Errorf("the placements are %q, want %q", got, text)
			}
		}
	})
}

// A text that cannot be read names no exceptions, whatever a member has gone by before: all agree, so that partitions move.
func TestPlacementsThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		all := b.startAll(3)
		owner, _ := all[0].View().Owner(7)
		other := map[string]string{"worker-01": "worker-02", "worker-02": "worker-01"}[owner.Name]
		if err := all[1].Place(placed(7, other), 1); err != nil {
			t.Fatal(err)
		}
		b.eventually(spread, "all go by the placement", func() bool { return allGive(all, 7, other) })
		for _, c := range all[1:] {
			if err := c.Place("nonsense", 2); err == nil {
				t.Error("no error")
			}
		}
		b.eventually(spread, "all go by the ring", func() bool { return allGive(all, 7, owner.Name) })
	})
}
