package ring_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/keyway-go/keyway/ring"
)

func worker(name, incarnation string, state ring.State) ring.Member {
	return ring.Member{Name: name, Incarnation: incarnation, Role: ring.RoleWorker, State: state, Addr: name + ":80"}
}

func cluster() []ring.Member {
	return []ring.Member{
		worker("c", "c1", ring.StateActive),
		worker("a", "a2", ring.StateActive),
		worker("a", "a1", ring.StateActive), // one name twice
		worker("b", "b1", ring.StateLeaving),
		worker("d", "d1", ring.StateJoining),
		{Name: "front", Incarnation: "f1", Role: ring.RoleRouter, State: ring.StateActive},
		{Name: "mute", Role: ring.RoleRouter, State: ring.StateActive},
	}
}

func viewOf(t *testing.T, cfg ring.Config, members []ring.Member) *ring.View {
	t.Helper()
	var active []string
	for _, m := range ring.ActiveWorkers(members) {
		active = append(active, m.Name)
	}
	return ring.NewView(mustNew(t, cfg, active...), members)
}

func TestActiveWorkers(t *testing.T) {
	members := cluster()
	want := []ring.Member{members[2], members[0]} // a1, c1
	for range 50 {
		rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		before := slices.Clone(members)
		if got := ring.ActiveWorkers(members); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		if !slices.Equal(members, before) {
			t.Fatal("ActiveWorkers changed its argument")
		}
	}
	if got := ring.ActiveWorkers(nil); len(got) != 0 {
		t.Errorf("got %v of nobody", got)
	}
}

func TestView(t *testing.T) {
	members := cluster()
	first := viewOf(t, ring.Config{}, members)
	if !slices.IsSortedFunc(first.Members, func(a, b ring.Member) int { return cmp.Compare(a.Name, b.Name) }) {
		t.Errorf("not sorted: %v", first.Members)
	}
	for p := range first.Table.Partitions() {
		m, ok := first.Owner(p)
		name, _ := first.Table.Owner(p)
		if !ok || m.Name != name || (m.Incarnation != "a1" && m.Incarnation != "c1") {
			t.Fatalf("partition %d of %q belongs to %+v", p, name, m)
		}
	}
	for _, p := range []int{-1, first.Table.Partitions()} {
		if m, ok := first.Owner(p); ok {
			t.Errorf("partition %d belongs to %+v", p, m)
		}
	}
	for _, m := range members {
		got, ok := first.Find(m.Incarnation)
		if want := m.Incarnation != ""; ok != want || ok && got != m {
			t.Errorf("Find(%q) = %+v, %v", m.Incarnation, got, ok)
		}
	}
	if _, ok := first.Find("nobody"); ok {
		t.Error("found nobody")
	}
	slices.Reverse(members)
	if again := viewOf(t, ring.Config{}, members); again.Digest != first.Digest || !slices.Equal(again.Members, first.Members) {
		t.Error("the view depends on the order of members")
	}
	if n := testing.AllocsPerRun(100, func() { first.Owner(7) }); n != 0 {
		t.Errorf("Owner makes %v allocations", n)
	}
}

// The digest tells what decides ownership and nothing else.
func TestViewDigest(t *testing.T) {
	base := viewOf(t, ring.Config{}, cluster()).Digest
	changes := []struct {
		name   string
		cfg    ring.Config
		change func([]ring.Member) []ring.Member
		same   bool
	}{
		{"nothing", ring.Config{}, func(m []ring.Member) []ring.Member { return m }, true},
		{"a member's own view", ring.Config{}, func(m []ring.Member) []ring.Member { m[0].View = 9; return m }, true},
		{"a router left", ring.Config{}, func(m []ring.Member) []ring.Member { return m[:5] }, true},
		{"another setting", ring.Config{Partitions: 128}, func(m []ring.Member) []ring.Member { return m }, false},
		{"another life", ring.Config{}, func(m []ring.Member) []ring.Member { m[0].Incarnation = "c2"; return m }, false},
		{"a worker became active", ring.Config{}, func(m []ring.Member) []ring.Member { m[4].State = ring.StateActive; return m }, false},
		{"a worker left", ring.Config{}, func(m []ring.Member) []ring.Member { return m[1:] }, false},
	}
	for _, test := range changes {
		t.Run(test.name, func(t *testing.T) {
			if got := viewOf(t, test.cfg, test.change(cluster())).Digest; (got == base) != test.same {
				t.Errorf("digest %x, before %x", got, base)
			}
		})
	}
}

// A table and members that do not match, as a caller's mistake, give no owner
// rather than a wrong one.
func TestViewOfAnotherTable(t *testing.T) {
	view := ring.NewView(mustNew(t, ring.Config{}, "gone", "b", "d"), cluster())
	for p := range view.Table.Partitions() {
		if m, ok := view.Owner(p); ok {
			t.Fatalf("partition %d belongs to %+v", p, m)
		}
	}
	for _, view := range []*ring.View{ring.NewView(nil, nil), {}} {
		if m, ok := view.Owner(0); ok {
			t.Errorf("an empty view has owner %+v", m)
		}
		if m, ok := view.Find("a1"); ok {
			t.Errorf("an empty view has member %+v", m)
		}
	}
}

func TestViewOfExceptions(t *testing.T) {
	members := cluster()
	table := mustNew(t, ring.Config{}, "a", "c")
	plain := ring.NewView(table, members)
	p := 0
	for m, _ := plain.Owner(p); m.Name != "a"; m, _ = plain.Owner(p) {
		p++
	}
	placed := ring.NewView(table.Place(map[int]string{p: "c"}), members)
	if m, ok := placed.Owner(p); !ok || m.Incarnation != "c1" {
		t.Errorf("partition %d belongs to %v", p, m)
	}
	if placed.Digest == plain.Digest {
		t.Error("a view with an exception agrees with one without")
	}
}
