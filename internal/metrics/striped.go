package metrics

import (
	"math/rand/v2"
	"sync/atomic"
)

// Stripes is how many parts there are of what many goroutines count in at once, so
// that they seldom write to the same memory.
const Stripes = 8

// Stripe returns the number of a part, chosen at random. A frequent counter asks once: an object of
// a [sync.Pool] that keeps the number stays with one processor.
func Stripe() int { return rand.IntN(Stripes) }

// Striped is a counter in parts. The zero value is 0.
type Striped struct {
	parts [Stripes]struct {
		atomic.Int64
		_ [56]byte // to the next line of the cache
	}
}

// Add adds to one part.
func (s *Striped) Add(stripe int, n int64) { s.parts[stripe].Add(n) }

// Load returns the sum of the parts.
func (s *Striped) Load() (sum int64) {
	for i := range s.parts {
		sum += s.parts[i].Load()
	}
	return sum
}
