package keyed

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/status"
)

const (
	hotSize   = 512              // how many keys are counted at one time
	hotWindow = 10 * time.Second // how long counts rise until others take their place
)

// sampleEvery is of how many executions that need not wait one is looked at: to look costs
// about as much as a call of Worker.Do. It is a prime, so that keys that take turns in a
// partition are looked at in turn.
const sampleEvery = 127

// hot finds the keys that are asked for most, in bounded memory: by the space-saving algorithm (Metwally, Agrawal and El
// Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005). It counts callers that find their
// key taken (when they begin to wait, or are refused), and one of sampleEvery among the others. It keeps the counts of
// two windows, the present one and the one before. Times are since the worker's start.
type hot struct {
	queued func(key string) int // how many wait for it

	mu            sync.Mutex // guards what follows
	counts        []hotCount
	known         map[string]int // by key: its index of counts
	floor         int64          // no count is lower; counts only rise until the next window
	next          int            // of counts: those before are higher
	began, former time.Duration  // when the windows began
}

// hotCount says how often a key has come in the present window, and in the one before.
type hotCount struct {
	key         string
	now, before hotTimes
}

// hotTimes: a key has come most times at most, and about most less error times at least.
type hotTimes struct{ most, error int64 }

func (c hotCount) most() int64  { return c.now.most + c.before.most }
func (c hotCount) error() int64 { return c.now.error + c.before.error }

// add counts a request or call n times: once if it has found its key taken, or sampleEvery times.
func (h *hot) add(key string, n int64, at time.Duration) {
	if IsKeyless(key) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addLocked(key, n, at)
}

// addLocked counts a key n times. The memory of key may be used again.
func (h *hot) addLocked(key string, n int64, at time.Duration) {
	h.turnLocked(at)
	i, ok := h.known[key]
	switch {
	case ok:
	case len(h.counts) < hotSize:
		i = len(h.counts)
		h.counts = append(h.counts, hotCount{key: strings.Clone(key)})
		h.known[h.counts[i].key] = i
	default: // it takes the place, and the count, of the lowest
		i = h.lowestLocked()
		c := &h.counts[i]
		delete(h.known, c.key)
		c.key, c.now.error, c.before.error = strings.Clone(key), c.now.most, c.before.most
		h.known[c.key] = i
	}
	h.counts[i].now.most += n
}

// lowestLocked returns the index of the lowest count.
func (h *hot) lowestLocked() int {
	for {
		for ; h.next < len(h.counts); h.next++ {
			if h.counts[h.next].most() <= h.floor {
				return h.next
			}
		}
		lowest := slices.MinFunc(h.counts, func(a, b hotCount) int { return cmp.Compare(a.most(), b.most()) })
		h.floor, h.next = lowest.most(), 0
	}
}

// turnLocked begins another window if the present one is old enough. Keys that would be forgotten
// are counted again, once for each caller that still waits.
func (h *hot) turnLocked(at time.Duration) {
	age := at - h.began
	if age < hotWindow {
		return
	}
	idle := age >= 2*hotWindow // nothing has come since
	if h.began, h.former = at, h.began; idle {
		h.former = at - hotWindow
	}
	old := h.counts
	h.counts, h.known, h.floor, h.next = nil, make(map[string]int), 0, 0
	for _, c := range old {
		if c.now, c.before = (hotTimes{}), c.now; idle {
			c.before = hotTimes{}
		}
		if c.before.most == 0 {
			c.now.most = int64(h.queued(c.key))
		}
		if c.most() > 0 {
			h.known[c.key] = len(h.counts)
			h.counts = append(h.counts, c)
		}
	}
}

// HotKeys returns the n keys that were asked for most, see Worker.HotKeys.
func (k *Keys) HotKeys(n int) []status.HotKey {
	h, now := &k.hot, k.Now()
	h.mu.Lock()
	h.turnLocked(now)
	top, span := slices.Clone(h.counts), max(now-h.former, time.Second)
	h.mu.Unlock()
	slices.SortFunc(top, func(a, b hotCount) int {
		return cmp.Or(cmp.Compare(b.most(), a.most()), cmp.Compare(a.error(), b.error()), cmp.Compare(a.key, b.key))
	})
	list := make([]status.HotKey, 0, min(max(n, 0), len(top)))
	for _, c := range top {
		if len(list) >= n {
			break
		}
		waiting := k.Queued(c.key)
		if c.most()-c.error() == sampleEvery && waiting == 0 {
			continue // one look does not tell how often it comes
		}
		list = append(list, status.HotKey{
			Key: c.key, PerSecond: float64(c.most()) / span.Seconds(), Error: float64(c.error()) / span.Seconds(), Waiting: waiting,
		})
	}
	return list
}
