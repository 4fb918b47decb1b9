package hop

import (
	"net/http"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/wire/link"
)

func TestReadRefusal(t *testing.T) {
	unknown := &link.RefusedError{Reason: link.NotOwner}
	for _, tt := range []struct {
		refused, owner, epoch string
		want                  *link.RefusedError
	}{
		{"not-owner", "b1", "7", &link.RefusedError{Reason: link.NotOwner, Owner: "b1", Epoch: 7}},
		{"not-owner", "", "", unknown},
		{"not-owner", "b1", "", unknown},
		{"not-owner", "b1", "7x", unknown},
		{"not-owner", "b1", "9223372036854775808", unknown},
		{"unavailable", "b1", "7", &link.RefusedError{Reason: link.Unavailable}},
		{"busy", "b1", "7", nil}, // the client reads it
		{"", "b1", "7", nil},     // the app's own 421
	} {
		h := http.Header{}
		h.Set(headerRefused, tt.refused)
		h.Set(headerOwner, tt.owner)
		h.Set(gateway.HeaderEpoch, tt.epoch)
		got := ReadRefusal(h.Get)
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%v: %v, want %v", h, got, tt.want)
		}
	}
}

// An address has one id however it is written, and so has each /64 of IPv6.
func TestClientID(t *testing.T) {
	seen := map[uint64]string{}
	for _, same := range [][]string{
		{"192.0.2.9", "::ffff:192.0.2.9", "::FFFF:c000:209"},
		{"192.0.2.8"},
		{"2001:db8:0:1::", "2001:DB8:0:1:0:0:0:7", "2001:db8:0:1:ffff:ffff:ffff:ffff"},
		{"2001:db8:0:2::"},
		{"fe80::1%eth0", "fe80::2%eth1"},
		{""},
		{"unknown"},
	} {
		id := ClientID(same[0])
		if other, taken := seen[id]; id == 0 || taken {
			t.Errorf("%q has the id %d, as %q", same[0], id, other)
		}
		seen[id] = same[0]
		for _, addr := range same[1:] {
			if ClientID(addr) != id {
				t.Errorf("%q has another id than %q", addr, same[0])
			}
		}
	}
	if n := testing.AllocsPerRun(100, func() { ClientID("2001:db8:0:1::7") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTiming(t *testing.T) {
	for _, d := range [][2]time.Duration{{0, 0}, {time.Microsecond, time.Hour}} {
		if wait, run, ok := ParseTiming(FormatTiming(d[0], d[1])); !ok || wait != d[0] || run != d[1] {
			t.Errorf("%v come back as %v and %v", d, wait, run)
		}
	}
	for _, bad := range []string{"", "1", "1 ", " 1", "-1 1", "1 1 1", "1 x", "1 99999999999999999999"} {
		if wait, run, ok := ParseTiming(bad); ok {
			t.Errorf("%q is %v and %v", bad, wait, run)
		}
	}
}
