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

// Sketch counts keys. Those that have come more often than one time in [Size] are among its counts,
// whatever the others are. The zero Sketch is empty. It is not safe for concurrent use.
type Sketch struct {
	counts []Count
	known  map[string]int // by key: its index of counts

	floor int64 // no count is lower; counts only rise
	next  int   // of counts: those before are higher
}

// Add counts a key n times. The memory of key may be used again.
func (s *Sketch) Add(key string, n int64) {
	i, ok := s.known[key]
	switch {
	case ok:
	case len(s.counts) < Size:
		if s.known == nil {
			s.known = make(map[string]int, Size)
		}
		i = len(s.counts)
		s.counts = append(s.counts, Count{Key: strings.Clone(key)})
		s.known[s.counts[i].Key] = i
	default: // it takes the place, and the count, of the lowest
		i = s.lowest()
		delete(s.known, s.counts[i].Key)
		s.counts[i] = Count{strings.Clone(key), s.counts[i].Count, s.counts[i].Count}
		s.known[s.counts[i].Key] = i
	}
	s.counts[i].Count += n
}

// lowest returns the index of the lowest count.
func (s *Sketch) lowest() int {
	for {
		for ; s.next < len(s.counts); s.next++ {
			if s.counts[s.next].Count == s.floor {
				return s.next
			}
		}
		s.floor, s.next = slices.MinFunc(s.counts, func(a, b Count) int { return cmp.Compare(a.Count, b.Count) }).Count, 0
	}
}

// Keys returns the keys among the counts.
func (s *Sketch) Keys() iter.Seq[string] { return maps.Keys(s.known) }

// Has reports whether a key is among the counts.
func (s *Sketch) Has(key string) bool {
	_, ok := s.known[key]
	return ok
}

// Top returns the n highest counts of all sketches together, the highest first.
func Top(n int, sketches ...*Sketch) []Count {
	sums := make(map[string]Count)
	for _, s := range sketches {
		for _, c := range s.counts {
			sums[c.Key] = Count{Key: c.Key}
		}
	}
	for _, s := range sketches {
		unseen := int64(0) // how often a key has come, at most, that is not among the counts
		if len(s.counts) == Size {
			unseen = s.counts[s.lowest()].Count
		}
		for key, sum := range sums {
			c := Count{Count: unseen, Error: unseen}
			if i, ok := s.known[key]; ok {
				c = s.counts[i]
			}
			sums[key] = Count{key, sum.Count + c.Count, sum.Error + c.Error}
		}
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error), cmp.Compare(a.Key, b.Key))
	})[:min(max(n, 0), len(sums))]
}
