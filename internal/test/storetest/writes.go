package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/internal/records"
)

var writeTests = []test{
	{"WriteLocks", func(r *run) {
		record := r.locked()
		e := record.Epoch
		if got := r.told("a", 1).Written; len(got) > 0 {
			r.Errorf("there are locks: %v", got)
		}
		version := r.observe(0).Version
		r.written("a", records.LockWrite{Partition: 1, Number: records.WriteNumber{Epoch: e, Number: 1}, Locks: []records.WrittenLock{
			{ID: "x", Text: "1"}, {ID: "y", Text: "any \x00 bytes \xff;:3:a,"}, {ID: "x:1:", Text: "z"}, {ID: "", Text: "none"}, {ID: "w", Text: "1"}, {ID: "w"}, {ID: "v"},
		}})
		r.wantWritten(1, "a", " none", "x 1", "x:1: z", "y any \x00 bytes \xff;:3:a,")
		r.written("a", records.LockWrite{Partition: 1, Number: records.WriteNumber{Epoch: e, Number: 7}, Locks: []records.WrittenLock{{ID: "x", Text: "2"}, {ID: "y"}, {ID: ""}}})
		r.wantWritten(1, "a", "x 2", "x:1: z")
		if now := r.observe(version); len(now.Partitions) > 0 {
			r.Errorf("writing locks changed %v, which nobody needs to look at", now.Partitions)
		}
		if got := r.register("a", records.Holding{Partition: 1, Epoch: e})[0].Written; len(got) != 2 {
			r.Errorf("the registration is answered with %v", got)
		}
		_, err := r.store.WriteLocks(r.Context(), r.gen, "nobody", []records.LockWrite{lockWrite(1, e, 8, "x", "")})
		r.wantErr("a write without a session", err, records.ErrSessionGone)
		r.write("a")
	}},
	// Another incarnation is not the owner, or was.
	{"TrapWriteByAnother", func(r *run) {
		record := r.locked()
		r.written("a", lockWrite(1, record.Epoch, 1, "x", "1"))
		last := records.WriteNumber{Epoch: record.Epoch, Number: 1}
		for inc, w := range map[string]records.LockWrite{
			"b": lockWrite(1, record.Epoch, 2, "x", ""),
			"a": lockWrite(1, record.Epoch+1, 2, "x", ""),
		} {
			if got := r.write(inc, w)[0]; got != last {
				r.Errorf("%s: the latest write is %v, want %v", inc, got, last)
			}
		}
		there := r.applied("a", move(1, record, "b"), "b")
		if got := r.write("a", lockWrite(1, record.Epoch, 2, "x", ""))[0]; got != last {
			r.Errorf("after the move the latest write is %v, want %v", got, last)
		}
		r.wantWritten(1, "b", "x 1")
		r.written("b", lockWrite(1, there.Epoch, 1, "y", "2"))
		r.wantWritten(1, "b", "x 1", "y 2")
	}},
	// A late write has been made before, or was overtaken.
	{"TrapLateWrite", func(r *run) {
		e := r.locked().Epoch
		put, remove := lockWrite(1, e, 1, "x", "1"), lockWrite(1, e, 2, "x", "")
		r.written("a", put)
		r.written("a", put)
		r.wantWritten(1, "a", "x 1")
		r.written("a", remove)
		if got := r.write("a", put, lockWrite(2, e, 1, "x", "1")); got[0] != remove.Number || got[1] != (records.WriteNumber{}) {
			r.Errorf("the latest writes are %v, want %v and none", got, remove.Number)
		}
		r.wantWritten(1, "a")
	}},
	// Neither another owner nor what moves write changes them.
	{"WrittenLocksStay", func(r *run) {
		record := r.locked()
		r.written("a", lockWrite(1, record.Epoch, 1, "x", "1"))
		there := r.apply("a", moveLocks(1, record, "b", "text"))[0].Record
		r.wantWritten(1, "b", "x 1")
		r.must(r.store.ClearLocks(r.Context(), r.gen, []records.Move{{Partition: 1, Epoch: there.Epoch}}))
		there = r.applied("b", records.Change{Op: records.OpAdvance, Partition: 1, From: there}, "b")
		r.must(r.store.Release(r.Context(), "b"))
		if got := r.apply("c", claim(1, there))[0]; len(got.Written) != 1 {
			r.Errorf("the claim is answered with %v", got)
		}
		r.wantWritten(1, "c", "x 1")
	}},
	// There are more partitions than one command reads. Some have many locks, and half of them move with long ones.
	{"LocksOfManyPartitions", func(r *run) {
		const partitions = 1100
		r.begin().register("b")
		var writes []records.LockWrite
		var changes []records.Change
		for _, s := range r.registerMany("a", partitions) {
			w := records.LockWrite{Partition: s.Partition, Number: records.WriteNumber{Epoch: s.Record.Epoch, Number: 1}}
			for i := range s.Partition % 4 {
				w.Locks = append(w.Locks, records.WrittenLock{ID: fmt.Sprint(s.Partition, i), Text: strings.Repeat("x", 500)})
			}
			writes = append(writes, w)
			changes = append(changes, moveLocks(s.Partition, s.Record, "b", strings.Repeat("x", s.Partition%2*1000)))
		}
		r.write("a", writes...)
		r.apply("a", changes...)
		s, err := r.store.Observe(r.Context(), r.gen, "b", 0, nil)
		r.must(err)
		if len(s.Partitions) != partitions {
			r.Fatalf("%d partitions, want %d", len(s.Partitions), partitions)
		}
		for _, state := range s.Partitions {
			slices.SortFunc(state.Written, func(a, b records.WrittenLock) int { return strings.Compare(a.ID, b.ID) })
			if want := writes[state.Partition].Locks; !slices.Equal(state.Written, want) {
				r.Fatalf("partition %d has the locks %.60v, want %.60v", state.Partition, state.Written, want)
			}
			if want := changes[state.Partition].Locks; state.Locks != want || state.Moved != state.Record.Epoch {
				r.Fatalf("partition %d of %v has locks %.20q of epoch %d, want %.20q", state.Partition, state.Record, state.Locks, state.Moved, want)
			}
		}
	}},
}

