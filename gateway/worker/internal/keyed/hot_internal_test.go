package keyed

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"
)

func newHot() *hot {
	return &hot{queued: func(string) int { return 0 }, known: make(map[string]int)}
}

// checkHot compares counts with exact ones. Those are of the windows of h, or of the present one alone.
func checkHot(t *testing.T, h *hot, exact map[string]int64, size int) {
	t.Helper()
	total := int64(0)
	for _, n := range exact {
		total += n
	}
	for _, c := range h.counts {
		if n := exact[c.key]; c.most() < n || c.most()-c.error() > n {
			t.Errorf("%s came %d times, and the count is %d with an error of %d", c.key, n, c.most(), c.error())
		}
		if i, ok := h.known[c.key]; !ok || h.counts[i].key != c.key {
			t.Errorf("%s is not known", c.key)
		}
	}
	for key, n := range exact {
		if _, found := h.known[key]; n > total/int64(size)+1 && !found {
			t.Errorf("%s came %d times of %d and is not found", key, n, total)
		}
	}
	if len(h.counts) > hotSize || len(h.known) != len(h.counts) {
		t.Errorf("%d counts of %d keys", len(h.counts), len(h.known))
	}
}

// Whatever comes, counts are within their bounds, and no frequent key is missing. In the window after that, keys that come
// often are found, and the keys of the first window are forgotten with it.
func TestHot(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		zipf := rand.NewZipf(r, 1.01+float64(seed%5)/4, 1, 100_000)
		h, exact := newHot(), make(map[string]int64)
		for i := range 50_000 {
			key, n := fmt.Sprint(zipf.Uint64()), int64(1)
			if seed%3 == 0 {
				n = 1 + r.Int64N(64)
			}
			exact[key] += n
			h.addLocked(key, n, hotWindow+time.Duration(i/40_000)*hotWindow)
		}
		checkHot(t, h, exact, hotSize)
		last := make(map[string]int64)
		for range 40_000 {
			key := fmt.Sprint("later-", zipf.Uint64())
			last[key]++
			h.addLocked(key, 1, 4*hotWindow)
		}
		checkHot(t, h, last, hotSize)
	}
}

// A flood of keys that come once does not hide those that come often, in any window. It leaves nothing behind.
func TestHotFlood(t *testing.T) {
	h := newHot()
	for i := range 400_000 {
		at := time.Duration(i/50_000) * hotWindow
		h.addLocked(fmt.Sprint("once-", i), 1, at)
		if i%50 == 0 {
			h.addLocked("often", 1, at)
		}
		if _, known := h.known["often"]; !known {
			t.Fatalf("the key that comes often is missing after %d", i)
		}
	}
	for _, c := range h.counts {
		if c.key == "often" && (c.most() < 2000 || c.most()-c.error() > 2000 || c.error() > 300) || c.most() > 2400 {
			t.Errorf("%+v", c)
		}
	}
	if h.turnLocked(time.Hour); len(h.counts) != 0 || len(h.known) != 0 {
		t.Errorf("%d counts and %d known keys are left", len(h.counts), len(h.known))
	}
}

// The memory of a key that was added may be used again.
func TestHotKeysAreCopied(t *testing.T) {
	h := newHot()
	memory := make([]byte, 3)
	for i := range 2 * hotSize { // from the first to those that take another's place
		copy(memory, fmt.Sprintf("%03d", i%1000))
		h.addLocked(unsafe.String(&memory[0], len(memory)), 1, 0)
	}
	copy(memory, "xxx")
	for _, c := range h.counts {
		if c.key == "xxx" {
			t.Fatal("a key has changed")
		}
	}
	h.addLocked("key", 1, 0)
	if n := testing.AllocsPerRun(100, func() { h.addLocked("key", 1, 0) }); n != 0 {
		t.Errorf("%v allocations to count a known key", n)
	}
}

func BenchmarkHot(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(r, 1.1, 1, 100_000)
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = fmt.Sprint("order-", zipf.Uint64())
	}
	h := newHot()
	i := 0
	for b.Loop() {
		h.addLocked(keys[i&(1<<16-1)], 1, 0)
		i++
	}
}
