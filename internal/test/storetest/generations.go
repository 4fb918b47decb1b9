package storetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/records"
)

var generationTests = []test{
	{"GenerationIsStable", func(r *run) {
		r.begin()
		other := r.h.Open(r.T, false)
		for _, s := range []Store{r.store, other, other} {
			gen, err := s.Generation(r.Context(), true)
			r.must(err)
			if gen != r.gen {
				r.Errorf("got generation %q, want %q", gen, r.gen)
			}
		}
	}},
	{"OtherGenerationChangesNothing", func(r *run) {
		entry := records.Residue{Key: "k", Holder: "z", Token: 1}
		r.begin().register("a", records.Holding{Partition: 1, Epoch: 1, Residue: []records.Residue{entry}})
		before := r.observe(0)
		for name, call := range r.calls(r.Context(), "other", "a") {
			r.wantErr(name, call(), records.ErrGeneration)
		}
		after := r.observe(0)
		if after.Version != before.Version || len(after.Sessions) != 1 || after.Sessions[0] != before.Sessions[0] {
			r.Errorf("calls of another generation turned %v into %v", before, after)
		}
		r.wantResidue(1, entry)
	}},
}

var restartTests = []test{
	{"NewClusterSkipsOnlyTheFirstQuarantine", func(r *run) {
		r.begin()
		if left := r.observe(0).Quarantine; left != 0 {
			r.Errorf("a new cluster has a quarantine of %v", left)
		}
		r.h.Restart()
		r.store = r.h.Open(r.T, true)
		r.refresh()
		if r.observe(0).Quarantine == 0 {
			r.Error("a restart with data has no quarantine in the eyes of a new cluster")
		}
		r.h.Lose()
		r.refresh()
		if r.observe(0).Quarantine == 0 {
			r.Error("a loss of data has no quarantine in the eyes of a handle that knew it")
		}
	}},
	{"RestartIsSeenByTheFirstCall", func(r *run) { r.isSeen(r.h.Restart) }},
	{"LossIsSeenByTheFirstCall", func(r *run) { r.isSeen(r.h.Lose) }},
	// The loss of any one key begins a generation, in which every record is shown
	// that is still there.
	{"TrapLostKeyIsSeenByTheFirstCall", func(r *run) {
		r.begin()
		if len(r.h.Keys) == 0 {
			r.Fatal("the harness names no keys")
		}
		for _, key := range r.h.Keys {
			mine := r.register("a-"+key, records.Holding{Partition: 1, Epoch: r.h.Now().Unix() * 2})[0].Record
			other := r.register("b-"+key, records.Holding{Partition: 2, Epoch: r.h.Now().Unix() * 2})[0].Record
			r.must(r.store.Release(r.Context(), "c-"+key))
			for name, call := range r.calls(r.Context(), r.gen, "a") {
				old := r.gen
				r.h.LoseKey(key)
				r.wantErr(name+" after "+key+" was lost", call(), records.ErrGeneration)
				r.refresh()
				s := r.observe(0)
				if r.gen == old || s.Quarantine <= 0 || len(s.Sessions) > 0 {
					r.Fatalf("%s lost: got generation %q after %q and %+v, want a quarantine and no session", key, r.gen, old, s)
				}
				if len(s.Partitions) != 2 && !strings.HasSuffix(key, "partitions") {
					r.Errorf("%s lost: got %v, want both records", key, s.Partitions)
				}
				for _, p := range s.Partitions {
					if p.Record != mine && p.Record != other {
						r.Errorf("%s lost: got %v, want record %v or %v", key, p, mine, other)
					}
				}
				mine = r.again("a-"+key, 1, mine)
				other = r.again("b-"+key, 2, other)
			}
		}
	}},
	{"RestartEndsSessionsAndKeepsRecords", func(r *run) {
		entry := records.Residue{Key: "k", Holder: "z", Token: 1}
		record := r.begin().register("a", records.Holding{Partition: 1, Epoch: 1, Residue: []records.Residue{entry}})[0].Record
		r.register("b")
		r.must(r.store.Release(r.Context(), "c"))
		r.h.Restart()
		r.refresh()
		s := r.observe(0)
		if len(s.Sessions) > 0 || !slices.Equal(s.Released, []string{"c"}) {
			r.Errorf("got sessions %v and tombstones %q, want none and c", s.Sessions, s.Released)
		}
		r.wantRecord(1, record)
		r.wantResidue(1, entry)
		r.wantErr("Renew", r.renew("a", long), records.ErrSessionGone)
		r.register("b")
		r.refused("b", claim(1, record)) // in the quarantine
		again := r.register("a", records.Holding{Partition: 1, Epoch: record.Epoch, Residue: []records.Residue{entry}})[0]
		if again.Record.Owner != "a" || again.Record.Epoch <= record.Epoch {
			r.Errorf("the record %v was re-asserted as %v", record, again.Record)
		}
	}},
	{"RegisterAfterLoss", func(r *run) {
		record := r.begin().register("a", records.Holding{Partition: 1, Epoch: r.h.Now().Unix() * 2})[0].Record
		r.h.Lose()
		r.refresh()
		entry := records.Residue{Key: "k", Holder: "a", Token: 7}
		got := r.register("a", records.Holding{Partition: 1, Epoch: record.Epoch, Residue: []records.Residue{entry}})[0]
		if got.Record != (records.Record{Epoch: record.Epoch + 1, Owner: "a"}) {
			r.Errorf("the record %v was re-asserted as %v", record, got.Record)
		}
		r.wantResidue(1, entry)
		// A worker that was wrong about owning the partition comes too late.
		refused := r.register("b", records.Holding{Partition: 1, Epoch: record.Epoch - 1})[0].Record
		if refused != got.Record {
			r.Errorf("a lower holding turned %v into %v", got.Record, refused)
		}
	}},
	{"RunOutSessionMayReturnInAnotherGeneration", func(r *run) {
		r.begin().dead("a", 1)
		r.must(r.store.Release(r.Context(), "b"))
		r.h.Restart()
		r.refresh()
		r.register("a")
		r.wantGone("b")
	}},
	{"TrapEpochsRiseFromAnEmptyStore", func(r *run) {
		r.begin().register("a")
		before := r.applied("a", claim(1, records.Record{}), "a")
		r.h.Lose()
		r.refresh()
		r.register("b")
		r.until("the quarantine is over and a second has passed", func() bool {
			return r.observe(0).Quarantine == 0 && r.h.Now().Unix() > before.Epoch
		})
		after := r.applied("b", claim(1, records.Record{}), "b")
		if after.Epoch <= before.Epoch {
			r.Errorf("the epoch went from %d to %d", before.Epoch, after.Epoch)
		}
	}},
	{"VersionOfAnEarlierGeneration", func(r *run) {
		r.begin()
		for name, event := range map[string]func(){"a restart": r.h.Restart, "a loss": r.h.Lose} {
			r.register("a", records.Holding{Partition: 1, Epoch: 1})
			version := r.observe(0).Version
			event()
			r.h.Elapse(10 * time.Millisecond) // versions follow the clock
			r.refresh()
			r.register("b", records.Holding{Partition: 2, Epoch: 1})
			if got, all := r.observe(version).Partitions, r.observe(0).Partitions; len(got) != len(all) {
				r.Errorf("after %s, a version from before shows %v, want all of %v", name, got, all)
			}
		}
	}},
	// A look that finds nothing new may be answered by a generation that is over, as long as nobody has
	// begun the next; a close look ends it.
	{"TrapCloseLookAfterARestart", func(r *run) {
		r.begin().register("a")
		before := r.observe(0)
		look := func(suspects ...string) (s records.Snapshot, err error) {
			r.until("the store answers", func() bool {
				s, err = r.store.Observe(r.Context(), r.gen, "a", before.Version, suspects)
				return isDefinite(err)
			})
			return s, err
		}
		r.h.Restart()
		if s, err := look(); err == nil && (s.Version != before.Version || s.Generation != r.gen || len(s.Sessions) != 1) {
			r.Errorf("got %+v after a restart, and before it %+v", s, before)
		}
		_, err := look("b")
		r.wantErr("a close look after a restart", err, records.ErrGeneration)
		_, err = look()
		r.wantErr("a look when the next generation has begun", err, records.ErrGeneration)
		old := r.gen
		r.refresh()
		if s := r.observe(before.Version); r.gen == old || len(s.Sessions) > 0 || len(s.Gone) > 0 {
			r.Errorf("the next generation shows %+v", s)
		}
	}},
}

