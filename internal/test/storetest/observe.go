package storetest

import (
	"context"
	"fmt"
	"reflect"
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
		stores := r.begin().several(writers)
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
		hinted := func(what string, partitions int, f func()) {
			r.Helper()
			r.quiet(hints)
			f()
			select {
			case h, ok := <-hints:
				if !ok {
					r.Fatalf("the channel was closed at %s", what)
				}
				if r.h.Terse {
					partitions = 0
				}
				if s, err := other.Observe(r.Context(), r.gen, "", h.Version-1, nil); len(h.Partitions) != partitions || partitions > 0 && (err != nil ||
					h.Generation != r.gen || h.Version != s.Version || !reflect.DeepEqual(h.Partitions, s.Partitions)) {
					r.Errorf("%s is hinted as %+v, want %d partitions; a look shows %+v, %v", what, h, partitions, s, err)
				}
				if again := r.quiet(hints); again.Partitions != nil {
					r.Errorf("%s is hinted once more, as %+v", what, again)
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
		hinted("Register", 0, func() { r.register("b") })
		hinted("Register with a holding", 0, func() { r.register("c", records.Holding{Partition: 9, Epoch: 1}) })
		hinted("Apply", 1, func() { record = r.apply("a", claim(1, records.Record{}))[0].Record })
		entry := records.Residue{Key: "k", Holder: "a", Token: 1}
		hinted("a move", 1, func() { record = r.apply("a", move(1, record, "b", entry))[0].Record })
		hinted("Clear", 1, func() { r.must(r.store.Clear(r.Context(), r.gen, 1, []records.Residue{entry})) })
		hinted("two claims", 2, func() { r.apply("a", claim(2, records.Record{}), claim(3, records.Record{})) })
		locked := move(1, record, "a")
		locked.Locks, locked.Served = "locks", record.Epoch
		hinted("a move with locks", 0, func() { record = r.apply("b", locked)[0].Record })
		r.write("a", records.LockWrite{Partition: 2, Number: records.WriteNumber{Epoch: r.partition(2).Record.Epoch, Number: 1}, Locks: []records.WrittenLock{{ID: "id", Text: "text"}}})
		hinted("a move of a partition with a written lock", 0, func() { r.apply("a", move(2, r.partition(2).Record, "b")) })
		hinted("Release", 0, func() { r.must(r.store.Release(r.Context(), "a")) })
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

// quiet returns the latest hint when no other has come for a moment.
func (r *run) quiet(hints <-chan records.Hint) (last records.Hint) {
	for {
		select {
		case last = <-hints:
		case <-time.After(20 * time.Millisecond):
			return last
		}
	}
}