// writeRestartTests need Harness.Restart.
var writeRestartTests = []test{{"WrittenLocksEndWithTheirGeneration", func(r *run) {
	record := r.locked()
	r.written("a", lockWrite(1, record.Epoch, 5, "x", "1"))
	r.h.Restart()
	r.refresh()
	r.wantWritten(1, "a")
	e := r.register("a", records.Holding{Partition: 1, Epoch: record.Epoch})[0].Record.Epoch
	r.written("a", lockWrite(1, e, 1, "y", "2"))
	r.wantWritten(1, "a", "y 2")
}}}

// lockWrite is a write of one lock, or its removal.
func lockWrite(p int, epoch, number int64, id, text string) records.LockWrite {
	return records.LockWrite{Partition: p, Number: records.WriteNumber{Epoch: epoch, Number: number}, Locks: []records.WrittenLock{{ID: id, Text: text}}}
}

func (r *run) write(inc string, writes ...records.LockWrite) []records.WriteNumber {
	r.Helper()
	wrote, err := r.store.WriteLocks(r.Context(), r.gen, inc, writes)
	r.must(err)
	if len(wrote) != len(writes) {
		r.Fatalf("%d numbers for %d writes", len(wrote), len(writes))
	}
	return wrote
}

// written makes a write and wants it made.
func (r *run) written(inc string, w records.LockWrite) {
	r.Helper()
	if got := r.write(inc, w)[0]; got != w.Number {
		r.Errorf("the latest write is %v, want %v", got, w.Number)
	}
}

// wantWritten wants the owner, and nobody else, to be told of the locks "id text".
func (r *run) wantWritten(p int, owner string, locks ...string) {
	r.Helper()
	for _, inc := range []string{"", "a", "b", "c"} {
		var want, got []string
		if inc == owner {
			want = locks
		}
		for _, l := range r.told(inc, p).Written {
			got = append(got, l.ID+" "+l.Text)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			r.Errorf("%q is told of the locks %.60q, want %.60q", inc, got, want)
		}
	}
}
