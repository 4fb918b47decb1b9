// Package hotkeys finds the keys that are asked for most, in bounded memory: by the
// space-saving algorithm (Metwally, Agrawal and El Abbadi, "Efficient Computation of
// Frequent and Top-k Elements in Data Streams", 2005).
package hotkeys

import (
	"cmp"
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
	counts []Count        // a heap, the lowest first
	places map[string]int // of keys in counts
}

// Add counts a key n times. The memory of key may be used again.
func (s *Sketch) Add(key string, n int64) {
	place, known := s.places[key]
	switch {
	case known:
		s.counts[place].Count += n
	case len(s.counts) < Size:
		if s.places == nil {
			s.places = make(map[string]int, Size)
		}
		key = strings.Clone(key)
		place = len(s.counts)
		s.counts = append(s.counts, Count{Key: key, Count: n})
		s.places[key] = place
		s.up(place)
		return
	default: // it takes the place, and the count, of the lowest
		key, place = strings.Clone(key), 0
		low := &s.counts[0]
		delete(s.places, low.Key)
		*low = Count{Key: key, Count: low.Count + n, Error: low.Count}
		s.places[key] = 0
	}
	s.down(place)
}

// Unseen returns how often, at most, a key has come that is not among the counts.
func (s *Sketch) Unseen() int64 {
	if len(s.counts) < Size {
		return 0
	}
	return s.counts[0].Count
}

// Get returns what is known of a key.
func (s *Sketch) Get(key string) Count {
	if place, known := s.places[key]; known {
		return s.counts[place]
	}
	return Count{Key: key, Count: s.Unseen(), Error: s.Unseen()}
}

// Top returns the n highest counts of all sketches together, the highest first.
func Top(n int, sketches ...*Sketch) []Count {
	seen := make(map[string]bool)
	var all []Count
	for _, s := range sketches {
		for _, c := range s.counts {
			if seen[c.Key] {
				continue
			}
			seen[c.Key] = true
			sum := Count{Key: c.Key}
			for _, each := range sketches {
				part := each.Get(c.Key)
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

func (s *Sketch) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if s.counts[parent].Count <= s.counts[i].Count {
			return
		}
		s.swap(i, parent)
		i = parent
	}
}

func (s *Sketch) down(i int) {
	for {
		low := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < len(s.counts) && s.counts[child].Count < s.counts[low].Count {
				low = child
			}
		}
		if low == i {
			return
		}
		s.swap(i, low)
		i = low
	}
}

func (s *Sketch) swap(i, j int) {
	s.counts[i], s.counts[j] = s.counts[j], s.counts[i]
	s.places[s.counts[i].Key], s.places[s.counts[j].Key] = i, j
}
