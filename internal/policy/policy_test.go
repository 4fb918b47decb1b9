package policy_test

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/policy"
)

var full = policy.Policy{
	Route: "orders", Mode: policy.Affinity, Timeout: time.Minute, MaxWait: time.Hour, QueuePerKey: 1_000_000,
	Rate: policy.Rate{PerSecond: 0.5, Burst: 10},
}

func TestDecodeReturnsWhatWasAppended(t *testing.T) {
	for _, p := range []policy.Policy{
		{}, full,
		{Route: "x"}, {Timed: true}, {Route: "x", Timed: true},
		{Mode: policy.Serialize}, {Mode: policy.Batch}, {Mode: policy.Unkeyed},
		{Timeout: 1}, {MaxWait: 1}, {QueuePerKey: 1},
		{Rate: policy.Rate{PerSecond: policy.MinPerSecond, Burst: 1}},
		{Rate: policy.Rate{PerSecond: policy.MaxPerSecond, Burst: policy.MaxBurst}},
		{Route: strings.Repeat("r", policy.MaxRoute)},
	} {
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		b := p.Append(nil)
		if (len(b) == 0) != (p == policy.Policy{}) {
			t.Errorf("%+v takes %d bytes", p, len(b))
		}
		text, err := policy.FromText(string(policy.AppendText(nil, b)))
		if err != nil || !bytes.Equal(text, b) {
			t.Errorf("%+v as text: %v", p, err)
		}
		if got, err := policy.Decode(b); err != nil || got != p {
			t.Errorf("%+v comes back as %+v, %v", p, got, err)
		}
	}
}

func TestBadPolicies(t *testing.T) {
	for _, tt := range []struct {
		p    policy.Policy
		want string
	}{
		{policy.Policy{Route: strings.Repeat("r", policy.MaxRoute+1)}, "name"},
		{policy.Policy{Mode: policy.Share + 1}, "unknown mode 6"},
		{policy.Policy{Timeout: -1}, "timeout"},
		{policy.Policy{Timeout: policy.MaxDuration + 1}, "timeout"},
		{policy.Policy{MaxWait: -1}, "wait"},
		{policy.Policy{MaxWait: policy.MaxDuration + 1}, "wait"},
		{policy.Policy{QueuePerKey: -1}, "wait for a key"},
		{policy.Policy{QueuePerKey: policy.MaxQueue + 1}, "wait for a key"},
		{policy.Policy{Rate: policy.Rate{PerSecond: 1}}, "burst"},
		{policy.Policy{Rate: policy.Rate{Burst: 1}}, "rate"},
		{policy.Policy{Rate: policy.Rate{PerSecond: -1, Burst: 1}}, "rate"},
		{policy.Policy{Rate: policy.Rate{PerSecond: policy.MinPerSecond / 2, Burst: 1}}, "rate"},
		{policy.Policy{Rate: policy.Rate{PerSecond: math.Inf(1), Burst: 1}}, "rate"},
		{policy.Policy{Rate: policy.Rate{PerSecond: math.NaN(), Burst: 1}}, "rate"},
		{policy.Policy{Rate: policy.Rate{PerSecond: 1, Burst: policy.MaxBurst + 1}}, "burst"},
	} {
		err := tt.p.Check()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want one about %q", tt.p, err, tt.want)
		}
		if _, err := policy.Decode(tt.p.Append(nil)); err == nil {
			t.Errorf("%+v is decoded", tt.p)
		}
	}
}

// What another version may have encoded is an error that says so.
func TestVersionSkew(t *testing.T) {
	good := full.Append(nil)
	for n := 1; n < len(good); n++ {
		if _, err := policy.Decode(good[:n]); err == nil || !strings.Contains(err.Error(), "version") {
			t.Errorf("%d of %d bytes: %v", n, len(good), err)
		}
	}
	if _, err := policy.Decode(append(good, 0)); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("one byte more: %v", err)
	}
	if _, err := policy.FromText("!"); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("text that is no base64url: %v", err)
	}
}

func TestModeNames(t *testing.T) {
	seen := map[string]bool{}
	for m := policy.Auto; m <= policy.Share; m++ {
		seen[m.String()] = true
	}
	if len(seen) != 6 || !seen["route"] || (policy.Share+1).String() != "mode 6" {
		t.Errorf("%v", seen)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(full.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := policy.Decode(b)
		if err != nil {
			if p != (policy.Policy{}) {
				t.Errorf("%+v comes with an error", p)
			}
			return
		}
		if err := p.Check(); err != nil {
			t.Error(err)
		}
		if again, err := policy.Decode(p.Append(nil)); err != nil || again != p {
			t.Errorf("%+v comes back as %+v, %v", p, again, err)
		}
	})
}
