package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/records"
)

var observeTests = []test{
	{"ObserveSinceAVersion", func(r *run) {
		r.begin().register("a")
		empty := r.observe(0)
		if len(empty.Partitions) > 0 {
			r.Errorf("an empty store shows %v", empty.Partitions)
		}
		r.apply("a", claim(1, records.Record{}), claim(2, records.Record{}))
		both := r.observe(empty.Version)
		if len(both.Partitions) != 2 || both.Version <= empty.Version {
			r.Errorf("after two claims got %v at version %d, before %d", both.Partitions, both.Version, empty.Version)
		}
		idle := r.observe(both.Version)
		if len(idle.Partitions) > 0 || idle.Version != both.Version {
			r.Errorf("with nothing changed got %v at version %d, before %d", idle.Partitions, idle.Version, both.Version)
		}
		entry := records.Residue{Key: "k", Holder: "a", Token: 1}
		r.register("a", records.Holding{Partition: 2, Residue: []records.Residue{entry}})
		one := r.observe(both.Version)
		if len(one.Partitions) != 1 || one.Partitions[0].Partition != 2 {
			r.Errorf("after a residue got %v, want partition 2", one.Partitions)
		}
		r.must(r.store.Clear(r.Context(), r.gen, 2, []records.Residue{entry}))
		cleared := r.observe(one.Version)
		if len(cleared.Partitions) != 1 || len(cleared.Partitions[0].Residue) > 0 {
			r.Errorf("after the clearing got %v, want partition 2 without residue", cleared.Partitions)
		}
	}},
	// Writers change partitions while one process observes increments only; what
	// it adds up must be what is there in the end.
	{"ObserveMissesNothing", func(r *run) {
		const writers, rounds = 3, 40
		r.begin()
		stores := make([]Store, writers)
		for i := range stores {
			stores[i] = r.h.Open(r.T, false)
			r.register(fmt.Sprint("w", i))
		}
		known := map[int]records.PartitionState{}
		var version int64
		look := func() {
			s := r.observe(version)
			version = s.Version
			for _, p := range s.Partitions {
				known[p.Partition] = p
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			each(writers, func(i int) { write(r, stores[i], i, rounds) })
		}()
		for writing := true; writing; {
			select {
			case <-done:
				writing = false
			default:
			}
			look()
		}
		all := r.observe(0).Partitions
		if len(all) != len(known) {
			r.Errorf("increments showed %d partitions, want %d", len(known), len(all))
		}
		for _, want := range all {
			if got := known[want.Partition]; !same(got, want) {
				r.Errorf("increments added up to %v, want %v", got, want)
			}
		}
	}},
	// Sessions are whole in each snapshot, whichever version it is asked for after, and whichever handle
	// has made a change. Each change raises the version once for each who looks.
	{"ObserveShowsAllSessions", func(r *run) {
		r.begin().register("a")
		other := r.h.Open(r.T, false)
		version := r.observe(0).Version
		looks := func(what, sessions, released string) {
			r.Helper()
			var names []string
			s := r.observe(version)
			for _, session := range s.Sessions {
				names = append(names, session.Incarnation)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != sessions || strings.Join(s.Released, " ") != released || s.Version <= version || len(s.Partitions) > 0 {
				r.Errorf("%s: got sessions %q and tombstones %q at version %d after %d, want %q and %q", what, got, s.Released, s.Version, version, sessions, released)
			}
			version = s.Version
			if again := r.observe(version); again.Version != version || len(again.Sessions) != len(s.Sessions) || len(again.Released) != len(s.Released) {
				r.Errorf("%s: got %v, and with nothing changed %v", what, s, again)
			}
		}
		_, err := other.Register(r.Context(), r.gen, session("b"), long, nil)
		r.must(err)
		looks("a registers", "a b", "")
		r.registerFor("c", r.h.TTL)
		r.must(other.Release(r.Context(), "b"))
		looks("c registers and b is released", "a c", "b")
		r.until("c is gone", func() bool { return !r.hasSession("c") })
		before := version
		looks("c is gone", "a", "b")
		if s, err := other.Observe(r.Context(), r.gen, "", before, nil); err != nil || s.Version <= before || len(s.Sessions) != 1 {
			r.Errorf("c is gone: a handle that knew nothing of it got %v, %v, want a version after %d", s, err, before)
		}
		r.must(other.Release(r.Context(), "b"))
		if s := r.observe(version); s.Version != version {
			r.Errorf("a release that is repeated went from version %d to %d", version, s.Version)
		}
	}},
	// A snapshot's time is of the store's clock: no later than what that shows
	// after it, and later by what passes there.
	{"ObserveShowsTheClock", func(r *run) {
		r.begin().register("a")
		before := r.observe(0).Now
		r.h.Elapse(20 * time.Millisecond)
		after := r.observe(0).Now
		r.h.Elapse(time.Millisecond) // a store may show whole ones
		if passed := after - before; passed < 20*time.Millisecond || after > time.Duration(r.h.Now().UnixNano()) {
			r.Errorf("a snapshot at %v and one at %v, %v apart, at %v", before, after, passed, r.h.Now())
		}
	}},
	{"WatchHints", func(r *run) {
		r.begin()
		other := r.h.Open(r.T, false)
		hints := other.Watch(r.Context())
		hinted := func(what string, f func()) {
			r.Helper()
			r.quiet(hints)
			f()
			select {
			case _, ok := <-hints:
				if !ok {
					r.Fatalf("the channel was closed at %s", what)
				}
			case <-time.After(time.Minute):
				r.Fatalf("no hint after %s", what)
			}
		}
		// The subscription is there once a hint arrives; until then hints may get lost.
		r.until("the first hint arrives", func() bool {
			r.register("a")
			select {
			case <-hints:
				return true
			default:
				return false
			}
		})
		var record records.Record
		hinted("Register", func() { r.register("b") })
		hinted("Apply", func() { record = r.apply("a", claim(1, records.Record{}))[0].Record })
		entry := records.Residue{Key: "k", Holder: "a", Token: 1}
		hinted("a move", func() { r.apply("a", move(1, record, "b", entry)) })
		hinted("Clear", func() { r.must(r.store.Clear(r.Context(), r.gen, 1, []records.Residue{entry})) })
		hinted("Release", func() { r.must(r.store.Release(r.Context(), "a")) })
		for range 50 {
			r.register("b") // hints merge, nobody blocks
		}
	}},
	{"WatchEnds", func(r *run) {
		r.begin()
		ctx, cancel := context.WithCancel(r.Context())
		hints := r.store.Watch(ctx)
		cancel()
		for {
			select {
			case _, ok := <-hints:
				if !ok {
					return
				}
			case <-time.After(time.Minute):
				r.Fatal("the channel stays open after its context has ended")
			}
		}
	}},
}

func write(r *run, store Store, i, rounds int) {
	inc := fmt.Sprint("w", i)
	known := map[int]records.Record{}
	for n := range rounds {
		p := i*10 + n%7
		c := claim(p, known[p])
		s, err := store.Apply(r.Context(), r.gen, inc, []records.Change{c})
		if err != nil {
			r.Error(err)
			return
		}
		known[p] = s[0].Record
	}
}

// quiet returns when no hint has come for a moment.
func (r *run) quiet(hints <-chan struct{}) {
	for {
		select {
		case <-hints:
		case <-time.After(20 * time.Millisecond):
			return
		}
	}
}
