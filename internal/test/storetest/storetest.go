// Package storetest holds every ownership store to the same meaning: that
// which package handoff's types describe and the ownership machine relies on.
package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

// Store is what is tested.
type Store interface {
	worker.Store
	Close() error
}

// Harness is an empty store that nobody else uses, and the means to make it
// live through something.
type Harness struct {
	// TTL is the length of a quarantine.
	TTL time.Duration

	// Open returns another handle on the store, as another process has it.
	// Only a handle opened with newCluster may skip the first quarantine.
	Open func(t *testing.T, newCluster bool) Store

	// OpenWith returns a handle with other settings than Open's, which are
	// those that it is given. nil where all share one handle.
	OpenWith func(t *testing.T, change func(*ring.Settings)) Store

	// Elapse lets time pass on the store's clock.
	Elapse func(d time.Duration)

	// Now is a time that the store's clock has passed.
	Now func() time.Time

	// Terse says that hints do not tell what has changed.
	Terse bool

	// Mute says that renewals return the zero Snapshot.
	Mute bool

	// Restart makes the store another server process with all of its data,
	// Lose one with none. Conformance does without.
	Restart, Lose func()

	// LoseKey deletes one of Keys, the parts of which the store's data
	// consists and which a server may lose by themselves.
	LoseKey func(key string)
	Keys    []string
}

// Conformance runs every test that any store can, each with a harness of its
// own.
func Conformance(t *testing.T, open func(t *testing.T) Harness) {
	runAll(t, open, sessionTests, changeTests, lockTests, writeTests, observeTests, placeTests, generationTests, settingsTests)
}

// Restarts runs those that need Harness.Restart, Lose and LoseKey.
func Restarts(t *testing.T, open func(t *testing.T) Harness) {
	runAll(t, open, restartTests, lockRestartTests, writeRestartTests, identityTests)
}

// Handles runs those that need Harness.OpenWith.
func Handles(t *testing.T, open func(t *testing.T) Harness) { runAll(t, open, handleTests) }

func runAll(t *testing.T, open func(t *testing.T) Harness, groups ...[]test) {
	for _, group := range groups {
		for _, test := range group {
			t.Run(test.name, func(t *testing.T) { test.run(&run{T: t, h: open(t)}) })
		}
	}
}

type test struct {
	name string
	run  func(*run)
}

// run is one test's store as one process sees it.
type run struct {
	*testing.T
	h     Harness
	store Store
	gen   string
}

const long = time.Minute // a session that outlives its test

// begin opens a store without quarantine.
func (r *run) begin() *run {
	r.Helper()
	r.store = r.h.Open(r.T, true)
	r.refresh()
	return r
}

// beginQuarantined opens one whose quarantine has just begun.
func (r *run) beginQuarantined() *run {
	r.Helper()
	r.store = r.h.Open(r.T, false)
	r.refresh()
	return r
}

func (r *run) refresh() {
	r.Helper()
	gen, err := r.store.Generation(r.Context(), true)
	if err != nil {
		r.Fatal(err)
	}
	if gen == "" {
		r.Fatal("the generation is empty")
	}
	r.gen = gen
}