// calls are all calls that name a generation, by an incarnation where they name one, and what each would change.
func (r *run) calls(ctx context.Context, gen, inc string) map[string]func() error {
	s := r.store
	entry := []records.Residue{{Key: "k", Holder: "z", Token: 1}}
	return map[string]func() error{
		"Register": func() error {
			return only(s.Register(ctx, gen, session(inc), long, []records.Holding{{Partition: 9, Epoch: 1}}))
		},
		"Renew":      func() error { return only(s.Renew(ctx, gen, inc, long)) },
		"Apply":      func() error { return only(s.Apply(ctx, gen, inc, []records.Change{claim(8, records.Record{})})) },
		"Clear":      func() error { return s.Clear(ctx, gen, 1, entry) },
		"ClearLocks": func() error { return s.ClearLocks(ctx, gen, []records.Move{{Partition: 1, Epoch: 1}}) },
		"WriteLocks": func() error {
			return only(s.WriteLocks(ctx, gen, inc, []records.LockWrite{lockWrite(1, 1, 1, "id", "text")}))
		},
		"Observe": func() error { return only(s.Observe(ctx, gen, "", 0, nil)) },
	}
}

// only is the error of a call.
func only[T any](_ T, err error) error { return err }

// wantGone wants what an incarnation calls to be refused for want of its session.
func (r *run) wantGone(inc string) {
	r.Helper()
	calls := r.calls(r.Context(), r.gen, inc)
	for _, name := range []string{"Register", "Renew", "Apply", "WriteLocks"} {
		r.wantErr(name, calls[name](), records.ErrSessionGone)
	}
}

