// Package hotkeys finds the keys that are asked for most, in bounded memory: by the
// space-saving algorithm (Metwally, Agrawal and El Abbadi, "Efficient Computation of
// Frequent and Top-k Elements in Data Streams", 2005).
package hotkeys

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Size is how many keys a [Sketch] counts at one time.
const Size = 256

// Count is what a sketch knows of a key: it has come Count times at most, and Count less
// Error times at least.
type Count struct {
	Key          string
	Count, Error int64
}

// Sketch counts keys. Those that have come more often than one time in [Size] are among its
// counts, whatever the others are. The zero Sketch is empty. It is not safe for concurrent
// use.
type Sketch struct {
	heap  []*entry          // the lowest count first
	known map[string]*entry // by key
}

// entry is a key that is counted.
type entry struct {
	Count
	place int // in the heap
}

// Add counts a key n times. The memory of key may be used again.
func (s *Sketch) Add(key string, n int64) {
	e := s.known[key]
	switch {
	case e != nil:
		e.Count.Count += n
	case len(s.heap) < Size:
		if s.known == nil {
			s.known = make(map[string]*entry, Size)
		}
		key = strings.Clone(key)
		e = &entry{Count{Key: key, Count: n}, len(s.heap)}
		s.heap = append(s.heap, e)
		s.known[key] = e
		s.up(e)
		return
	default: // it takes the place, and the count, of the lowest
		key, e = strings.Clone(key), s.heap[0]
		delete(s.known, e.Key)
		e.Count = Count{Key: key, Count: e.Count.Count + n, Error: e.Count.Count}
		s.known[key] = e
	}
	s.down(e)
}

// Unseen returns how often, at most, a key has come that is not among the counts.
func (s *Sketch) Unseen() int64 {
	if len(s.heap) < Size {
		return 0
	}
	return s.heap[0].Count.Count
}

// Keys returns the keys among the counts.
func (s *Sketch) Keys() iter.Seq[string] { return maps.Keys(s.known) }

// Has reports whether a key is among the counts.
func (s *Sketch) Has(key string) bool { return s.known[key] != nil }

// Get returns what is known of a key.
func (s *Sketch) Get(key string) Count {
	if e := s.known[key]; e != nil {
		return e.Count
	}
	return Count{Key: key, Count: s.Unseen(), Error: s.Unseen()}
}

// Top returns the n highest counts of all sketches together, the highest first.
func Top(n int, sketches ...*Sketch) []Count {
	seen := make(map[string]bool)
	var all []Count
	for _, s := range sketches {
		for key := range s.Keys() {
			if seen[key] {
				continue
			}
			seen[key] = true
			sum := Count{Key: key}
			for _, each := range sketches {
				part := each.Get(key)
				sum.Count += part.Count
				sum.Error += part.Error
			}
			all = append(all, sum)
		}
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(max(n, 0), len(all))]
}

func (s *Sketch) up(e *entry) {
	for e.place > 0 {
		parent := s.heap[(e.place-1)/2]
		if parent.Count.Count <= e.Count.Count {
			return
		}
		s.swap(e, parent)
	}
}

func (s *Sketch) down(e *entry) {
	for {
		low := e
		for i := 2*e.place + 1; i <= 2*e.place+2 && i < len(s.heap); i++ {
			if s.heap[i].Count.Count < low.Count.Count {
				low = s.heap[i]
			}
		}
		if low == e {
			return
		}
		s.swap(e, low)
	}
}

func (s *Sketch) swap(a, b *entry) {
	a.place, b.place = b.place, a.place
	s.heap[a.place], s.heap[b.place] = a, b
}