func (r *run) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *run) wantErr(what string, err, want error) {
	r.Helper()
	if !errors.Is(err, want) {
		r.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// until lets time pass until a condition holds.
func (r *run) until(what string, holds func() bool) {
	r.Helper()
	const step = 5 * time.Millisecond
	for passed := time.Duration(0); passed < time.Minute; passed += step {
		if holds() {
			return
		}
		r.h.Elapse(step)
	}
	r.Fatalf("waited a minute in vain until %s", what)
}

func session(inc string) records.Session {
	return records.Session{Incarnation: inc, Name: "name-" + inc, Addr: inc + ":80", Gossip: inc + ":7946"}
}

func (r *run) register(inc string, holdings ...records.Holding) []records.PartitionState {
	r.Helper()
	return r.registerFor(inc, long, holdings...)
}

func (r *run) registerFor(inc string, ttl time.Duration, holdings ...records.Holding) []records.PartitionState {
	r.Helper()
	states, err := r.store.Register(r.Context(), r.gen, session(inc), ttl, holdings)
	r.must(err)
	if len(states) != len(holdings) {
		r.Fatalf("%d states for %d holdings", len(states), len(holdings))
	}
	return states
}

// registerMany registers an incarnation that holds n partitions, from 0 on.
func (r *run) registerMany(inc string, n int) []records.PartitionState {
	r.Helper()
	holdings := make([]records.Holding, n)
	for p := range holdings {
		holdings[p] = records.Holding{Partition: p, Epoch: 1}
	}
	return r.register(inc, holdings...)
}

func (r *run) renew(inc string, ttl time.Duration) error {
	return only(r.store.Renew(r.Context(), r.gen, inc, ttl))
}

// dead registers a session that holds a partition and waits until it is over.
func (r *run) dead(inc string, partition int) records.Record {
	r.Helper()
	record := r.registerFor(inc, r.h.TTL, records.Holding{Partition: partition, Epoch: 1})[0].Record
	r.until(inc+" is dead", func() bool { return !r.hasSession(inc) })
	return record
}

func (r *run) hasSession(inc string) bool {
	r.Helper()
	return slices.ContainsFunc(r.observe(0).Sessions, func(s records.SessionState) bool { return s.Incarnation == inc })
}

func (r *run) observe(since int64) records.Snapshot {
	r.Helper()
	s, err := r.store.Observe(r.Context(), r.gen, "", since, nil)
	r.must(err)
	if s.Generation != r.gen {
		r.Fatalf("the snapshot is of generation %q, want %q", s.Generation, r.gen)
	}
	return s
}

func (r *run) partition(p int) records.PartitionState {
	r.Helper()
	for _, s := range r.observe(0).Partitions {
		if s.Partition == p {
			return s
		}
	}
	return records.PartitionState{Partition: p}
}

func (r *run) apply(inc string, changes ...records.Change) []records.PartitionState {
	r.Helper()
	states, err := r.store.Apply(r.Context(), r.gen, inc, changes)
	r.must(err)
	if len(states) != len(changes) {
		r.Fatalf("%d states for %d changes", len(states), len(changes))
	}
	return states
}

// applied carries out one change and wants it done: the new owner, and an
// epoch of at least everything that it must reach.
func (r *run) applied(inc string, c records.Change, owner string) records.Record {
	r.Helper()
	least := max(c.From.Epoch+1, c.Floor, r.h.Now().Unix())
	got := r.apply(inc, c)[0]
	if got.Partition != c.Partition || got.Record.Owner != owner || got.Record.Epoch < least {
		r.Fatalf("%v gave %v, want owner %q and an epoch of at least %d", c, got, owner, least)
	}
	if now := r.partition(c.Partition); !same(now, got) {
		r.Fatalf("%v answered %v but left %v", c, got, now)
	}
	return got.Record
}

// refused carries out one change and wants the partition as it was.
func (r *run) refused(inc string, c records.Change) {
	r.Helper()
	before := r.partition(c.Partition)
	version := r.observe(0).Version
	if got := r.apply(inc, c)[0]; !same(got, before) {
		r.Errorf("%v gave %v, want it refused and %v", c, got, before)
	}
	if changed := r.observe(version).Partitions; len(changed) > 0 {
		r.Errorf("refused %v changed %v", c, changed)
	}
}

func same(a, b records.PartitionState) bool {
	return a.Partition == b.Partition && a.Record == b.Record && a.Moved == b.Moved && sameResidue(a.Residue, b.Residue)
}

// sameResidue ignores the order, which has no meaning.
func sameResidue(a, b []records.Residue) bool {
	sorted := func(r []records.Residue) []string {
		var out []string
		for _, e := range r {
			out = append(out, fmt.Sprintf("%q %q %d", e.Key, e.Holder, e.Token))
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(sorted(a), sorted(b))
}

func (r *run) wantResidue(p int, want ...records.Residue) {
	r.Helper()
	if got := r.partition(p).Residue; !sameResidue(got, want) {
		r.Errorf("partition %d has residue %v, want %v", p, got, want)
	}
}

func (r *run) wantRecord(p int, want records.Record) {
	r.Helper()
	if got := r.partition(p).Record; got != want {
		r.Errorf("partition %d has record %v, want %v", p, got, want)
	}
}

// isDefinite says whether a call's outcome is known.
func isDefinite(err error) bool {
	return err == nil || errors.Is(err, records.ErrGeneration) || errors.Is(err, records.ErrSessionGone)
}
