package ring_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/ring"
)

func TestSettingsCompare(t *testing.T) {
	base := ring.Settings{Cluster: "shop", Ring: ring.Config{Partitions: 64}, TTL: 5 * time.Second, KeySource: "host", Store: 7}
	for setting, change := range map[string]func(*ring.Settings){
		"":                     func(*ring.Settings) {},
		"cluster name":         func(s *ring.Settings) { s.Cluster = "" },
		"number of partitions": func(s *ring.Settings) { s.Ring.Partitions = 0 },
		"replication factor":   func(s *ring.Settings) { s.Ring.ReplicationFactor = 2 },
		"load":                 func(s *ring.Settings) { s.Ring.Load = 2 },
		"session TTL":          func(s *ring.Settings) { s.TTL = 0 },
		"key source":           func(s *ring.Settings) { s.KeySource = "query:id" },
		"TLS between members":  func(s *ring.Settings) { s.PeerTLS = true },
		"store":                func(s *ring.Settings) { s.Store = 8 },
	} {
		other := base
		change(&other)
		d, differ := base.Compare(other)
		if differ != (setting != "") || d.Setting != setting || differ && (d.Ours == d.Theirs || d.Remedy == "") {
			t.Errorf("%q: %v, %v", setting, d, differ)
		}
		back, _ := other.Compare(base)
		if back.Setting != d.Setting || back.Ours != d.Theirs || back.Theirs != d.Ours {
			t.Errorf("%q: the other way it is %v", setting, back)
		}
		shared := setting != "" && setting != "key source" && setting != "TLS between members" && setting != "store"
		if same := base.Digest() == other.Digest(); same == shared {
			t.Errorf("%q: equal digests: %v", setting, same)
		}
	}
	unknown := base
	unknown.KeySource, unknown.Store = "", 0
	if d, differ := base.Compare(unknown); differ {
		t.Errorf("what is not known was compared: %v", d)
	}
}

func TestSettingsDefaults(t *testing.T) {
	var zero ring.Settings
	full := zero.WithDefaults()
	want := ring.Settings{
		Cluster: "keyway",
		Ring:    ring.Config{Partitions: 4096, ReplicationFactor: 128, Load: 1.225},
		TTL:     10 * time.Second,
	}
	if full != want {
		t.Errorf("got %+v, want %+v", full, want)
	}
	if d, differ := zero.Compare(full); differ || zero.Digest() != full.Digest() || zero.Validate() != nil {
		t.Errorf("the defaults differ from the zero value: %v", d)
	}
}

func TestSettingsValidate(t *testing.T) {
	for want, s := range map[string]ring.Settings{
		"--cluster":     {Cluster: strings.Repeat("x", 64+1)},
		"brace":         {Cluster: "a}b"},
		"--session-ttl": {TTL: time.Second - 1},
		"partitions":    {Ring: ring.Config{Partitions: -1}},
	} {
		if err := s.Validate(); !errors.Is(err, ring.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want ErrConfig with %q", s, err, want)
		}
	}
}

func TestStoreID(t *testing.T) {
	older := ring.NewStoreID(time.Unix(1_800_000_000, 0), 1<<32-1)
	if younger := ring.NewStoreID(time.Unix(1_800_000_001, 0), 0); younger <= older {
		t.Errorf("%v is not above %v", younger, older)
	}
	if id, err := ring.ParseStoreID(older.String()); id != older || err != nil {
		t.Errorf("%v became %v, %v", older, id, err)
	}
	for _, s := range []string{"", "12", "x123456789abcdef", "+123456789abcdef", "0123456789abcdef0"} {
		if id, err := ring.ParseStoreID(s); err == nil {
			t.Errorf("%q is %v", s, id)
		}
	}
}

// Routers with lists of routes agree if one list is the beginning of the other.
func TestRoutesAgree(t *testing.T) {
	var digests []string
	for i := range 12 {
		digests = append(digests, fmt.Sprintf("%012x", i))
	}
	other := append(slices.Clone(digests[:3]), "x")
	for _, tt := range []struct {
		name string
		a, b string
		ok   bool
	}{
		{"equal", ring.RoutesKeySource(digests), ring.RoutesKeySource(digests), true},
		{"one more", ring.RoutesKeySource(digests[:1]), ring.RoutesKeySource(digests[:2]), true},
		{"five more", ring.RoutesKeySource(digests[:7]), ring.RoutesKeySource(digests), true},
		{"six more", ring.RoutesKeySource(digests[:6]), ring.RoutesKeySource(digests), false},
		{"both have more", ring.RoutesKeySource(digests[:4]), ring.RoutesKeySource(other), false},
		{"flags and routes", "header:X-Key", ring.RoutesKeySource(digests), false},
		{"flags", "header:X-Key", "header:X-Key host", false},
	} {
		for _, pair := range [][2]string{{tt.a, tt.b}, {tt.b, tt.a}} {
			_, differ := ring.Settings{KeySource: pair[0]}.Compare(ring.Settings{KeySource: pair[1]})
			if differ == tt.ok || len(pair[0]) > 96 {
				t.Errorf("%s: differ %v: %s and %s", tt.name, differ, pair[0], pair[1])
			}
		}
	}
}

// Members with TLS and without are of one cluster while it is optional at one of them.
func TestOptionalPeerTLS(t *testing.T) {
	off, on := ring.Settings{}, ring.Settings{PeerTLS: true}
	optional := ring.Settings{PeerTLS: true, PeerTLSOptional: true}
	for _, tt := range []struct {
		s, t   ring.Settings
		differ bool
	}{{off, on, true}, {off, optional, false}, {optional, on, false}, {optional, optional, false}} {
		for _, pair := range [][2]ring.Settings{{tt.s, tt.t}, {tt.t, tt.s}} {
			if d, differ := pair[0].Compare(pair[1]); differ != tt.differ {
				t.Errorf("%+v and %+v: %v", pair[0], pair[1], d)
			}
		}
	}
}
