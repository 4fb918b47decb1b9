package ring

import (
	"cmp"
	"fmt"
	"slices"
)

// NewView joins a table to the members that one process sees. The table should have the names of
// [ActiveWorkers](members); a name in it without an active worker owns nothing in the view. A nil
// table stands for the zero Table. NewView sorts a copy of members.
func NewView(table *Table, members []Member) *View {
	if table == nil {
		table = new(Table)
	}
	v := &View{
		Members:      slices.SortedFunc(slices.Values(members), compareMembers),
		Table:        table,
		owners:       make([]int, len(table.members)),
		incarnations: make(map[string]int, len(members)),
	}
	v.workers = ActiveWorkers(v.Members)
	for i, m := range v.Members {
		v.incarnations[m.Incarnation] = i
	}
	for i := range v.owners {
		v.owners[i] = -1
	}
	texts := make([]string, 0, 2*len(members))
	for _, m := range v.workers {
		texts = append(texts, m.Name, m.Incarnation)
		if i, found := slices.BinarySearch(table.members, m.Name); found {
			v.owners[i], _ = slices.BinarySearchFunc(v.Members, m, compareMembers)
		}
	}
	v.Digest = digestOf(table.cfg.Digest()^table.placed, texts...)
	return v
}

// Agreeing splits members into those that may share a view with self and those that use another
// store. If self does not know its store, the oldest store of an active worker counts instead. A
// member that does not know its store may be in every view.
func Agreeing(self Member, members []Member) (agreeing, refused []Member) {
	store := self.StoreID
	if store == 0 {
		for _, m := range ActiveWorkers(members) {
			if m.StoreID != 0 && (store == 0 || m.StoreID < store) {
				store = m.StoreID
			}
		}
	}
	for _, m := range members {
		if m.StoreID != 0 && store != 0 && m.StoreID != store {
			refused = append(refused, m)
		} else {
			agreeing = append(agreeing, m)
		}
	}
	slices.SortFunc(refused, compareMembers)
	return agreeing, refused
}

// ActiveWorkers returns the members that belong on the ring, the workers in StateActive, sorted by
// name. Two members may have one name while a restarted worker's former life is not known to be
// dead. Then the one with the lower incarnation counts: an arbitrary choice, but the same for all
// who see the same members.
func ActiveWorkers(members []Member) []Member {
	var active []Member
	for _, m := range members {
		if m.Role == RoleWorker && m.State == StateActive {
			active = append(active, m)
		}
	}
	slices.SortFunc(active, compareMembers)
	return slices.CompactFunc(active, func(a, b Member) bool { return a.Name == b.Name })
}

// Workers returns the [ActiveWorkers] of Members, which the caller must not change.
func (v *View) Workers() []Member { return v.workers }

// Owner returns the active worker that should own partition p. There is none if the ring is empty
// or p is out of range. It takes constant time and does not allocate.
func (v *View) Owner(p int) (Member, bool) {
	i, ok := v.Table.index(p)
	if !ok || i >= len(v.owners) || v.owners[i] < 0 {
		return Member{}, false
	}
	return v.Members[v.owners[i]], true
}

// Find returns the member that lives as incarnation, in any role and state. The empty incarnation
// finds none.
func (v *View) Find(incarnation string) (Member, bool) {
	i, ok := v.incarnations[incarnation]
	if !ok || incarnation == "" {
		return Member{}, false
	}
	return v.Members[i], true
}

// compareMembers orders members by name, then incarnation, then the rest, so
// that an order is a function of the set.
func compareMembers(a, b Member) int {
	if order := cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Incarnation, b.Incarnation)); order != 0 || a == b {
		return order
	}
	return cmp.Compare(fmt.Sprintf("%#v", a), fmt.Sprintf("%#v", b))
}
