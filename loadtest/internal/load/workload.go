//go:build linux

// Package load makes requests and measures the answers. In a closed loop each of
// N clients sends a request when it has the answer to the one before. In an open
// loop requests are due at times of their own, and wait when the system is slow.
// One thread drives all connections over epoll; calls
// in place of connections have goroutines. Requests are made up in advance, and answers
// are parsed no further than to their end.
package load

import (
	"cmp"
	"math"
	"math/rand/v2"
	"sort"

	"github.com/keyway-go/keyway/loadtest/internal/resource"
)

// HeaderKey carries the key.
const HeaderKey = "X-Key"

// Mix is what is asked for.
type Mix struct {
	Keys   int     // number of different keys, at least 1
	Skew   float64 // the key with rank i comes with weight 1/i^Skew; 0: all alike
	Method string  // GET or POST; default GET
	Path   string
}

// host is what requests are for.
const host = "bench.example"

// fields are those of a request for a key.
func fields(key string) [][2]string {
	return [][2]string{{"User-Agent", "keyway-load"}, {"Accept", "*/*"}, {HeaderKey, key}}
}

// requests is the requests of a mix, and their order, the same each time.
type requests struct {
	raw      [][]byte // by key; only the key for calls
	sequence []uint32
}

// sequenceLen is a power of two.
const sequenceLen = 1 << 17

func newRequests(cfg *Config) *requests {
	m := &cfg.Mix
	m.Method = cmp.Or(m.Method, "GET")
	r := &requests{raw: make([][]byte, m.Keys), sequence: make([]uint32, sequenceLen)}
	for i := range r.raw {
		switch key := resource.Name(i); {
		case cfg.Call != nil:
			r.raw[i] = []byte(key)
		case cfg.HTTP2:
			r.raw[i] = h2Request(m, key)
		default:
			r.raw[i] = h1Request(m, key)
		}
	}
	pick := picker(m.Keys, m.Skew, rand.New(rand.NewPCG(1, 2)))
	for i := range r.sequence {
		r.sequence[i] = uint32(pick())
	}
	return r
}

// next returns the request that follows a position, and moves that on.
func (r *requests) next(position *int) []byte {
	*position = (*position + 1) & (sequenceLen - 1)
	return r.raw[r.sequence[*position]]
}

// picker returns a function that draws a key.
func picker(keys int, skew float64, random *rand.Rand) func() int {
	if skew == 0 {
		return func() int { return random.IntN(keys) }
	}
	sums := make([]float64, keys)
	var sum float64
	for i := range sums {
		sum += math.Pow(float64(i+1), -skew)
		sums[i] = sum
	}
	return func() int { return min(sort.SearchFloat64s(sums, random.Float64()*sum), keys-1) }
}
