package ring

import (
	"errors"
	"fmt"
	"slices"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// errNoRoom means that the members cannot take all partitions within the load
// bound. A larger Config.Load or Config.ReplicationFactor helps.
var errNoRoom = errors.New("ring: not enough room for the partitions")

// A Builder computes the tables of a changing membership. It keeps the hash circle and applies only
// the differences: with 1000 members and the default settings, adding or removing one costs about
// 20 ms, while [New] takes seconds. Its tables equal those of New, unless the hashes of two points on
// the circle collide, which are of 64 bits. A Builder is not safe for
// concurrent use; keep it on one goroutine, off the path of requests.
type Builder struct {
	cfg     Config
	hasher  consistent.Hasher
	circle  *consistent.Consistent // nil: build anew
	members []string               // on the circle; sorted
}

// NewBuilder returns a Builder without members. It fails with [ErrConfig] if a
// setting is out of range.
func NewBuilder(cfg Config) (*Builder, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Builder{cfg: cfg, hasher: xxHasher{}}, nil
}

// Table returns the table of exactly these members, independent of earlier calls. See [New] for its
// errors, after which the Builder can still be used.
func (b *Builder) Table(members []string) (*Table, error) {
	set := slices.Compact(slices.Sorted(slices.Values(members)))
	if len(set) > maxMembers {
		return nil, fmt.Errorf("%w: %d members, want at most %d", ErrConfig, len(set), maxMembers)
	}
	if len(set) > 0 && set[0] == "" {
		return nil, fmt.Errorf("%w: a member without a name", ErrConfig)
	}
	t := &Table{cfg: b.cfg, members: set}
	if len(set) == 0 {
		b.circle = nil
		return t, nil
	}
	if err := b.become(set); err != nil {
		b.circle = nil // the library stopped in the middle of a change
		return nil, err
	}
	t.owners = owners(b.circle, set, b.cfg.Partitions)
	return t, nil
}

// become makes the circle have the members of the sorted set and no others.
func (b *Builder) become(set []string) (err error) {
	defer func() { // the library panics when it finds no room, as hashes that collide may have it
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %d partitions, %d members: %v", errNoRoom, b.cfg.Partitions, len(set), r)
		}
	}()
	joined, left := difference(set, b.members), difference(b.members, set)
	// A change sorts the circle and places every partition; building it anew
	// sorts it once for each member, when it is half full on average.
	if b.circle == nil || len(joined)+len(left) > len(set)/4+1 {
		all := make([]consistent.Member, len(set))
		for i, name := range set {
			all[i] = member(name)
		}
		b.circle = consistent.New(all, consistent.Config{
			Hasher:            b.hasher,
			PartitionCount:    b.cfg.Partitions,
			ReplicationFactor: b.cfg.ReplicationFactor,
			Load:              b.cfg.Load,
		})
		joined, left = nil, nil
	}
	for _, name := range left {
		b.circle.Remove(name)
	}
	for _, name := range joined {
		b.circle.Add(member(name))
	}
	b.members = set
	return nil
}

// owners reads the owner of each partition, as an index of the sorted set.
func owners(circle *consistent.Consistent, set []string, partitions int) []uint16 {
	index := make(map[string]uint16, len(set))
	for i, name := range set {
		index[name] = uint16(i)
	}
	owners := make([]uint16, partitions)
	for p := range owners {
		owners[p] = index[circle.GetPartitionOwner(p).String()]
	}
	return owners
}

// difference returns what a has and b has not; both are sorted.
func difference(a, b []string) []string {
	var d []string
	for _, name := range a {
		if _, found := slices.BinarySearch(b, name); !found {
			d = append(d, name)
		}
	}
	return d
}

// member makes a name a consistent.Member.
type member string

func (m member) String() string { return string(m) }

// xxHasher is the hash of the circle.
type xxHasher struct{}

func (xxHasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }
