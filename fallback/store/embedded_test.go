package store

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/records"
)

func TestEmbeddedWantsItsPassword(t *testing.T) {
	e := startEmbedded(t)
	u, err := url.Parse(e.URL())
	if err != nil || u.Host != e.Addr() {
		t.Fatalf("got URL %s, %v for %s", e.URL(), err, e.Addr())
	}
	for _, user := range []*url.Userinfo{nil, url.UserPassword("", "wrong")} {
		u.User = user
		_, err := openStore(t, u.String(), Config{}).Generation(t.Context(), true)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("with %v got %v, want a refusal", user, err)
		}
	}
	if gen, err := openStore(t, e.URL(), Config{}).Generation(t.Context(), true); err != nil || gen == "" {
		t.Errorf("with the password got %q, %v", gen, err)
	}
}

// An embedded server that starts again on its address is an empty store of
// another generation, to clients that stayed.
func TestTrapEmbeddedRestart(t *testing.T) {
	e, err := StartEmbedded("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	store := openStore(t, e.URL(), Config{NewCluster: true})
	gen := firstGeneration(t, store)
	if _, err := store.Register(t.Context(), gen, records.Session{Incarnation: "a"}, failoverTTL, nil); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := StartEmbedded(e.Addr(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	err = answered(t, func() error { return renew(t.Context(), store, gen, "a", failoverTTL) })
	if !errors.Is(err, records.ErrGeneration) {
		t.Errorf("the first call after the restart gave %v, want ErrGeneration", err)
	}
	s, err := store.Observe(t.Context(), firstGeneration(t, store), "", 0, nil)
	if err != nil || s.Quarantine == 0 || len(s.Sessions) > 0 {
		t.Errorf("got %+v, %v, want a quarantine and no session", s, err)
	}
}

// A server that is set back to an earlier state together with its memory, as a virtual machine is, keeps its run id. The
// first call of a handle that knows more shows what is lost: its own change would hide that.
func TestTrapServerSetBack(t *testing.T) {
	for name, first := range map[string]func(s *Store, gen string, since int64) error{
		"look": func(s *Store, gen string, since int64) error {
			_, err := s.Observe(t.Context(), gen, "a", since, nil)
			return err
		},
		"change": func(s *Store, gen string, _ int64) error {
			_, err := s.Apply(t.Context(), gen, "a", []records.Change{{Op: records.OpClaim, Partition: 2}})
			return err
		},
		"renewal": func(s *Store, gen string, _ int64) error {
			_, err := s.Renew(t.Context(), gen, "a", failoverTTL)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, gen, since := setBack(t)
			if err := first(s, gen, since); !errors.Is(err, records.ErrGeneration) {
				t.Errorf("got %v, want ErrGeneration", err)
			}
			again, err := s.Observe(t.Context(), firstGeneration(t, s), "a", 0, nil)
			if err != nil || again.Quarantine == 0 || len(again.Sessions) > 0 {
				t.Errorf("got %+v, %v, want a quarantine and no session", again, err)
			}
		})
	}
}

// setBack returns a store that has lost a claim by session a, which was seen at a version.
func setBack(t *testing.T) (s *Store, gen string, since int64) {
	e := startEmbedded(t)
	s = openStore(t, e.URL(), Config{NewCluster: true})
	gen = firstGeneration(t, s)
	if _, err := s.Register(t.Context(), gen, records.Session{Incarnation: "a"}, failoverTTL, nil); err != nil {
		t.Fatal(err)
	}
	before := e.server.Dump()
	hashes := map[string]map[string]string{}
	for _, key := range []string{s.keys[0], s.keys[1]} { // meta and partitions
		hashes[key] = map[string]string{}
		fields, err := e.server.HKeys(key)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range fields {
			hashes[key][field] = e.server.HGet(key, field)
		}
	}
	if _, err := s.Apply(t.Context(), gen, "a", []records.Change{{Op: records.OpClaim, Partition: 1}}); err != nil {
		t.Fatal(err)
	}
	seen, err := s.Observe(t.Context(), gen, "a", 0, nil)
	if err != nil || len(seen.Partitions) != 1 {
		t.Fatalf("%+v, %v", seen, err)
	}
	for key, fields := range hashes {
		e.server.Del(key)
		for field, value := range fields {
			e.server.HSet(key, field, value)
		}
	}
	if _, err := e.server.ZRem(s.keys[5], "1"); err != nil { // changes
		t.Fatal(err)
	}
	if e.server.Dump() != before {
		t.Fatal("it is not as before")
	}
	return s, gen, seen.Version
}

func TestEmbeddedAddressInUse(t *testing.T) {
	e := startEmbedded(t)
	if again, err := StartEmbedded(e.Addr(), ""); err == nil {
		again.Close()
		t.Error("two servers share an address")
	}
}
