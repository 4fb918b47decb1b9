//go:build linux

// Package load makes requests and measures the answers: in a closed loop, where
// each of N clients sends a request when it has the answer to the one before,
// or in an open one, where requests are due at times of their own and wait when
// the system is slow. One thread drives all connections over epoll, requests
// are made up in advance, and answers are parsed no further than to their end.
package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keyway-go/keyway/loadtest/internal/resource"
)

// HeaderKey carries the key. A GET reads, a POST reads and writes.
const HeaderKey = "X-Key"

// Begun stands in the body of an answer before the time at which its critical
// section began, in nanoseconds on a [Clock]. It is no header, since proxies
// differ in what these cost.
const Begun = `"begun":`

// Clock tells a time that all processes of this machine share.
type Clock struct {
	base   time.Time
	offset time.Duration // of base
}

// NewClock returns a clock. It reads Go's clock between two readings of the
// shared one, and keeps the closest of several tries: whoever is interrupted in
// between would be late for good.
func NewClock() (c Clock) {
	closest := time.Duration(math.MaxInt64)
	for range 16 {
		before := monotonic()
		base := time.Now()
		if apart := monotonic() - before; apart < closest {
			closest, c = apart, Clock{base, before}
		}
	}
	return c
}

func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail; it is what Go's monotonic time is, too
	return time.Duration(now.Nano())
}

// Now returns the time since some moment.
func (c Clock) Now() time.Duration { return c.offset + time.Since(c.base) }

// Mix is what is asked for.
type Mix struct {
	Keys  int     // number of different keys, at least 1
	Skew  float64 // the key with rank i comes with weight 1/i^Skew; 0: all alike
	Reads float64 // share of requests that only read
	Path  string
}

// requests is the requests of a mix and the order in which they come, which
// is the same each time.
type requests struct {
	raw      [][]byte // of key i: 2i reads, 2i+1 writes
	sequence []uint32
}

// sequenceLen is a power of two.
const sequenceLen = 1 << 17

func newRequests(m Mix) *requests {
	r := &requests{sequence: make([]uint32, sequenceLen)}
	for i := range m.Keys {
		for _, head := range []string{"GET " + m.Path + " HTTP/1.1\r\n", "POST " + m.Path + " HTTP/1.1\r\nContent-Length: 0\r\n"} {
			r.raw = append(r.raw, fmt.Appendf(nil, "%sHost: loadtest.example\r\nUser-Agent: loadtest\r\n%s: %s\r\n\r\n", head, HeaderKey, resource.Name(i)))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	pick := picker(m.Keys, m.Skew, random)
	for i := range r.sequence {
		n := uint32(2 * pick())
		if random.Float64() >= m.Reads {
			n++
		}
		r.sequence[i] = n
	}
	return r
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