// again registers an incarnation that re-asserts its record.
func (r *run) again(inc string, partition int, was records.Record) records.Record {
	r.Helper()
	now := r.register(inc, records.Holding{Partition: partition, Epoch: was.Epoch})[0].Record
	if now.Owner != inc || now.Epoch <= was.Epoch {
		r.Errorf("the record %v was re-asserted as %v", was, now)
	}
	return now
}

// eventually repeats a call whose connection died with the server.
func (r *run) eventually(call func() error) (err error) {
	r.Helper()
	r.until("the store answers", func() bool {
		err = call()
		return isDefinite(err)
	})
	return err
}

func (r *run) isSeen(event func()) {
	r.begin()
	names := []string{"Register", "Renew", "Apply", "Clear", "ClearLocks", "WriteLocks", "Observe"}
	for _, name := range names {
		r.register("a-" + name)
		old := r.gen
		event()
		r.wantErr(name+" as the first call", r.eventually(r.calls(r.Context(), old, "a")[name]), records.ErrGeneration)
		r.refresh()
		if r.gen == old {
			r.Errorf("the generation is the same as before")
		}
		if left := r.observe(0).Quarantine; left <= 0 {
			r.Error("there is no quarantine")
		}
		for again, call := range r.calls(r.Context(), old, "a") {
			r.wantErr(again+" after "+name, call(), records.ErrGeneration)
		}
	}
}
