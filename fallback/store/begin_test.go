package store

import (
	"errors"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

// begun starts an embedded store, begins it, and lets some time pass.
func begun(t *testing.T, settings ring.Settings, passed time.Duration) (e *Embedded, at func() time.Time) {
	t.Helper()
	e, clock := startEmbedded(t), newFakeClock()
	e.server.Server().SetPreHook(answer(newRunID(), clock.now))
	for range 2 { // the second call changes nothing
		if err := openStore(t, e.URL(), Config{Settings: settings}).Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		clock.advance(passed / 2)
	}
	return e, clock.now
}

// The quarantine of a store counts from its beginning, not from its first use.
func TestTrapQuarantineCountsFromTheBeginning(t *testing.T) {
	e, _ := begun(t, ring.Settings{}, 4*time.Second)
	s := openStore(t, e.URL(), Config{})
	snapshot, err := s.Observe(t.Context(), firstGeneration(t, s), "", 0, nil)
	if want := sessionTTL - 4*time.Second; err != nil || snapshot.Quarantine != want {
		t.Errorf("a quarantine of %v is left, %v; want %v", snapshot.Quarantine, err, want)
	}
}

// A store that was only begun is empty, and is named by who knows its name.
func TestTrapBegunStoreHasNoIdentity(t *testing.T) {
	e, _ := begun(t, ring.Settings{}, 0)
	if _, err := openStore(t, e.URL(), Config{}).Generation(t.Context(), false); !errors.Is(err, ring.ErrSettings) {
		t.Errorf("a store that was only begun exists: %v, want ErrSettings", err)
	}
	known := ring.NewStoreID(time.Now(), 7)
	for _, settings := range []ring.Settings{{Store: known}, {}} {
		s := openStore(t, e.URL(), Config{Settings: settings})
		gen := firstGeneration(t, s)
		if id := s.Settings().Store; gen == "" || id != known {
			t.Errorf("the store is %v, want %v", id, known)
		}
	}
}

// NewCluster skips the quarantine of a store that was only begun, and of no
// other.
func TestNewClusterOnABegunStore(t *testing.T) {
	e, _ := begun(t, ring.Settings{}, 0)
	left := func(o Config) time.Duration {
		t.Helper()
		s := openStore(t, e.URL(), o)
		snapshot, err := s.Observe(t.Context(), firstGeneration(t, s), "", 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		return snapshot.Quarantine
	}
	if q := left(Config{NewCluster: true}); q != 0 {
		t.Errorf("a quarantine of %v", q)
	}
	e.server.Server().SetPreHook(answer(newRunID(), time.Now)) // its data are another life's now
	if q := left(Config{}); q == 0 {
		t.Error("no quarantine after a restart")
	}
	if q := left(Config{NewCluster: true}); q == 0 {
		t.Error("NewCluster skips the quarantine of a store that was in use")
	}

	e, _ = begun(t, ring.Settings{}, 0)
	s := openStore(t, e.URL(), Config{NewCluster: true})
	gen := firstGeneration(t, s)
	if _, err := s.Register(t.Context(), gen, records.Session{Incarnation: "a"}, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), gen, "a", []records.Change{{Op: records.OpClaim, Partition: 1}}); err != nil {
		t.Fatal(err)
	}
	e.server.Del("{keyway:keyway}:meta") // and with it the identity
	if err := openStore(t, e.URL(), Config{}).Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if q := left(Config{NewCluster: true}); q == 0 {
		t.Error("NewCluster skips the quarantine of a store with records")
	}
}

// The clock of an embedded store goes on from its start, whatever the machine's
// shows.
func TestEmbeddedClockIsSteady(t *testing.T) {
	e := startEmbedded(t)
	e.server.SetTime(time.Now().Add(24 * time.Hour))
	s := openStore(t, e.URL(), Config{})
	snapshot, err := s.Observe(t.Context(), firstGeneration(t, s), "", 0, nil)
	if now := time.Since(time.Unix(0, int64(snapshot.Now))); err != nil || now.Abs() > time.Hour {
		t.Errorf("the store's clock is %v from the machine's, %v", now, err)
	}
}
