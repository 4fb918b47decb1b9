package ring_test

import (
	"slices"
	"testing"

	"github.com/keyway-go/keyway/ring"
)

// FuzzOrder joins and removes members in any order and any batches: the table
// must be the one that New makes of the resulting set.
func FuzzOrder(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0, 2, 0})
	f.Add([]byte{9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 0, 3, 0, 5, 0})
	f.Add([]byte{0, 1, 0, 1, 0, 2, 0, 1, 2, 3, 4, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 64 {
			return
		}
		cfg := ring.Config{Partitions: 97, ReplicationFactor: 8}
		all := names("worker", 24)
		builder, err := ring.NewBuilder(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var members []string // in the order of joining
		for _, b := range append(script, 0) {
			if b != 0 {
				members = toggle(members, all[int(b)%len(all)])
				continue
			}
			got, err := builder.Table(members)
			if err != nil {
				t.Fatal(err)
			}
			want := mustNew(t, cfg, slices.Sorted(slices.Values(members))...)
			if !slices.Equal(owners(got), owners(want)) {
				t.Fatalf("members %v: the table depends on how they came", members)
			}
			if got.Digest() != want.Digest() || !slices.Equal(got.Members(), want.Members()) {
				t.Fatalf("members %v: the digest or the list depends on how they came", members)
			}
		}
	})
}

// toggle removes name from the members, or else adds it.
func toggle(members []string, name string) []string {
	if i := slices.Index(members, name); i >= 0 {
		return slices.Delete(members, i, i+1)
	}
	return append(members, name)
}

// A Builder that failed goes on.
func TestBuilderAfterError(t *testing.T) {
	builder, err := ring.NewBuilder(ring.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := builder.Table([]string{"a", "b", "c", "d"}); err != nil {
		t.Fatal(err)
	}
	if _, err := builder.Table([]string{"a", ""}); err == nil {
		t.Fatal("a member without a name is on the ring")
	}
	got, err := builder.Table([]string{"d", "e", "b", "a", "c"})
	if err != nil {
		t.Fatal(err)
	}
	if want := mustNew(t, ring.Config{}, "a", "b", "c", "d", "e"); len(ring.Diff(got, want)) != 0 {
		t.Error("the table differs after an error")
	}
}

// A table is not touched by those that the Builder makes after it.
func TestTablesAreImmutable(t *testing.T) {
	builder, err := ring.NewBuilder(ring.Config{})
	if err != nil {
		t.Fatal(err)
	}
	members := []string{"c", "b", "a"}
	table, err := builder.Table(members)
	if err != nil {
		t.Fatal(err)
	}
	before := owners(table)
	members[0] = "z"
	table.Members()[0] = "y"
	if _, err := builder.Table([]string{"a", "b", "c", "d"}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, owners(table)) || !slices.Equal(table.Members(), []string{"a", "b", "c"}) {
		t.Error("a later change shows in an earlier table")
	}
}
