package ring

import (
	"maps"
	"slices"
	"strconv"
)

// Table says which member owns each partition. It is immutable, so it may be
// read by any number of goroutines. The zero Table has the default partitions
// and no members.
type Table struct {
	cfg     Config
	members []string // sorted
	owners  []uint16 // partition -> index of members; nil when there are none
	ring    *Table   // without the exceptions of Place; nil if there are none
	placed  uint64   // their digest; 0 for none
}

// New computes the table of a set of members; their order and repeated names do not matter. Without
// members no partition has an owner. It fails with [ErrConfig] if a setting is out of range, a name
// is empty or there are more than 65,536, and with another error if the members cannot take all
// partitions.
//
// The cost grows with the square of the number of members, up to seconds for 1000 of them. Use a
// [Builder] for a changing set of members.
func New(cfg Config, members []string) (*Table, error) {
	b, err := NewBuilder(cfg)
	if err != nil {
		return nil, err
	}
	return b.Table(members)
}

// Place returns the table with other exceptions: the partitions of placed belong to the members that it names,
// and all others to those by the ring. It leaves out names that are no members and partitions out of range.
func (t *Table) Place(placed map[int]string) *Table {
	if t != nil && t.ring != nil {
		t = t.ring
	}
	var texts []string
	next := t
	for _, p := range slices.Sorted(maps.Keys(placed)) {
		now, ok := t.index(p)
		if !ok {
			continue
		}
		member, found := slices.BinarySearch(t.members, placed[p])
		if !found || member == now {
			continue
		}
		if next == t {
			next = &Table{cfg: t.cfg, members: t.members, owners: slices.Clone(t.owners), ring: t}
		}
		next.owners[p] = uint16(member)
		texts = append(texts, strconv.Itoa(p), placed[p])
	}
	if next != t {
		next.placed = digestOf(1, texts...)
	}
	return next
}

// Partition returns the partition of key, in [0, t.Partitions()). It does not
// allocate.
func (t *Table) Partition(key string) int { return t.cfg.Partition(key) }

// Owner returns the member that owns partition p. There is none if the table
// has no members or p is out of range.
func (t *Table) Owner(p int) (name string, ok bool) {
	i, ok := t.index(p)
	if !ok {
		return "", false
	}
	return t.members[i], true
}

// Partitions returns the number of partitions.
func (t *Table) Partitions() int { return t.cfg.withDefaults().Partitions }

// Members returns the names of the members, sorted, in a slice of its own.
func (t *Table) Members() []string { return slices.Clone(t.members) }

// Digest identifies the table: it covers the settings, the names of the members and the exceptions,
// which together decide every owner.
func (t *Table) Digest() uint64 { return digestOf(t.cfg.Digest()^t.placed, t.members...) }

// index returns the place of p's owner in t.members.
func (t *Table) index(p int) (int, bool) {
	if t == nil || uint(p) >= uint(len(t.owners)) {
		return 0, false
	}
	return int(t.owners[p]), true
}
