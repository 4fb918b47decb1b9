package storetest

import (
	"fmt"

	"github.com/keyway-go/keyway/internal/records"
)

var placeTests = []test{
	{"PlacementsAreSeen", func(r *run) {
		r.begin().register("a")
		before := r.observe(0)
		if before.Notes[records.Placements] != "" {
			r.Errorf("an empty store shows the placements %q", before.Notes[records.Placements])
		}
		r.place("", "one", "one")
		after := r.observe(before.Version)
		if after.Notes[records.Placements] != "one" || after.Version <= before.Version {
			r.Errorf("saw %q at version %d, before %d", after.Notes[records.Placements], after.Version, before.Version)
		}
		if s := r.observe(after.Version); s.Notes[records.Placements] != "one" || s.Version != after.Version {
			r.Errorf("with nothing changed saw %q at version %d, before %d", s.Notes[records.Placements], s.Version, after.Version)
		}
		r.register("b")
		if s := r.observe(after.Version); s.Notes[records.Placements] != "one" {
			r.Errorf("after another change saw %q", s.Notes[records.Placements])
		}
		r.store = r.h.Open(r.T, false)
		if s := r.observe(0); s.Notes[records.Placements] != "one" {
			r.Errorf("another process saw %q", s.Notes[records.Placements])
		}
		r.place("one", "", "")
		if s := r.observe(after.Version); s.Notes[records.Placements] != "" {
			r.Errorf("saw %q when they were gone", s.Notes[records.Placements])
		}
	}},
	{"PlacementsAreCompared", func(r *run) {
		r.begin()
		r.place("other", "one", "")
		r.place("", "one", "one")
		r.place("", "one", "one") // its answer was lost
		r.place("", "two", "one")
		before := r.observe(0)
		r.place("one", "one", "one")
		if s := r.observe(before.Version); s.Version != before.Version {
			r.Errorf("the same placements again made version %d of %d", s.Version, before.Version)
		}
	}},
	{"OneOfManyPlacesFirst", func(r *run) {
		const writers = 4
		stores, won := r.begin().several(writers), make([]bool, writers)
		each(writers, func(i int) {
			mine := fmt.Sprint("of ", i)
			now, err := stores[i].Replace(r.Context(), records.Placements, "", mine)
			if err != nil {
				r.Error(err)
			}
			won[i] = now == mine
		})
		n := 0
		for i, mine := range won {
			if mine {
				n++
				r.place("", "late", fmt.Sprint("of ", i))
			}
		}
		if n != 1 {
			r.Errorf("%d writers placed first", n)
		}
	}},
	{"NotesAreApart", func(r *run) {
		r.begin()
		before := r.observe(0).Version
		r.place("", "one", "one")
		if now, err := r.store.Replace(r.Context(), records.Suspects, "", "two"); err != nil || now != "two" {
			r.Errorf("the other note: %q, %v", now, err)
		}
		for since, want := range map[int64]records.Notes{0: {"one", "two"}, before: {"one", "two"}, before + 1: {"one", "two"}} {
			if s := r.observe(since); s.Notes != want {
				r.Errorf("since %d saw %q", since, s.Notes)
			}
		}
	}},
	{"PlacementsOutliveSessions", func(r *run) {
		r.begin().register("a")
		r.place("", "one", "one")
		r.must(r.store.Release(r.Context(), "a"))
		r.h.Elapse(2 * r.h.TTL)
		if s := r.observe(0); s.Notes[records.Placements] != "one" {
			r.Errorf("saw %q", s.Notes[records.Placements])
		}
	}},
}

// place replaces placements, and wants others afterwards.
func (r *run) place(from, to, want string) {
	r.Helper()
	if now, err := r.store.Replace(r.Context(), records.Placements, from, to); err != nil || now != want {
		r.Errorf("placing %q for %q: %q, %v; want %q", to, from, now, err, want)
	}
}
