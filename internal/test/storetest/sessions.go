package storetest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/records"
)

var sessionTests = []test{
	{"RegisterShowsTheSession", func(r *run) {
		r.begin().register("a")
		r.register("b")
		got := r.observe(0).Sessions
		slices.SortFunc(got, func(a, b records.SessionState) int { return int(a.Incarnation[0]) - int(b.Incarnation[0]) })
		if len(got) != 2 || got[0].Session != session("a") || got[1].Session != session("b") {
			r.Errorf("got sessions %v, want those of a and b", got)
		}
	}},
	{"RegisterTwice", func(r *run) {
		hold := records.Holding{Partition: 3, Epoch: 7, Residue: []records.Residue{{Key: "k", Holder: "a", Token: 1}}}
		first := r.begin().register("a", hold)[0]
		was := r.stamp("a")
		second := r.register("a", hold)[0]
		if second.Record.Owner != "a" || second.Record.Epoch < first.Record.Epoch || !sameResidue(first.Residue, second.Residue) {
			r.Errorf("the second Register gave %v after %v", second, first)
		}
		if now := r.stamp("a"); now <= was {
			r.Errorf("the stamp went from %d to %d", was, now)
		}
	}},
	{"HoldingsAccepted", func(r *run) {
		r.begin()
		unix := r.h.Now().Unix()
		absent := r.register("a", records.Holding{Partition: 1, Epoch: 5})[0].Record
		if absent.Owner != "a" || absent.Epoch < unix {
			r.Errorf("an absent record became %v, want owner a and an epoch of at least %d", absent, unix)
		}
		far := r.register("a", records.Holding{Partition: 2, Epoch: unix * 2})[0].Record
		if want := (records.Record{Epoch: unix*2 + 1, Owner: "a"}); far != want {
			r.Errorf("an absent record became %v, want %v", far, want)
		}
		same := r.register("b", records.Holding{Partition: 2, Epoch: far.Epoch})[0].Record
		if want := (records.Record{Epoch: far.Epoch + 1, Owner: "b"}); same != want {
			r.Errorf("the record %v became %v, want %v", far, same, want)
		}
		own := r.register("b", records.Holding{Partition: 2, Epoch: 5})[0].Record
		if want := (records.Record{Epoch: same.Epoch + 1, Owner: "b"}); own != want {
			r.Errorf("the own record %v became %v, want %v", same, own, want)
		}
		r.wantRecord(2, own)
	}},
	{"HoldingsRefused", func(r *run) {
		r.begin()
		far := r.h.Now().Unix() * 2
		owned := r.register("a", records.Holding{Partition: 1, Epoch: far})[0].Record
		ghost := records.Residue{Key: "k", Holder: "b", Token: 9}
		got := r.register("b",
			records.Holding{Partition: 1, Epoch: owned.Epoch - 1, Residue: []records.Residue{ghost}},
			records.Holding{Partition: 2, Epoch: 1})
		if got[0].Record != owned {
			r.Errorf("a holding below the record gave %v, want %v", got[0].Record, owned)
		}
		if got[1].Record.Owner != "b" {
			r.Errorf("the other holding gave %v, want owner b", got[1].Record)
		}
		r.wantRecord(1, owned)
		r.wantResidue(1, ghost)
	}},
	{"HoldingsOfResidueAlone", func(r *run) {
		entry := records.Residue{Key: "k", Holder: "a", Token: 9}
		got := r.begin().register("a", records.Holding{Partition: 1, Residue: []records.Residue{entry}})[0]
		if got.Record != (records.Record{}) {
			r.Errorf("residue alone made the record %v", got.Record)
		}
		r.wantResidue(1, entry)
		if seen := r.partition(1); !same(seen, got) {
			r.Errorf("Observe shows %v, want %v", seen, got)
		}
	}},
	{"HoldingsKeepLaterResidue", func(r *run) {
		entry := func(token int64) records.Residue { return records.Residue{Key: "k", Holder: "a", Token: token} }
		r.begin()
		for _, c := range []struct{ stored, asserted, want int64 }{
			{9, 10, 10}, {10, 9, 10}, {99, 100, 100}, {math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64}, {math.MaxInt64 - 1, math.MaxInt64, math.MaxInt64},
		} {
			r.must(r.store.Clear(r.Context(), r.gen, 1, r.partition(1).Residue))
			r.register("a", records.Holding{Partition: 1, Residue: []records.Residue{entry(c.stored)}})
			r.register("a", records.Holding{Partition: 1, Residue: []records.Residue{entry(c.asserted)}})
			r.wantResidue(1, entry(c.want))
		}
	}},
	{"RegisterManyHoldings", func(r *run) {
		const many = 4096
		for p, s := range r.begin().registerMany("a", many) {
			if s.Partition != p || s.Record.Owner != "a" {
				r.Fatalf("holding %d gave %v", p, s)
			}
		}
		if seen := r.observe(0).Partitions; len(seen) != many {
			r.Errorf("Observe shows %d partitions, want %d", len(seen), many)
		}
	}},
	{"RenewExtends", func(r *run) {
		ttl := 2 * r.h.TTL
		r.begin().registerFor("a", ttl)
		r.registerFor("b", ttl)
		was := r.stamp("a")
		begin := r.h.Now()
		for r.h.Now().Sub(begin) < 2*ttl {
			r.h.Elapse(ttl / 10)
			r.must(r.renew("a", ttl))
		}
		if now := r.stamp("a"); now <= was {
			r.Errorf("the stamp went from %d to %d", was, now)
		}
		r.until("b runs out", func() bool { return !r.hasSession("b") })
		r.wantErr("Renew of an unknown session", r.renew("nobody", ttl), records.ErrSessionGone)
	}},
	// A snapshot has reached the stamps of the renewals that were made before it, and of no other.
	{"BeatsTellRenewalsApart", func(r *run) {
		r.begin().register("a")
		r.register("b")
		b := r.stamp("b")
		before := r.observe(0)
		shown, err := r.store.Renew(r.Context(), r.gen, "a", long)
		r.must(err)
		if a := r.stamp("a"); a <= before.Beat || r.stamp("b") != b {
			r.Errorf("the renewal has stamp %d, after a snapshot at beat %d; the other session has %d, before %d", a, before.Beat, r.stamp("b"), b)
		}
		after := r.observe(before.Version)
		if after.Version != before.Version || after.Beat <= before.Beat {
			r.Errorf("a renewal went from version %d, beat %d to version %d, beat %d", before.Version, before.Beat, after.Version, after.Beat)
		}
		if !r.h.Mute && (shown.Generation != r.gen || shown.Version != after.Version || shown.Beat != after.Beat || shown.Quarantine != 0 || shown.Now < before.Now || shown.Now > after.Now) {
			r.Errorf("between %+v and %+v a renewal showed %+v", before, after, shown)
		}
	}},
	// Who has not seen the latest renewal of a session learns of it when the session has ended.
	{"TrapTheLatestRenewalIsTold", func(r *run) {
		r.begin().registerFor("a", r.h.TTL)
		r.register("b")
		before := r.observe(0)
		version := before.Version
		r.must(r.renew("a", r.h.TTL))
		want := []records.Stamp{{Incarnation: "a", Beat: r.stamp("a")}}
		if want[0].Beat <= before.Beat {
			r.Errorf("the renewal has stamp %d, after a snapshot at beat %d", want[0].Beat, before.Beat)
		}
		r.must(r.renew("b", long))
		r.until("a is gone", func() bool { return !r.hasSession("a") })
		if s := r.observe(version); !slices.Equal(s.Gone, want) || s.Version <= version {
			r.Errorf("got %v at version %d, want %v after version %d", s.Gone, s.Version, want, version)
		}
		other := r.h.Open(r.T, false)
		s, err := other.Observe(r.Context(), r.gen, "", 0, []string{"a"})
		r.must(err)
		if !slices.Equal(s.Gone, want) || len(s.Stamps) > 0 {
			r.Errorf("another handle got %v and stamps %v, want %v and none", s.Gone, s.Stamps, want)
		}
		r.must(r.store.Release(r.Context(), "a"))
		if s := r.observe(0); len(s.Gone) > 0 || !slices.Equal(s.Released, []string{"a"}) {
			r.Errorf("after its release got %v and %q", s.Gone, s.Released)
		}
	}},
	{"TrapRenewNeverResurrects", func(r *run) {
		r.begin().dead("a", 1)
		r.wantGone("a")
		if r.hasSession("a") {
			r.Error("the session is back")
		}
		r.wantRecord(8, records.Record{})
	}},
	{"ReleaseLeavesATombstone", func(r *run) {
		r.begin().register("a", records.Holding{Partition: 1, Epoch: 1})
		r.register("b")
		for range 2 {
			r.must(r.store.Release(r.Context(), "a"))
			s := r.observe(0)
			if !slices.Equal(s.Released, []string{"a"}) || len(s.Sessions) != 1 || s.Sessions[0].Incarnation != "b" {
				r.Errorf("got sessions %v and tombstones %q, want b and a", s.Sessions, s.Released)
			}
		}
		r.wantGone("a")
	}},
	{"ReleaseOfTheUnknown", func(r *run) {
		r.begin()
		r.must(r.store.Release(r.Context(), "ghost"))
		if got := r.observe(0).Released; !slices.Equal(got, []string{"ghost"}) {
			r.Errorf("got tombstones %q, want ghost", got)
		}
	}},
	{"NamesThatKeepDyingWait", func(r *run) {
		r.begin()
		start := func(inc string, ttls int) {
			r.Helper()
			for again := range 2 { // a registration that is repeated is no start
				_, err := r.store.Register(r.Context(), r.gen, records.Session{Incarnation: inc, Name: "n"}, long, nil)
				r.must(err)
				limit := time.Duration(ttls) * r.h.TTL
				if wait := r.wait(inc); wait > limit || again == 0 && ttls > 2 && wait <= limit/2 {
					r.Errorf("%s is to wait for %v, want up to %d TTLs", inc, wait, ttls)
				}
			}
		}
		for i, ttls := range []int{0, 0, 1, 2, 4, 8, 10, 10} {
			start(fmt.Sprint("a", i), ttls)
		}
		r.register("other")
		if wait := r.wait("other"); wait > 0 {
			r.Errorf("another name is to wait for %v", wait)
		}
		r.must(r.store.Release(r.Context(), "a6")) // on behalf of a dead one
		start("b", 10)
		r.must(r.store.Release(r.Context(), "b")) // it left in order
		for i, ttls := range []int{0, 0, 1} {
			start(fmt.Sprint("c", i), ttls)
		}
		r.until("c2 has waited", func() bool { return r.wait("c2") == 0 })
	}},
	{"NoIncarnation", func(r *run) {
		record := r.begin().register("a", records.Holding{Partition: 1, Epoch: 1})[0].Record
		r.wantGone("")
		r.must(r.store.Release(r.Context(), ""))
		r.refused("a", move(1, record, ""))
		if s := r.observe(0); len(s.Sessions) != 1 || len(s.Released) > 0 {
			r.Errorf("got sessions %v and tombstones %q, want a and none", s.Sessions, s.Released)
		}
	}},
	{"OddBytes", func(r *run) {
		r.begin()
		for i, odd := range []string{"", ":", ",", "3:abc,", "\x00", "\r\n", "é", "\xff\xfe", "{}", "%s"} {
			inc := odd + "inc"
			s := records.Session{Incarnation: inc, Name: odd, Addr: odd, Gossip: odd}
			residue := records.Residue{Key: odd, Holder: odd, Token: math.MaxInt64}
			_, err := r.store.Register(r.Context(), r.gen, s, long, []records.Holding{{Partition: i, Epoch: 1, Residue: []records.Residue{residue}}})
			r.must(err)
			r.wantResidue(i, residue)
			if got := r.partition(i).Record.Owner; got != inc {
				r.Errorf("got owner %q, want %q", got, inc)
			}
			if !slices.ContainsFunc(r.observe(0).Sessions, func(got records.SessionState) bool { return got.Session == s }) {
				r.Errorf("no session %q", s)
			}
			r.must(r.store.Clear(r.Context(), r.gen, i, []records.Residue{residue}))
			r.wantResidue(i)
		}
	}},
	{"ContextEnds", func(r *run) {
		r.begin().register("a")
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		for name, call := range r.calls(ctx, r.gen, "a") {
			r.wantErr(name, call(), context.Canceled)
		}
		r.wantRecord(8, records.Record{})
	}},
}

// stamp is the beat of a session's latest renewal, which a snapshot has reached.
func (r *run) stamp(inc string) int64 {
	r.Helper()
	s, err := r.store.Observe(r.Context(), r.gen, "", 0, []string{inc, "nobody"})
	r.must(err)
	if len(s.Stamps) != 1 || s.Stamps[0].Incarnation != inc || s.Stamps[0].Beat <= 0 || s.Stamps[0].Beat > s.Beat {
		r.Fatalf("got stamps %v at beat %d, want one of %s alone", s.Stamps, s.Beat, inc)
	}
	return s.Stamps[0].Beat
}

func (r *run) wait(inc string) time.Duration {
	r.Helper()
	snapshot := r.observe(0)
	for _, s := range snapshot.Sessions {
		if s.Incarnation == inc {
			return max(0, s.Joins-snapshot.Now)
		}
	}
	r.Fatalf("%s has no session", inc)
	return 0
}

// several opens handles for the workers w0, w1 and so on, and registers these.
func (r *run) several(n int) (stores []Store) {
	r.Helper()
	for i := range n {
		stores = append(stores, r.h.Open(r.T, false))
		r.register(fmt.Sprint("w", i))
	}
	return stores
}

// each runs f for n workers at once.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
