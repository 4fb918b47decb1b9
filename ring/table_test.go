package ring_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/ring"
)

func names(prefix string, n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return s
}

func mustNew(t testing.TB, cfg ring.Config, members ...string) *ring.Table {
	t.Helper()
	table, err := ring.New(cfg, members)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func owners(table *ring.Table) []string {
	s := make([]string, table.Partitions())
	for p := range s {
		s[p], _ = table.Owner(p)
	}
	return s
}

func TestConfigErrors(t *testing.T) {
	tests := []struct {
		name    string
		cfg     ring.Config
		members []string
		want    error
	}{
		{"zero config", ring.Config{}, []string{"a"}, nil},
		{"smallest", ring.Config{Partitions: 1, ReplicationFactor: 1, Load: 1}, []string{"a"}, nil},
		{"negative partitions", ring.Config{Partitions: -1}, nil, ring.ErrConfig},
		{"too many partitions", ring.Config{Partitions: 1<<20 + 1}, nil, ring.ErrConfig},
		{"negative factor", ring.Config{ReplicationFactor: -1}, nil, ring.ErrConfig},
		{"too large a factor", ring.Config{ReplicationFactor: 1<<12 + 1}, nil, ring.ErrConfig},
		{"load that leaves no room", ring.Config{Load: 0.99}, nil, ring.ErrConfig},
		{"negative load", ring.Config{Load: -1}, nil, ring.ErrConfig},
		{"load is not a number", ring.Config{Load: math.NaN()}, nil, ring.ErrConfig},
		{"infinite load", ring.Config{Load: math.Inf(1)}, nil, ring.ErrConfig},
		{"member without a name", ring.Config{}, []string{"a", ""}, ring.ErrConfig},
		{"too many members", ring.Config{}, names("m", 1<<16+1), ring.ErrConfig},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := ring.New(test.cfg, test.members); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// Every partition finds an owner, however the numbers of members and of
// partitions relate and however tight the load bound is.
func TestEveryPartitionIsOwned(t *testing.T) {
	for _, cfg := range []ring.Config{
		{Partitions: 1},
		{Partitions: 7, ReplicationFactor: 1, Load: 1},
		{Partitions: 49, ReplicationFactor: 3, Load: 1},
		{Partitions: 271, Load: 1.25},
		{Partitions: 271, Load: math.MaxFloat64},
	} {
		for _, n := range []int{1, 2, 3, 7, 49, 60} {
			table := mustNew(t, cfg, names("m", n)...)
			count := map[string]int{}
			for p, owner := range owners(table) {
				if !slices.Contains(table.Members(), owner) {
					t.Fatalf("%+v, %d members: partition %d belongs to %q", cfg, n, p, owner)
				}
				count[owner]++
			}
			limit := math.Ceil(float64(cfg.Partitions) / float64(n) * cfg.Load)
			for owner, c := range count {
				if cfg.Load != 0 && float64(c) > limit {
					t.Errorf("%+v, %d members: %s has %d partitions, more than %v", cfg, n, owner, c, limit)
				}
			}
		}
	}
}

func TestNoMembers(t *testing.T) {
	for _, table := range []*ring.Table{mustNew(t, ring.Config{}), {}} {
		if table.Partitions() != 4096 || len(table.Members()) != 0 {
			t.Errorf("%d partitions, members %v", table.Partitions(), table.Members())
		}
		if name, ok := table.Owner(table.Partition("key")); ok || name != "" {
			t.Errorf("owner %q of an empty ring", name)
		}
	}
}

func TestOwnerOutOfRange(t *testing.T) {
	table := mustNew(t, ring.Config{Partitions: 8}, "a")
	for _, p := range []int{-1, 8, math.MaxInt, math.MinInt} {
		if name, ok := table.Owner(p); ok {
			t.Errorf("partition %d belongs to %q", p, name)
		}
	}
}

// The partition of a key must never change: it is part of the protocol. The
// expected values are xxhash64 with seed 0, modulo the partitions.
func TestPartitionIsStable(t *testing.T) {
	tests := []struct {
		key        string
		partitions int
		want       int
	}{
		{"", 0, 0xef46db3751d8e999 % 4096},
		{"a", 0, 0xd24ec4f1a98c6e5b % 4096},
		{"abc", 271, 0x44bc2cf5ad770999 % 271},
		{"anything", 1, 0},
	}
	for _, test := range tests {
		cfg := ring.Config{Partitions: test.partitions}
		if got := cfg.Partition(test.key); got != test.want {
			t.Errorf("partition of %q of %d: %d, want %d", test.key, test.partitions, got, test.want)
		}
		if got := mustNew(t, cfg).Partition(test.key); got != test.want {
			t.Errorf("a table's partition of %q of %d: %d, want %d", test.key, test.partitions, got, test.want)
		}
	}
}

func TestDiff(t *testing.T) {
	two, three := mustNew(t, ring.Config{}, "a", "b"), mustNew(t, ring.Config{}, "a", "b", "c")
	if moves := ring.Diff(two, two); len(moves) != 0 {
		t.Errorf("a table differs from itself: %v", moves)
	}
	moves := ring.Diff(two, three)
	after := owners(two)
	last := -1
	for _, m := range moves {
		if m.Partition <= last {
			t.Fatalf("partition %d comes after %d", m.Partition, last)
		}
		if m.From != after[m.Partition] {
			t.Errorf("%+v, but it belonged to %q", m, after[m.Partition])
		}
		last, after[m.Partition] = m.Partition, m.To
	}
	if !slices.Equal(after, owners(three)) {
		t.Error("the moves do not lead from one table to the other")
	}
	for _, none := range []*ring.Table{nil, {}, mustNew(t, ring.Config{})} {
		if got := ring.Diff(none, two); len(got) != two.Partitions() || got[0].From != "" || got[0].To == "" {
			t.Errorf("from nothing: %d moves, first %+v", len(got), got[0])
		}
		if got := ring.Diff(two, none); len(got) != two.Partitions() || got[0].From == "" || got[0].To != "" {
			t.Errorf("to nothing: %d moves, first %+v", len(got), got[0])
		}
	}
}

func TestDigests(t *testing.T) {
	zero := ring.Config{}
	if explicit := (ring.Config{Partitions: 4096, ReplicationFactor: 128, Load: 1.225}); zero.Digest() != explicit.Digest() {
		t.Error("the defaults have another digest than the zero value")
	}
	seen := map[uint64]string{}
	add := func(digest uint64, what string) {
		if other, taken := seen[digest]; taken {
			t.Errorf("%s and %s have one digest", what, other)
		}
		seen[digest] = what
	}
	for _, cfg := range []ring.Config{{}, {Partitions: 128}, {ReplicationFactor: 100}, {Load: 1.25}} {
		add(cfg.Digest(), fmt.Sprintf("config %+v", cfg))
		for _, members := range []string{"", "a", "b", "a b", "ab", "a bc", "ab c"} {
			set := strings.Fields(members)
			add(mustNew(t, cfg, set...).Digest(), fmt.Sprintf("config %+v members %q", cfg, set))
		}
	}
	if mustNew(t, zero, "a", "b").Digest() != mustNew(t, zero, "b", "a", "b").Digest() {
		t.Error("the digest tells the order of the members")
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	table := mustNew(t, ring.Config{}, "a", "b", "c")
	key := strings.Repeat("k", 100)
	if n := testing.AllocsPerRun(100, func() { table.Owner(table.Partition(key)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPlace(t *testing.T) {
	table := mustNew(t, ring.Config{Partitions: 8}, "a", "b", "c")
	other := func(p int) string { // than its owner by the ring
		if owner, _ := table.Owner(p); owner != "a" {
			return "a"
		}
		return "b"
	}
	own, _ := table.Owner(5)
	placed := table.Place(map[int]string{2: other(2), 3: other(3), 4: "nobody", 5: own, -1: "a", 8: "a"})
	for p := range 8 {
		want, _ := table.Owner(p)
		if p == 2 || p == 3 {
			want = other(p)
		}
		if got, ok := placed.Owner(p); !ok || got != want {
			t.Errorf("partition %d belongs to %q, want %q", p, got, want)
		}
	}
	if got, _ := table.Owner(2); got == other(2) {
		t.Error("the table itself has changed")
	}
	digests := map[uint64]string{table.Digest(): "ring"}
	for name, owners := range map[string]map[int]string{
		"two": {2: other(2), 3: other(3)}, "one": {2: other(2)}, "another": {3: other(3)}, "elsewhere": {2: "c", 3: other(3)},
	} {
		d := table.Place(owners).Digest()
		if former, taken := digests[d]; taken {
			t.Errorf("%s has the digest of %s", name, former)
		}
		digests[d] = name
	}
	if digests[placed.Digest()] != "two" {
		t.Error("exceptions without effect change the digest")
	}
	for name, owners := range map[string]map[int]string{"none": nil, "without effect": {4: "nobody", 5: own, 9: "a"}} {
		if table.Place(owners) != table {
			t.Errorf("exceptions, %s: another table", name)
		}
	}
	if placed.Place(map[int]string{3: other(3)}).Digest() != table.Place(map[int]string{3: other(3)}).Digest() || placed.Place(nil) != table {
		t.Error("exceptions add to earlier ones")
	}
	if empty := mustNew(t, ring.Config{}); empty.Place(map[int]string{0: "a"}) != empty {
		t.Error("without members, another table")
	}
}
