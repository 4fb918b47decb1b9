package keyed

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/policy"
)

// However requests come, a key gets no more than its rate allows, and all of it.
func TestRateIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		p := &policy.Policy{Rate: policy.Rate{PerSecond: float64(1 + rng.IntN(1000)), Burst: 2 + rng.IntN(20)}}
		r := rates{most: maxBuckets}
		interval := p.Rate.Interval()
		var now, began time.Duration
		ran := 0
		for now < time.Duration(1000)*interval {
			err := r.takeToken(p, "k", 0, now)
			if err == nil {
				ran++
			} else if wait := err.(*RateError).wait; r.takeToken(p, "k", 0, now+wait-1) == nil {
				t.Fatalf("%+v: a token is there before the %v that were said", p.Rate, wait)
			} else if now += wait - 1; rng.IntN(2) == 0 {
				if now++; r.takeToken(p, "k", 0, now) != nil {
					t.Fatalf("%+v: no token is there after the %v that were said", p.Rate, wait)
				}
				ran++
			}
			now += time.Duration(rng.Int64N(int64(interval)))
		}
		most := p.Rate.Burst + int((now-began)/interval)
		if ran > most || ran < most-p.Rate.Burst-1 {
			t.Errorf("%+v: %d of %d ran", p.Rate, ran, most)
		}
	}
}

// Buckets that are full again go, and so do the next ones if there are too many.
func TestRateBucketsAreBounded(t *testing.T) {
	p := &policy.Policy{Rate: policy.Rate{PerSecond: 1, Burst: 10}}
	r := rates{most: 100}
	for i := range 10 {
		for range 9 { // these are full last
			_ = r.takeToken(p, fmt.Sprint("busy", i), 0, 0)
		}
	}
	for i := range 1000 {
		_ = r.takeToken(p, fmt.Sprint(i), 0, 0)
		if len(r.buckets) > 100 {
			t.Fatalf("%d buckets", len(r.buckets))
		}
	}
	for i := range 10 {
		if _, known := r.buckets[newBucketID("", fmt.Sprint("busy", i), 0)]; !known {
			t.Errorf("a bucket went that is full later than others")
		}
	}
	for i := range 100 {
		_ = r.takeToken(p, fmt.Sprint("later", i), 0, time.Minute+time.Duration(i)*time.Second)
	}
	if n := len(r.buckets); n > 5 {
		t.Errorf("%d buckets, most of which are full", n)
	}
}

// What a bucket was begun with does not outlive a change of its rate.
func TestRateChanges(t *testing.T) {
	r := rates{most: maxBuckets}
	daily := &policy.Policy{Rate: policy.Rate{PerSecond: policy.MinPerSecond, Burst: policy.MaxBurst}}
	fast := &policy.Policy{Rate: policy.Rate{PerSecond: 10, Burst: 1}}
	for range 1000 {
		if err := r.takeToken(daily, "k", 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	err, ok := r.takeToken(fast, "k", 0, 0).(*RateError)
	if !ok || err.wait != 100*time.Millisecond {
		t.Errorf("%v", err)
	}
	if err := r.takeToken(fast, "k", 0, 100*time.Millisecond); err != nil {
		t.Errorf("once it was said that another one may run: %v", err)
	}
}

// Who has read the clock before others and comes after them gets, and leaves, no more than the
// rate allows.
func TestTrapRateOfOneWhoComesLate(t *testing.T) {
	r := rates{most: maxBuckets}
	p := &policy.Policy{Rate: policy.Rate{PerSecond: 1, Burst: 5}}
	ran := 0
	for i := range 100 {
		now := time.Minute
		if i%2 == 1 {
			now -= 10 * time.Second
		}
		if r.takeToken(p, "k", 0, now) == nil {
			ran++
		}
	}
	if ran != p.Rate.Burst {
		t.Errorf("%d ran at once, want %d", ran, p.Rate.Burst)
	}
}

// What is kept of a key is as small for a long one as for a short one.
func TestTrapRatesKeepNoKeys(t *testing.T) {
	r := rates{most: maxBuckets}
	p := &policy.Policy{Route: strings.Repeat("r", policy.MaxRoute), Rate: policy.Rate{PerSecond: 1, Burst: 1}}
	inUse := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := inUse()
	const keys, most = 20_000, 256
	for i := range keys {
		_ = r.takeToken(p, fmt.Sprintf("%04096d", i), 0, 0)
	}
	if each := (inUse() - before) / keys; each > most {
		t.Errorf("%d bytes are kept of each key, at most %d may be", each, most)
	}
	runtime.KeepAlive(&r)
}
