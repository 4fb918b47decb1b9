package gossip

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/ring"
)

func fullMetadata() metadata {
	settings := ring.Settings{Cluster: "shop", Ring: ring.Config{Partitions: 64, ReplicationFactor: 8, Load: 1.5}, TTL: 7 * time.Second}
	return newMetadata(ring.Member{
		Incarnation: "LJ2VRCUYLZPWUYH5ZLXTLBHTNG",
		Role:        ring.RoleWorker,
		State:       ring.StateActive,
		Addr:        "10.0.0.1:8080",
		GRPC:        true,
		Store:       "redis://10.0.0.9:6379/0",
		View:        1<<63 + 7,
		Epoch:       1780000000,
	}, keys{"header:X-Key", 1780000000000}, settings, 7)
}

func TestMetadataTravels(t *testing.T) {
	want := fullMetadata()
	b, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", len(b))
	for _, tail := range []string{"", "a field that a later version adds"} {
		got, err := decodeMetadata(append(bytes.Clone(b), tail...))
		if err != nil || got != want {
			t.Errorf("with tail %q: %+v, %v, want %+v", tail, got, err, want)
		}
	}
	for n := range b {
		if _, err := decodeMetadata(b[:n]); err == nil {
			t.Errorf("the first %d of %d bytes decode", n, len(b))
		}
	}
}

func TestMetadataIsBounded(t *testing.T) {
	md := fullMetadata()
	b, err := md.encode()
	if err != nil {
		t.Fatal(err)
	}
	md.self.Store += strings.Repeat("x", metaLimit-len(b)-1) // its length takes one byte more
	if b, err = md.encode(); err != nil || len(b) != metaLimit {
		t.Errorf("%d bytes, %v; want %d", len(b), err, metaLimit)
	}
	md.self.Store += "x"
	if _, err = md.encode(); !errors.Is(err, ErrConfig) {
		t.Errorf("%d bytes: %v, want ErrConfig", metaLimit+1, err)
	}
}

func TestStrangersMetadata(t *testing.T) {
	future, err := fullMetadata().encode()
	if err != nil {
		t.Fatal(err)
	}
	future[1]++
	role, state := bytes.Clone(future), bytes.Clone(future)
	epoch := bytes.Clone(future)
	epoch[1], epoch[13] = metaVersion, 0x80
	role[1], role[2] = metaVersion, 9
	state[1], state[3] = metaVersion, 9
	self := ring.Member{Name: "w", Gossip: "10.0.0.1:7946"}
	for want, b := range map[string][]byte{
		"not a member of a Keyway cluster": []byte("consul"),
		"in format 4":                      future,
		"unknown role (9)":                 role,
		"unknown state (9)":                state,
		"an impossible epoch":              epoch,
		"truncated":                        {metaMark, metaVersion, 1},
	} {
		err := admit(self, ring.Settings{}, "w@BOOT", "10.0.0.2:7946", b)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), self.Gossip) || !strings.Contains(err.Error(), "10.0.0.2:7946") {
			t.Errorf("%q: %v, want ErrRefused with %q and both addresses", b, err, want)
		}
	}
}

func TestNamelessMember(t *testing.T) {
	b, err := fullMetadata().encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", strings.Repeat("x", nameLimit+1), "w\xff"} { // the last one is no label of a metric
		if err := admit(ring.Member{}, fullMetadata().settings, nodeName(name, "BOOT"), "10.0.0.2:7946", b); !errors.Is(err, ErrRefused) {
			t.Errorf("a name of %d bytes: %v, want ErrRefused", len(name), err)
		}
		if _, err := Start(t.Context(), Config{Self: ring.Member{Name: name, Role: ring.RoleWorker}}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "--name") {
			t.Errorf("a name of %d bytes: %v, want ErrConfig", len(name), err)
		}
	}
}

func TestLongKeySourcesDiffer(t *testing.T) {
	long := strings.Repeat("header:X-Key,", 20)
	a, b := shortKeySource(long), shortKeySource(long+"query:id")
	if a == b || len(a) > keySourceLimit || len(b) > keySourceLimit {
		t.Errorf("%q and %q stand for two key sources", a, b)
	}
	if s := "host"; shortKeySource(s) != s {
		t.Errorf("%q became %q", s, shortKeySource(s))
	}
}

func FuzzDecodeMetadata(f *testing.F) {
	b, err := fullMetadata().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:20])
	f.Add([]byte{})
	f.Add([]byte{metaMark, metaVersion + 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		md, err := decodeMetadata(b)
		if err != nil {
			return
		}
		again, err := md.encode()
		if err != nil {
			if len(b) <= metaLimit { // numbers may come in longer forms than they need
				t.Fatalf("decoded from %d bytes, encodes to more than %d", len(b), metaLimit)
			}
			return
		}
		got, err := decodeMetadata(again)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := got.encode(); err != nil || !bytes.Equal(twice, again) {
			t.Fatalf("%x becomes %x", again, twice)
		}
	})
}
