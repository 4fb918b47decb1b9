package storetest

import "github.com/keyway-go/keyway/internal/records"

var lockTests = []test{
	{"LocksMove", func(r *run) {
		record := r.locked()
		r.wantLocks(1, "a", 0, "")
		text := "any \x00 bytes \xff 3:a,"
		r.refused("a", moveLocks(1, record, "nobody", text))
		r.refused("b", moveLocks(1, record, "b", text))
		r.wantLocks(1, "a", 0, "")
		got := r.apply("a", moveLocks(1, record, "b", text))[0]
		if got.Record.Owner != "b" || got.Moved != got.Record.Epoch || got.Locks != "" {
			r.Errorf("the move is answered with %v", got)
		}
		r.wantLocks(1, "b", got.Record.Epoch, text)
	}},
	{"TrapReplyLostAfterMoveOfLocks", func(r *run) {
		record := r.locked()
		there := r.applied("a", moveLocks(1, record, "b", "text"), "b")
		r.refused("a", moveLocks(1, record, "b", "other"))
		r.wantLocks(1, "b", there.Epoch, "text")
	}},
	{"LocksAreReplaced", func(r *run) {
		record := r.locked()
		record = r.applied("a", moveLocks(1, record, "b", "first"), "b")
		record = r.applied("b", moveLocks(1, record, "c", "second"), "c")
		r.wantLocks(1, "c", record.Epoch, "second")
		record = r.applied("c", moveLocks(1, record, "a", ""), "a")
		r.wantLocks(1, "a", record.Epoch, "")
	}},
	{"TrapMoveByWhoHasNotServed", func(r *run) {
		first := r.locked()
		there := r.applied("a", moveLocks(1, first, "b", "text"), "b")
		late := moveLocks(1, there, "c", "")
		late.Served = first.Epoch
		on := r.applied("b", late, "c")
		r.wantLocks(1, "c", on.Epoch, "text")
		back := claim(1, on)
		back.Served = first.Epoch
		on = r.applied("c", back, "c")
		r.wantLocks(1, "c", on.Epoch, "text")
		back = claim(1, on)
		back.Served = on.Epoch
		again := r.applied("c", back, "c")
		r.wantLocks(1, "c", on.Epoch, "text")
		late = moveLocks(1, again, "a", "")
		late.Served = first.Epoch
		r.applied("c", late, "a")
		r.wantLocks(1, "a", on.Epoch, "text")
	}},
	{"ClaimAndAdvanceKeepLocks", func(r *run) {
		record := r.locked()
		there := r.applied("a", moveLocks(1, record, "b", "text"), "b")
		record = r.applied("b", records.Change{Op: records.OpAdvance, Partition: 1, From: there, Locks: "none", Served: there.Epoch}, "b")
		r.wantLocks(1, "b", there.Epoch, "text")
		r.must(r.store.Release(r.Context(), "b"))
		c := claim(1, record)
		c.Locks, c.Served = "none", record.Epoch
		got := r.apply("c", c)[0]
		if got.Record.Owner != "c" || got.Moved != there.Epoch || got.Locks != "text" {
			r.Errorf("the claim is answered with %v", got)
		}
		r.wantLocks(1, "c", there.Epoch, "text")
		if got := r.register("c", records.Holding{Partition: 1, Epoch: got.Record.Epoch})[0]; got.Locks != "text" || got.Moved != there.Epoch {
			r.Errorf("the registration is answered with %v", got)
		}
	}},
	{"ClearLocks", func(r *run) {
		record := r.locked()
		there := r.applied("a", moveLocks(1, record, "b", "text"), "b")
		version := r.observe(0).Version
		for _, other := range []records.Move{{Partition: 1, Epoch: there.Epoch - 1}, {Partition: 1, Epoch: there.Epoch + 1}, {Partition: 2, Epoch: there.Epoch}} {
			r.must(r.store.ClearLocks(r.Context(), r.gen, []records.Move{other}))
			r.wantLocks(1, "b", there.Epoch, "text")
		}
		for range 2 {
			r.must(r.store.ClearLocks(r.Context(), r.gen, []records.Move{{Partition: 2}, {Partition: 1, Epoch: there.Epoch}}))
			r.wantLocks(1, "b", there.Epoch, "")
		}
		if now := r.observe(version); len(now.Partitions) > 0 {
			r.Errorf("clearing locks changed %v, which nobody needs to look at", now.Partitions)
		}
		r.must(r.store.ClearLocks(r.Context(), r.gen, nil))
	}},
	{"TrapLateClearOfLocks", func(r *run) {
		record := r.locked()
		first := r.applied("a", moveLocks(1, record, "b", "first"), "b")
		second := r.applied("b", moveLocks(1, first, "a", "second"), "a")
		r.must(r.store.ClearLocks(r.Context(), r.gen, []records.Move{{Partition: 1, Epoch: first.Epoch}}))
		r.wantLocks(1, "a", second.Epoch, "second")
	}},
}

// lockRestartTests need Harness.Restart.
var lockRestartTests = []test{{"LocksEndWithTheirGeneration", func(r *run) {
	record := r.locked()
	there := r.applied("a", moveLocks(1, record, "b", "text"), "b")
	r.h.Restart()
	r.refresh()
	r.wantLocks(1, "b", there.Epoch, "")
	r.wantRecord(1, there)
}}}

// moveLocks moves a partition with locks, by a caller that has served it.
func moveLocks(p int, from records.Record, to, locks string) records.Change {
	c := move(p, from, to)
	c.Locks, c.Served = locks, from.Epoch
	return c
}

// told is what an incarnation is told of a partition.
func (r *run) told(inc string, p int) records.PartitionState {
	r.Helper()
	s, err := r.store.Observe(r.Context(), r.gen, inc, 0, nil)
	r.must(err)
	for _, state := range s.Partitions {
		if state.Partition == p {
			return state
		}
	}
	return records.PartitionState{}
}

// wantLocks wants the owner, and nobody else, to be told of locks that a move has
// written.
func (r *run) wantLocks(p int, owner string, moved int64, locks string) {
	r.Helper()
	for _, inc := range []string{"", "a", "b", "c"} {
		want := ""
		if inc == owner {
			want = locks
		}
		if got := r.told(inc, p); got.Moved != moved || got.Locks != want {
			r.Errorf("%q is told of locks %.40q of a move at epoch %d, want %.40q and %d", inc, got.Locks, got.Moved, want, moved)
		}
	}
}

// locked lets a serve partition 1, while b and c live.
func (r *run) locked() records.Record {
	r.Helper()
	r.begin().register("b")
	r.register("c")
	return r.register("a", records.Holding{Partition: 1, Epoch: 1})[0].Record
}
