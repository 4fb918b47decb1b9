//go:build linux

// Package load makes requests and measures the answers: in a closed loop, where
// each of N clients sends a request when it has the answer to the one before,
// or in an open one, where requests are due at times of their own and wait when
// the system is slow. One thread drives all connections over epoll, except those
// with TLS and of the link, which have goroutines; requests
// are made up in advance, and answers are parsed no further than to their end.
package load

import (
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keyway-go/keyway/internal/cli"
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

	Forwarded bool // requests are as a proxy sends them on: they tell of it
}

// host is what requests are for.
const host = "bench.example"

var forwardedFields = [...][2]string{
	{"User-Agent", "keyway-load"}, {"Accept", "*/*"},
	{"Forwarded", `for="127.0.0.1:40404";host=` + host + ";proto=http"}, {"X-Forwarded-For", "127.0.0.1"}, {"X-Forwarded-Host", host}, {"X-Forwarded-Proto", "http"},
}

// fields are those of all requests, except the key's.
func (m *Mix) fields() [][2]string {
	if m.Forwarded {
		return forwardedFields[:]
	}
	return forwardedFields[:2]
}

// KeyName returns the key with a number.
func KeyName(i int) string { return resource.Name(i) }

// requests is the requests of a mix and the order in which they come, which
// is the same each time.
type requests struct {
	raw      [][]byte // of key i: 2i reads, 2i+1 writes
	sequence []uint32
}

// sequenceLen is a power of two.
const sequenceLen = 1 << 17

func newRequests(cfg *Config) *requests {
	m := &cfg.Mix
	r := &requests{sequence: make([]uint32, sequenceLen)}
	for i := range m.Keys {
		for _, method := range []string{"GET", "POST"} {
			var raw []byte
			switch key := KeyName(i); {
			case cfg.Link != nil:
				raw = []byte(key)
			case cfg.HTTP2:
				raw = h2Request(m, method, key)
			default:
				raw = h1Request(m, method, key)
			}
			r.raw = append(r.raw, raw)
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

// Decimal is the value of a flag that holds a number that is not negative.
type Decimal float64

func (d *Decimal) String() string { return strconv.FormatFloat(float64(*d), 'f', -1, 64) }

// Set implements flag.Value.
func (d *Decimal) Set(s string) error {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0 && v < 1e9) {
		return cli.Usagef("%q is not a number from 0 up", s)
	}
	*d = Decimal(v)
	return nil
}
