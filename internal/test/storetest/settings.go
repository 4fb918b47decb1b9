package storetest

import (
	"errors"
	"strings"

	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

var settingsTests = []test{
	{"IdentityIsStable", func(r *run) {
		r.begin()
		id := r.store.Settings().Store
		if id == 0 {
			r.Fatal("the store has no identity")
		}
		other := r.h.Open(r.T, false)
		if _, err := other.Generation(r.Context(), true); err != nil || other.Settings().Store != id {
			r.Errorf("another handle sees %v, %v, want %v", other.Settings().Store, err, id)
		}
	}},
	{"EmptyStoreBeginsOnlyIfItMay", func(r *run) {
		r.store = r.h.Open(r.T, true)
		r.wantErr("an empty store that is not to begin", only(r.store.Generation(r.Context(), false)), ring.ErrSettings)
		r.refresh()
		if left := r.observe(0).Quarantine; left != 0 {
			r.Errorf("asking for what exists began a quarantine of %v", left)
		}
		for _, s := range []Store{r.store, r.h.Open(r.T, false)} {
			if gen, err := s.Generation(r.Context(), false); err != nil || gen != r.gen {
				r.Errorf("got the generation %q, %v; want %q", gen, err, r.gen)
			}
		}
	}},
}

var handleTests = []test{
	{"TrapOtherSettingsThanLiveSessions", func(r *run) {
		others := r.others()
		r.begin().register("a")
		for setting, other := range others {
			_, err := other.Generation(r.Context(), true)
			if !errors.Is(err, ring.ErrSettings) || !strings.Contains(err.Error(), setting) {
				r.Errorf("Generation with another %s: %v", setting, err)
			}
			_, err = other.Register(r.Context(), r.gen, session("b"), long, []records.Holding{{Partition: 1, Epoch: 1}})
			r.wantErr("Register with another "+setting, err, ring.ErrSettings)
		}
		r.wantRecord(1, records.Record{})
		if r.hasSession("b") {
			r.Error("a session of other settings lives")
		}
	}},
	{"OtherSettingsReplaceDeadOnes", func(r *run) {
		others := r.others()
		r.begin().register("a")
		r.must(r.store.Release(r.Context(), "a"))
		longer := others["session TTL"]
		gen, err := longer.Generation(r.Context(), true)
		r.must(err)
		_, err = longer.Register(r.Context(), gen, session("b"), long, nil)
		r.wantErr("the first Register of other settings", err, records.ErrGeneration)
		gen, err = longer.Generation(r.Context(), true)
		r.must(err)
		_, err = longer.Register(r.Context(), gen, session("b"), long, nil)
		r.must(err)
		snapshot, err := longer.Observe(r.Context(), gen, "", 0, nil)
		r.must(err)
		if q := snapshot.Quarantine; q <= r.h.TTL || q > 3*r.h.TTL {
			r.Errorf("a quarantine of %v, want one of the longer TTL, %v", q, 3*r.h.TTL)
		}
		_, err = r.store.Generation(r.Context(), true)
		r.wantErr("Generation with the former settings", err, ring.ErrSettings)
		_, err = others["number of partitions"].Generation(r.Context(), true)
		r.wantErr("Generation with another number of partitions", err, ring.ErrSettings)
	}},
}

var identityTests = []test{
	{"IdentityOutlivesRestartAndLoss", func(r *run) {
		r.begin()
		id := r.store.Settings().Store
		for name, event := range map[string]func(){"a restart": r.h.Restart, "a loss": r.h.Lose} {
			event()
			r.until("the store answers", func() bool { return isDefinite(r.renew("a", long)) })
			other := r.h.Open(r.T, false)
			if _, err := other.Generation(r.Context(), true); err != nil || other.Settings().Store != id {
				r.Errorf("after %s another handle sees %v, %v, want %v", name, other.Settings().Store, err, id)
			}
			r.refresh()
		}
	}},
	// A handle that did not begin the store, but has seen it, gives it back the identity that it had.
	{"TrapLostAfterItExisted", func(r *run) {
		r.begin()
		id := r.store.Settings().Store
		other := r.h.Open(r.T, false)
		r.must(only(other.Generation(r.Context(), false)))
		r.h.Lose()
		r.until("the store answers", func() bool {
			_, err := other.Generation(r.Context(), false)
			return err == nil
		})
		if now := other.Settings().Store; now != id {
			r.Errorf("the store is now %v, and was %v", now, id)
		}
	}},
}

// others are handles with settings that no live session has.
func (r *run) others() map[string]Store {
	return map[string]Store{
		"session TTL":          r.h.OpenWith(r.T, func(s *ring.Settings) { s.TTL *= 3 }),
		"number of partitions": r.h.OpenWith(r.T, func(s *ring.Settings) { s.Ring.Partitions = 64 }),
		"load":                 r.h.OpenWith(r.T, func(s *ring.Settings) { s.Ring.Load = 2 }),
	}
}
