package ring

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// smallHash makes points of members coincide.
type smallHash uint64

func (n smallHash) Sum64(b []byte) uint64 { return xxhash.Sum64(b) % uint64(n) }

// member is one of the library's.
type member string

func (m member) String() string { return string(m) }

// byLibrary returns the owners as consistent.Consistent has them, to which the members of the sorted set
// come one after the other.
func byLibrary(cfg Config, set []string, hash consistent.Hasher) []uint16 {
	members := make([]consistent.Member, len(set))
	for i, name := range set {
		members[i] = member(name)
	}
	c := consistent.New(members, consistent.Config{
		Hasher: hash, PartitionCount: cfg.Partitions, ReplicationFactor: cfg.ReplicationFactor, Load: cfg.Load,
	})
	owners := make([]uint16, cfg.Partitions)
	for p := range owners {
		i, _ := slices.BinarySearch(set, c.GetPartitionOwner(p).String())
		owners[p] = uint16(i)
	}
	return owners
}

// A table is the one that the library makes of the sorted members, also where points coincide.
func TestOwnersAreTheLibrarys(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 600 {
		cfg := Config{Partitions: 1 + random.IntN(300), ReplicationFactor: 1 + random.IntN(20), Load: 1 + random.Float64()}
		hash := smallHash(400)
		if i%3 == 0 {
			cfg, hash = Config{Load: 1e9 * random.Float64()}, 1<<63
		}
		cfg = cfg.withDefaults()
		if cfg.validate() != nil {
			continue
		}
		var set []string
		for range 1 + random.IntN(12) {
			set = append(set, fmt.Sprintf("worker-%d", random.IntN(30)))
		}
		slices.Sort(set)
		set = slices.Compact(set)
		got, err := owners(cfg, set, hash.Sum64)
		var want []uint16
		func() {
			defer func() {
				if no := recover(); (no != nil) != (err != nil) {
					t.Errorf("%+v, members %v: %v, and the library says %v", cfg, set, err, no)
				}
			}()
			want = byLibrary(cfg, set, hash)
		}()
		if err == nil && !slices.Equal(got, want) {
			t.Errorf("%+v, members %v: the library has other owners", cfg, set)
		}
	}
}

// Members whose points all coincide leave no room.
func TestNoRoom(t *testing.T) {
	cfg := Config{Partitions: 61, ReplicationFactor: 4}.withDefaults()
	if _, err := owners(cfg, []string{"a", "b"}, smallHash(1).Sum64); !errors.Is(err, errNoRoom) {
		t.Fatalf("got %v, want %v", err, errNoRoom)
	}
	if got, err := owners(cfg, []string{"a"}, smallHash(1).Sum64); err != nil || len(got) != 61 {
		t.Errorf("one member: %v", err)
	}
}
