package ring

import (
	"fmt"
	"slices"
	"testing"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// member and xxHasher are for the library.
type member string

func (m member) String() string { return string(m) }

type xxHasher struct{}

func (xxHasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }

// FuzzPlace compares the owners with the library's.
func FuzzPlace(f *testing.F) {
	f.Add(uint16(1), uint16(1), uint8(1), uint16(0))
	f.Add(uint16(4096), uint16(3), uint8(128), uint16(225))
	f.Add(uint16(4096), uint16(60), uint8(128), uint16(225))
	f.Add(uint16(97), uint16(24), uint8(8), uint16(0))
	f.Add(uint16(5), uint16(40), uint8(20), uint16(9000))
	f.Fuzz(func(t *testing.T, partitions, members uint16, replicas uint8, load uint16) {
		cfg := Config{Partitions: int(partitions%5000) + 1, ReplicationFactor: int(replicas) + 1, Load: 1 + float64(load)/1000}
		var names []string
		var all []consistent.Member
		for i := range int(members%80) + 1 {
			names = append(names, fmt.Sprintf("worker-%d", i))
			all = append(all, member(names[i]))
		}
		table, err := New(cfg, names)
		if err != nil {
			t.Fatal(err)
		}
		circle := consistent.New(all, consistent.Config{Hasher: xxHasher{}, PartitionCount: cfg.Partitions, ReplicationFactor: cfg.ReplicationFactor, Load: cfg.Load})
		for p := range cfg.Partitions {
			if got, _ := table.Owner(p); got != circle.GetPartitionOwner(p).String() {
				t.Fatalf("partition %d is %s's, the library gives it to %v", p, got, circle.GetPartitionOwner(p))
			}
		}
	})
}

// Neither the order of the members nor names that come twice show in a table.
func TestOrderDoesNotMatter(t *testing.T) {
	cfg := Config{Partitions: 97, ReplicationFactor: 8}
	members := []string{"c", "a", "b", "a"}
	got, err := New(cfg, members)
	if err != nil {
		t.Fatal(err)
	}
	want, err := New(cfg, []string{"a", "b", "c"})
	if err != nil {
		t.Fatal(err)
	}
	if len(Diff(got, want)) > 0 || got.Digest() != want.Digest() || !slices.Equal(got.Members(), want.Members()) {
		t.Error("the table depends on how the members were listed")
	}
	before := slices.Clone(got.owners)
	members[0], got.Members()[0] = "z", "y"
	if !slices.Equal(got.owners, before) || !slices.Equal(got.Members(), []string{"a", "b", "c"}) {
		t.Error("the table shares what it gave or was given")
	}
}

// Members whose points coincide all have their share: those of one name are not lost.
func TestCoincidingPoints(t *testing.T) {
	cfg := Config{Partitions: 61, ReplicationFactor: 4, Load: 1}
	set := []string{"a", "b", "c"}
	for _, hashes := range []uint64{1, 2, 5, 40} {
		owners := place(cfg, func(b []byte) uint64 { return xxhash.Sum64(b) % hashes }, set)
		loads := make([]int, len(set))
		for _, m := range owners {
			loads[m]++
		}
		if slices.Max(loads) > 21 || slices.Min(loads) < 19 {
			t.Errorf("with %d hashes the members have %v partitions", hashes, loads)
		}
	}
}
