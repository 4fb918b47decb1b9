package ring_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/keyway-go/keyway/ring"
)

// The goals for 3 to 100 workers at the default settings. That for moves is
// about their mean over sizes. A single change strays from it, as the share of
// the worker that joins or leaves does, and so does a single size from about
// 90 on, where the bound on a worker's partitions drops from one size to the
// next: those that are at the bound then hand one over each.
const (
	mostMoved   = 1.20 // moved partitions / those that had to move
	mostBalance = 1.25 // partitions of the fullest worker / mean
)

// follower applies one change after another and measures each.
type follower struct {
	*testing.T
	builder *ring.Builder
	members []string
	table   *ring.Table
}

func follow(t *testing.T, members []string) *follower {
	t.Helper()
	builder, err := ring.NewBuilder(ring.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{T: t, builder: builder}
	f.become(members)
	return f
}

// become returns the moved partitions and, of these, those that went between
// members that were there before and after.
func (f *follower) become(members []string) (moved, stirred int) {
	f.Helper()
	table, err := f.builder.Table(members)
	if err != nil {
		f.Fatal(err)
	}
	for _, m := range ring.Diff(f.table, table) {
		moved++
		if slices.Contains(f.members, m.To) && slices.Contains(members, m.From) {
			stirred++
		}
	}
	f.members, f.table = slices.Clone(members), table
	return moved, stirred
}

func (f *follower) balance() float64 {
	count := map[string]int{}
	most := 0
	for _, owner := range owners(f.table) {
		count[owner]++
		most = max(most, count[owner])
	}
	return float64(most*len(f.members)) / float64(f.table.Partitions())
}

// ratios collects moved partitions as multiples of the ideal.
type ratios struct{ sum, most, stirred, n float64 }

func (r *ratios) add(moved, stirred int, ideal float64) {
	r.sum += float64(moved) / ideal
	r.stirred += float64(stirred) / ideal
	r.most = max(r.most, float64(moved)/ideal)
	r.n++
}

func (r *ratios) mean() float64 { return r.sum / r.n }

// TestMovesAndBalance prints what a join and a leave move at several sizes.
func TestMovesAndBalance(t *testing.T) {
	t.Log("moved partitions as multiples of the ideal (P / larger size); of these, between members that stay")
	t.Log("members | join mean  max  stay | leave mean  max  stay | max/mean load")
	for _, n := range sizes {
		var join, leave ratios
		balance := 0.0
		for set := range sets(n) {
			f := follow(t, names(fmt.Sprintf("set-%d-worker", set), n))
			balance = max(balance, f.balance())
			ideal := float64(f.table.Partitions()) / float64(n+1)
			for _, name := range names("other", 10) {
				moved, stirred := f.become(append(f.members, name))
				join.add(moved, stirred, ideal)
				balance = max(balance, f.balance())
				moved, stirred = f.become(f.members[1:])
				leave.add(moved, stirred, ideal)
				balance = max(balance, f.balance())
			}
		}
		t.Logf("%7d | %9.2f %4.2f %5.2f | %10.2f %4.2f %5.2f | %.3f", n,
			join.mean(), join.most, join.stirred/join.n, leave.mean(), leave.most, leave.stirred/leave.n, balance)
		if n < 3 || n > 100 {
			continue
		}
		if max(join.mean(), leave.mean()) > mostMoved {
			t.Errorf("%d members: a change moves more than %v times the ideal on average", n, mostMoved)
		}
		if balance > mostBalance {
			t.Errorf("%d members: the fullest has %.3f times the mean, more than %v", n, balance, mostBalance)
		}
	}
}

// sets is the number of different sets of n members to try: as many as are
// quick.
func sets(n int) int { return 1 + min(5, 50/n) }

// TestGrowth goes through every size from 3 to 100.
func TestGrowth(t *testing.T) {
	bands := map[string]*ratios{"3 to 10": {}, "11 to 50": {}, "51 to 100": {}}
	band := func(n int) *ratios {
		switch {
		case n <= 10:
			return bands["3 to 10"]
		case n <= 50:
			return bands["11 to 50"]
		}
		return bands["51 to 100"]
	}
	for set := range 2 {
		all := names(fmt.Sprintf("set-%d-worker", set), 101)
		f := follow(t, all[:3])
		for n := 3; n <= 100; n++ {
			if b := f.balance(); b > mostBalance {
				t.Errorf("%d members: the fullest has %.3f times the mean, more than %v", n, b, mostBalance)
			}
			moved, stirred := f.become(all[:n+1])
			band(n).add(moved, stirred, float64(f.table.Partitions())/float64(n+1))
		}
	}
	for name, r := range bands {
		t.Logf("a join to %s: mean %.3f of the ideal, max %.3f; between members that stay %.3f", name, r.mean(), r.most, r.stirred/r.n)
		if r.mean() > mostMoved {
			t.Errorf("a join to %s moves %.2f times the ideal on average, more than %v", name, r.mean(), mostMoved)
		}
	}
}
