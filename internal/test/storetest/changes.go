package storetest

import (
	"fmt"

	"github.com/keyway-go/keyway/internal/records"
)

var changeTests = []test{
	{"ClaimOfAnAbsentRecord", func(r *run) {
		r.begin().register("a")
		r.refused("a", claim(1, records.Record{Epoch: 1}))
		r.refused("a", claim(1, records.Record{Owner: "a"}))
		r.applied("a", claim(1, records.Record{}), "a")
		r.refused("a", claim(1, records.Record{}))
	}},
	{"ClaimOfAnOwnRecord", func(r *run) {
		r.beginQuarantined()
		own := r.register("a", records.Holding{Partition: 1, Epoch: 1})[0].Record
		r.refused("a", claim(1, records.Record{Epoch: own.Epoch - 1, Owner: "a"}))
		r.applied("a", claim(1, own), "a") // the quarantine does not matter
	}},
	{"ClaimOfADeadOwner", func(r *run) {
		r.begin()
		record := r.dead("a", 1)
		r.register("b")
		r.refused("b", claim(1, records.Record{Epoch: record.Epoch - 1, Owner: "a"}))
		r.refused("b", claim(1, records.Record{Epoch: record.Epoch, Owner: "c"}))
		r.applied("b", claim(1, record), "b")
	}},
	{"ClaimOfAReleasedOwner", func(r *run) {
		r.beginQuarantined()
		record := r.register("a", records.Holding{Partition: 1, Epoch: 1})[0].Record
		r.register("b")
		r.refused("b", claim(1, record))
		r.must(r.store.Release(r.Context(), "a"))
		r.applied("b", claim(1, record), "b") // the quarantine does not matter
	}},
	{"ClaimOfALiveOwner", func(r *run) {
		r.begin()
		record := r.register("a", records.Holding{Partition: 1, Epoch: 1})[0].Record
		r.register("b")
		r.refused("b", claim(1, record))
	}},
	{"ClaimKeepsResidue", func(r *run) {
		r.begin()
		entry := records.Residue{Key: "k", Holder: "z", Token: 4}
		record := r.register("a", records.Holding{Partition: 1, Epoch: 1, Residue: []records.Residue{entry}})[0].Record
		c := claim(1, record)
		c.Residue = []records.Residue{{Key: "other", Holder: "a", Token: 5}} // only a move writes any
		r.applied("a", c, "a")
		r.wantResidue(1, entry)
	}},
	{"QuarantineHoldsClaims", func(r *run) {
		r.beginQuarantined().register("a")
		if left := r.observe(0).Quarantine; left <= 0 || left > r.h.TTL {
			r.Errorf("the quarantine has %v left, want something up to %v", left, r.h.TTL)
		}
		r.refused("a", claim(1, records.Record{}))
		r.until("the quarantine is over", func() bool { return r.observe(0).Quarantine == 0 })
		r.applied("a", claim(1, records.Record{}), "a")
	}},
	{"MoveWithResidue", func(r *run) {
		r.begin().register("b")
		stays := records.Residue{Key: "stays", Holder: "z", Token: 1}
		old := records.Residue{Key: "k", Holder: "z", Token: 2}
		record := r.register("a", records.Holding{Partition: 1, Epoch: 1, Residue: []records.Residue{stays, old}})[0].Record
		runs := records.Residue{Key: "k", Holder: "a", Token: 3}
		more := records.Residue{Key: "more", Holder: "a", Token: 4}
		r.applied("a", move(1, record, "b", runs, more), "b")
		r.wantResidue(1, stays, runs, more)
	}},
	{"MoveRefused", func(r *run) {
		r.begin().register("b")
		runs := records.Residue{Key: "k", Holder: "a", Token: 3}
		record := r.register("a", records.Holding{Partition: 1, Epoch: 1})[0].Record
		r.refused("a", move(1, record, "nobody", runs))
		r.refused("b", move(1, record, "b", runs))
		r.refused("a", move(1, records.Record{Epoch: record.Epoch + 1, Owner: "a"}, "b", runs))
		r.refused("a", move(2, records.Record{}, "b", runs))
		r.must(r.store.Release(r.Context(), "b"))
		r.refused("a", move(1, record, "b", runs))
		r.wantResidue(1)
	}},
	{"TrapReplyLostAfterMove", func(r *run) {
		r.begin().register("b")
		record := r.register("a", records.Holding{Partition: 1, Epoch: 1})[0].Record
		runs := records.Residue{Key: "k", Holder: "a", Token: 3}
		moved := r.applied("a", move(1, record, "b", runs), "b")
		r.must(r.store.Clear(r.Context(), r.gen, 1, []records.Residue{runs}))
		got := r.apply("a", move(1, record, "b", runs))[0]
		if got.Record != moved || len(got.Residue) > 0 {
			r.Errorf("the repeated move gave %v, want record %v without residue", got, moved)
		}
	}},
	{"TrapLateMoveAfterFlapping", func(r *run) {
		r.begin().register("b")
		first := r.register("a", records.Holding{Partition: 1, Epoch: 1})[0].Record
		there := r.applied("a", move(1, first, "b"), "b")
		back := r.applied("b", move(1, there, "a"), "a")
		if first.Epoch >= there.Epoch || there.Epoch >= back.Epoch {
			r.Errorf("epochs went %d, %d, %d, want them to go up", first.Epoch, there.Epoch, back.Epoch)
		}
		r.refused("a", move(1, first, "b"))
		r.refused("b", move(1, there, "a"))
	}},
	{"TrapResidueIsCarriedAlong", func(r *run) {
		r.begin().register("b")
		r.register("c")
		record := r.register("a", records.Holding{Partition: 1, Epoch: 1})[0].Record
		ofA := records.Residue{Key: "k1", Holder: "a", Token: 1}
		ofB := records.Residue{Key: "k2", Holder: "b", Token: 2}
		record = r.applied("a", move(1, record, "b", ofA), "b")
		record = r.applied("b", move(1, record, "c", ofB), "c")
		r.wantResidue(1, ofA, ofB)
		r.must(r.store.Clear(r.Context(), r.gen, 1, []records.Residue{ofA}))
		r.applied("c", move(1, record, "a"), "a")
		r.wantResidue(1, ofB)
	}},
	{"Advance", func(r *run) {
		r.begin().register("b")
		entry := records.Residue{Key: "k", Holder: "z", Token: 1}
		record := r.register("a", records.Holding{Partition: 1, Epoch: 1, Residue: []records.Residue{entry}})[0].Record
		up := records.Change{Op: records.OpAdvance, Partition: 1, From: record}
		r.refused("b", up)
		now := r.applied("a", up, "a")
		if now.Epoch <= record.Epoch {
			r.Errorf("the epoch went from %d to %d", record.Epoch, now.Epoch)
		}
		r.refused("a", up)
		r.wantResidue(1, entry)
		r.refused("a", records.Change{Op: records.OpAdvance, Partition: 2})
	}},
	{"EpochFloor", func(r *run) {
		r.begin().register("a")
		far := r.h.Now().Unix() * 3
		c := claim(1, records.Record{})
		c.Floor = far
		record := r.applied("a", c, "a")
		if record.Epoch != far {
			r.Errorf("got epoch %d, want the floor %d", record.Epoch, far)
		}
		next := r.applied("a", records.Change{Op: records.OpAdvance, Partition: 1, From: record, Floor: far - 5}, "a")
		if next.Epoch != far+1 {
			r.Errorf("got epoch %d, want %d", next.Epoch, far+1)
		}
	}},
	{"ChangesOfOneBatch", func(r *run) {
		r.begin().register("a")
		const many = 1200
		var changes []records.Change
		for p := range many {
			changes = append(changes, claim(p, records.Record{}))
		}
		changes[7].From.Epoch = 99 // refused by itself
		changes = append(changes, claim(0, records.Record{}))
		got := r.apply("a", changes...)
		for i, s := range got {
			owner := "a"
			if i == 7 {
				owner = ""
			}
			if s.Partition != changes[i].Partition || s.Record.Owner != owner {
				r.Fatalf("change %d gave %v, want owner %q", i, s, owner)
			}
		}
		if got[0].Record != got[many].Record {
			r.Errorf("two changes of a partition gave %v and %v", got[0], got[many])
		}
		if seen := r.observe(0).Partitions; len(seen) != many-1 {
			r.Errorf("Observe shows %d partitions, want %d", len(seen), many-1)
		}
	}},
	{"ApplyNeedsASession", func(r *run) {
		own := r.begin().register("a", records.Holding{Partition: 2, Epoch: 1})[0].Record
		_, err := r.store.Apply(r.Context(), r.gen, "b", []records.Change{claim(1, records.Record{})})
		r.wantErr("Apply without a session", err, records.ErrSessionGone)
		r.wantRecord(1, records.Record{})
		r.refused("a", records.Change{Op: 77, Partition: 1})
		r.refused("a", records.Change{Op: 77, Partition: 2, From: own, To: "a"})
	}},
	{"TrapStaleClear", func(r *run) {
		r.begin()
		entry := records.Residue{Key: "k", Holder: "a", Token: 5}
		other := records.Residue{Key: "other", Holder: "a", Token: 5}
		record := r.register("a", records.Holding{Partition: 1, Epoch: 1, Residue: []records.Residue{entry, other}})[0].Record
		for _, stale := range []records.Residue{{Key: "k", Holder: "a", Token: 4}, {Key: "k", Holder: "b", Token: 5}, {Key: "j", Holder: "a", Token: 5}} {
			version := r.observe(0).Version
			r.must(r.store.Clear(r.Context(), r.gen, 1, []records.Residue{stale}))
			r.wantResidue(1, entry, other)
			if s := r.observe(version); s.Version != version || len(s.Partitions) > 0 {
				r.Errorf("clearing %v, which is not there, changed %v", stale, s.Partitions)
			}
		}
		for range 2 {
			r.must(r.store.Clear(r.Context(), r.gen, 1, []records.Residue{entry}))
			r.wantResidue(1, other)
		}
		r.must(r.store.Clear(r.Context(), r.gen, 9, []records.Residue{entry}))
		r.wantRecord(1, record)
	}},
	{"TwoClaimAtOnce", func(r *run) {
		const workers, partitions = 4, 25
		stores := r.begin().several(workers)
		told := make([][]records.PartitionState, workers)
		each(workers, func(i int) {
			for p := range partitions {
				s, err := stores[i].Apply(r.Context(), r.gen, fmt.Sprint("w", i), []records.Change{claim(p, records.Record{})})
				if err != nil {
					r.Error(err)
					return
				}
				told[i] = append(told[i], s[0])
			}
		})
		for p := range partitions {
			for i := range told {
				if r.Failed() || told[i][p].Record != told[0][p].Record || told[i][p].Record.Owner == "" {
					r.Fatalf("worker %d was told %v, worker 0 %v", i, told[i][p], told[0][p])
				}
			}
		}
	}},
}

func claim(p int, from records.Record) records.Change {
	return records.Change{Op: records.OpClaim, Partition: p, From: from}
}

func move(p int, from records.Record, to string, residue ...records.Residue) records.Change {
	return records.Change{Op: records.OpMove, Partition: p, From: from, To: to, Residue: residue}
}
