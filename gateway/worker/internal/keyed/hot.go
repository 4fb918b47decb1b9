package keyed

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/worker/internal/hotkeys"
)

// hotWindow is how long a sketch counts until the next one takes its place.
const hotWindow = 10 * time.Second

// A window counts each of the first hotExact executions that have to wait. Later it counts
// one in hotThinned, as so many. Hundreds a second wait then, and counting takes a mutex of the
// whole worker.
const hotExact, hotThinned = 4096, 8

// sampleEvery is of how many executions that need not wait one is looked at: to look costs
// about as much as a call of Worker.Do. It is a prime, so that keys that take turns in a
// partition are looked at in turn.
const sampleEvery = 127

// hot counts how often keys are asked for. It counts callers that find their key taken (when they
// begin to wait, or are refused), and one of sampleEvery among the others. Times are since the
// worker's start. Under mu a new sketch replaces the older of the two from time to time.
type hot struct {
	queued func(key string) int // how many wait for it
	thin   atomic.Int64         // until when one of hotThinned counts

	mu            sync.Mutex // guards what follows
	now, before   *hotkeys.Sketch
	began, former time.Duration // when the sketches began
	came          int           // callers that found their key taken and were counted in now
}

func (h *hot) init(queued func(key string) int) {
	h.queued, h.now, h.before = queued, new(hotkeys.Sketch), new(hotkeys.Sketch)
}

// taken counts a request or call that has found its key taken.
func (h *hot) taken(key string, at time.Duration) {
	n := int64(1)
	if at < time.Duration(h.thin.Load()) {
		if rand.Uint32()%hotThinned != 0 {
			return
		}
		n = hotThinned
	}
	if IsKeyless(key) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turnLocked(at)
	h.now.Add(key, n)
	if h.came++; h.came == hotExact {
		h.thin.Store(int64(h.began + hotWindow))
	}
}

// looked counts one of sampleEvery executions that have found their keys free.
func (h *hot) looked(key string, at time.Duration) {
	if IsKeyless(key) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turnLocked(at)
	h.now.Add(key, sampleEvery)
}

// turnLocked begins another sketch if the present one is old enough. Keys that would be forgotten
// are counted again, once for each caller that still waits.
func (h *hot) turnLocked(at time.Duration) {
	forgotten := []*hotkeys.Sketch{h.before}
	switch age := at - h.began; {
	case age >= 2*hotWindow: // nothing has come since
		forgotten = append(forgotten, h.now)
		h.before, h.former = new(hotkeys.Sketch), at-hotWindow
	case age >= hotWindow:
		h.before, h.former = h.now, h.began
	default:
		return
	}
	h.now, h.began, h.came = new(hotkeys.Sketch), at, 0
	for _, s := range forgotten {
		for key := range s.Keys() {
			if n := h.queued(key); n > 0 && !h.before.Has(key) && !h.now.Has(key) {
				h.now.Add(key, int64(n))
			}
		}
	}
}
