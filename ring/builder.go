package ring

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// errNoRoom means that the members cannot take all partitions within the load
// bound. A larger Config.Load or Config.ReplicationFactor helps.
var errNoRoom = errors.New("ring: not enough room for the partitions")

// A Builder computes the tables of a changing membership. It keeps the hash circle and applies only
// the differences: with 1000 members and the default settings, adding or removing one costs about
// 20 ms, while [New] takes seconds. Its tables equal those of New. A Builder is not safe for
// concurrent use; keep it on one goroutine, off the path of requests.
type Builder struct {
	cfg    Config
	hasher consistent.Hasher

	circle  *consistent.Consistent // nil: build anew
	members []string               // on the circle; sorted
	points  map[uint64]struct{}    // hashes of the members' points on the circle
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
		b.reset()
		return t, nil
	}
	circle, err := b.become(set)
	if err != nil {
		b.reset() // the library stopped in the middle of a change
		return nil, err
	}
	t.owners = owners(circle, set, b.cfg.Partitions)
	return t, nil
}

// become returns a circle that has the members of the sorted set and no others.
func (b *Builder) become(set []string) (circle *consistent.Consistent, err error) {
	defer func() { // the library panics when it finds no room
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %d partitions, %d members: %v", errNoRoom, b.cfg.Partitions, len(set), r)
		}
	}()
	joined, left := difference(set, b.members), difference(b.members, set)
	// A change sorts the circle and places every partition; building it anew
	// sorts it once for each member, when it is half full on average.
	if b.circle == nil || len(joined)+len(left) > len(set)/4+1 {
		return b.rebuild(set), nil
	}
	for _, name := range left {
		b.forget(name)
		b.circle.Remove(name)
	}
	for _, name := range joined {
		if !b.notePoints(name) {
			return b.rebuild(set), nil
		}
		b.circle.Add(member(name))
	}
	b.members = set
	return b.circle, nil
}

// rebuild makes a circle of the sorted set and keeps it for later changes, unless points of two
// members coincide. The library gives such a point to the last member added, and loses it when
// either leaves. The circle is then rebuilt each time, with the members in sorted order.
func (b *Builder) rebuild(set []string) *consistent.Consistent {
	b.reset()
	distinct := true
	all := make([]consistent.Member, len(set))
	for i, name := range set {
		all[i] = member(name)
		distinct = b.notePoints(name) && distinct
	}
	circle := consistent.New(all, consistent.Config{
		Hasher:            b.hasher,
		PartitionCount:    b.cfg.Partitions,
		ReplicationFactor: b.cfg.ReplicationFactor,
		Load:              b.cfg.Load,
		ReplicaKey:        replicaKey,
	})
	if !distinct {
		b.reset()
		return circle
	}
	b.circle, b.members = circle, set
	return circle
}

func (b *Builder) reset() {
	b.circle, b.members, b.points = nil, nil, make(map[uint64]struct{})
}

// notePoints records the points of a member. It reports false if one is taken.
func (b *Builder) notePoints(name string) bool {
	distinct := true
	for h := range b.hashes(name) {
		if _, taken := b.points[h]; taken {
			distinct = false
		}
		b.points[h] = struct{}{}
	}
	return distinct
}

func (b *Builder) forget(name string) {
	for h := range b.hashes(name) {
		delete(b.points, h)
	}
}

func (b *Builder) hashes(name string) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for i := range b.cfg.ReplicationFactor {
			if !yield(b.hasher.Sum64(replicaKey(name, i))) {
				return
			}
		}
	}
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

// replicaKey names a member's i-th point, as consistent.DefaultReplicaKey does.
func replicaKey(name string, i int) []byte {
	b := make([]byte, 0, len(name)+8)
	b = strconv.AppendInt(b, int64(i), 10)
	b = append(b, ':')
	return append(b, name...)
}
