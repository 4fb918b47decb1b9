package ring

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// smallHash makes points of members coincide.
type smallHash uint64

func (n smallHash) Sum64(b []byte) uint64 { return xxhash.Sum64(b) % uint64(n) }

// The library lets the last member have a point that two share, and loses it
// (with a nil dereference later on) when either leaves. That ends in an error at most, and the next table is right.
func TestCoincidingPoints(t *testing.T) {
	cfg := Config{Partitions: 61, ReplicationFactor: 4}.withDefaults()
	random := rand.New(rand.NewPCG(1, 2))
	kept := &Builder{cfg: cfg, hasher: smallHash(400)}
	var members []string
	failed := 0
	for range 400 {
		name := fmt.Sprintf("worker-%d", random.IntN(12))
		if i := slices.Index(members, name); i >= 0 {
			members = slices.Delete(members, i, i+1)
		} else {
			members = append(members, name)
		}
		if _, err := kept.Table(members); err == nil {
			continue
		}
		failed++
		got, err := kept.Table(members)
		if err != nil {
			t.Fatalf("members %v: %v", members, err)
		}
		fresh := &Builder{cfg: cfg, hasher: smallHash(400)}
		want, err := fresh.Table(members)
		if err != nil {
			t.Fatal(err)
		}
		if moves := Diff(want, got); len(moves) != 0 {
			t.Fatalf("members %v: the table after an error: %v", members, moves)
		}
	}
	if failed == 0 || failed == 400 {
		t.Errorf("%d of 400 changes have failed", failed)
	}
}

// A Builder applies a change to the circle that it has.
func TestBuilderKeepsItsCircle(t *testing.T) {
	b, err := NewBuilder(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Table([]string{"a", "b", "c"}); err != nil {
		t.Fatal(err)
	}
	circle := b.circle
	for _, members := range [][]string{{"a", "c"}, {"a", "b", "c"}, {"d", "a", "b", "c"}, {"a", "b", "c"}} {
		if _, err := b.Table(members); err != nil {
			t.Fatal(err)
		}
		if b.circle != circle {
			t.Errorf("built anew for %v", members)
		}
	}
}

// Members whose points all coincide leave no room; the library panics then.
func TestNoRoom(t *testing.T) {
	cfg := Config{Partitions: 61, ReplicationFactor: 4}.withDefaults()
	b := &Builder{cfg: cfg, hasher: smallHash(1)}
	if _, err := b.Table([]string{"a", "b"}); !errors.Is(err, errNoRoom) {
		t.Fatalf("got %v, want %v", err, errNoRoom)
	}
	if table, err := b.Table([]string{"a"}); err != nil || len(table.owners) != 61 {
		t.Errorf("one member after the error: %v", err)
	}
}
