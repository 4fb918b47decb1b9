package send

import (
	"sync"
	"sync/atomic"
)

// abandonedShare is the part of what a link carries that may be spent on
// requests that clients have given up: 1 in so many.
const abandonedShare = 16

// abandoned counts, by the client's address, requests that were given up while a worker still works
// on them. While they exceed their share, a client with at least the average number of them is
// refused.
type abandoned struct {
	Full atomic.Bool // count has reached the share

	mu    sync.Mutex // guards what follows
	count int
	by    map[string]int
}

// Add counts one more, until ended is called. streams is what a link carries.
func (a *abandoned) Add(client string, streams int) (ended func()) {
	share := max(streams/abandonedShare, 1)
	change := func(by int) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.by == nil {
			a.by = make(map[string]int)
		}
		a.count += by
		if a.by[client] += by; a.by[client] == 0 {
			delete(a.by, client)
		}
		a.Full.Store(a.count >= share)
	}
	change(1)
	return func() { change(-1) }
}

// Refuses reports whether a client may not send the worker more while full.
func (a *abandoned) Refuses(client string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.by[client]
	return n > 0 && n*len(a.by) >= a.count
}
