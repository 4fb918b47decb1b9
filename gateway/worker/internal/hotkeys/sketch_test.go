package hotkeys

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// check compares a sketch with exact counts.
func check(t *testing.T, exact map[string]int64, sketches ...*Sketch) {
	t.Helper()
	total, found := int64(0), make(map[string]bool)
	for _, n := range exact {
		total += n
	}
	last := int64(-1)
	for _, c := range Top(Size*len(sketches), sketches...) {
		found[c.Key] = true
		if n := exact[c.Key]; c.Count < n || c.Count-c.Error > n {
			t.Errorf("%s came %d times, and the sketch says %d with an error of %d", c.Key, n, c.Count, c.Error)
		}
		if last >= 0 && c.Count > last {
			t.Errorf("%d follows %d", c.Count, last)
		}
		last = c.Count
	}
	for key, n := range exact {
		if n > total/Size+1 && !found[key] {
			t.Errorf("%s came %d times of %d and is not found", key, n, total)
		}
	}
	for _, s := range sketches {
		if len(s.counts) > Size || len(s.known) != len(s.counts) {
			t.Errorf("%d counts of %d keys", len(s.counts), len(s.known))
		}
	}
}

// Whatever comes, counts are within their bounds, and no frequent key is missing.
func TestSketch(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		zipf := rand.NewZipf(r, 1.01+float64(seed%5)/4, 1, 100_000)
		sketches, exact := []*Sketch{{}, {}}, make(map[string]int64)
		for i := range 50_000 {
			key, n := fmt.Sprint(zipf.Uint64()), int64(1)
			if seed%3 == 0 {
				n = 1 + r.Int64N(64)
			}
			exact[key] += n
			sketches[i/40_000].Add(key, n)
		}
		check(t, exact, sketches...)
	}
	var empty Sketch
	check(t, nil, &empty)
	if n := len(Top(-1, &empty)); n != 0 {
		t.Errorf("%d of nothing", n)
	}
}

// A flood of keys that come once does not hide those that come often.
func TestFlood(t *testing.T) {
	var s Sketch
	for i := range 100_000 {
		s.Add(fmt.Sprint("once-", i), 1)
		if i%50 == 0 {
			s.Add("often", 1)
		}
	}
	if top := Top(1, &s); top[0].Key != "often" || top[0].Count < 2000 || top[0].Count-top[0].Error > 2000 {
		t.Errorf("%+v", top)
	}
}

// The memory of a key that was added may be used again.
func TestKeysAreCopied(t *testing.T) {
	var s Sketch
	memory := make([]byte, 3)
	for i := range 2 * Size { // from the first to those that take another's place
		copy(memory, fmt.Sprintf("%03d", i%1000))
		s.Add(unsafe.String(&memory[0], len(memory)), 1)
	}
	copy(memory, "xxx")
	for _, c := range Top(Size, &s) {
		if c.Key == "xxx" {
			t.Fatal("a key has changed")
		}
	}
	s.Add("key", 1)
	if n := testing.AllocsPerRun(100, func() { s.Add("key", 1) }); n != 0 {
		t.Errorf("%v allocations to count a known key", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(r, 1.1, 1, 100_000)
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = fmt.Sprint("order-", zipf.Uint64())
	}
	var s Sketch
	i := 0
	for b.Loop() {
		s.Add(keys[i&(1<<16-1)], 1)
		i++
	}
}
