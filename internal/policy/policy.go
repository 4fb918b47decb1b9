// Package policy holds what a router asks of a worker for the requests of one of
// its routes, and its encoding.
package policy

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/wire/packed"
)

// Policy is what the router's route asks of the worker for one request. The zero value leaves
// everything to the worker's own settings.
type Policy struct {
	Route       string        // the route's name, part of the name of its rate limits; "" for none
	Mode        Mode          // how requests of one key run
	Timeout     time.Duration // of one execution; 0: the worker's
	MaxWait     time.Duration // for the key; 0: the worker's
	QueuePerKey int           // requests that may wait for the key; 0: the worker's
	Rate        Rate          // executions of the key; zero for no limit
	Timed       bool          // the router wants to know how long the request waits and runs
}

// Rate bounds how often something happens: Burst times at once, and PerSecond for long.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Interval returns the time between executions at a constant rate.
func (r Rate) Interval() time.Duration {
	return time.Duration(math.Round(float64(time.Second) / r.PerSecond))
}

// Bounds of a policy's values.
const (
	MaxRoute     = 256               // bytes of a route's name
	MaxDuration  = time.Hour         // of Timeout and MaxWait
	MaxQueue     = 1_000_000         // of QueuePerKey
	MaxBurst     = 1_000_000         // of Rate.Burst
	MaxPerSecond = 1e6               // of Rate.PerSecond
	MinPerSecond = 1.0 / (24 * 3600) // of Rate.PerSecond: one in a day
)

// Mode says how requests of one key run at its owner.
type Mode uint8

// The modes.
const (
	// Auto holds the key until the answer is complete, or until the head of an
	// answer that is a change of protocol or an event stream.
	Auto Mode = iota
	// Serialize holds the key until the answer is complete, for every kind of answer.
	Serialize
	// Batch is Auto: a sidecar with App.Batch sends requests of both to the app
	// together, and those of no other mode.
	Batch
	// Affinity runs requests at the key's owner without holding the key.
	Affinity
	// Unkeyed runs requests that have no key, at any worker.
	Unkeyed
	// Share is Auto, except that a request without effects may get the answer to an equal request
	// that has begun since it came.
	Share

	modes // how many there are
)

var modeNames = [modes]string{"auto", "serialize", "batch", "route", "unkeyed", "share"}

// String returns the mode's name in a file of routes.
func (m Mode) String() string {
	if m < modes {
		return modeNames[m]
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// ParseMode returns the mode of a name in a file of routes, which has no [Unkeyed].
func ParseMode(name string) (Mode, error) {
	m := slices.Index(modeNames[:], name)
	if m < 0 || Mode(m) == Unkeyed {
		return Auto, fmt.Errorf("mode is %q, want auto, serialize, batch, route, share", name)
	}
	return Mode(m), nil
}

// Check returns an error that names a value that is out of bounds.
func (p *Policy) Check() error {
	switch r := p.Rate; {
	case len(p.Route) > MaxRoute:
		return fmt.Errorf("policy: the route's name has %d bytes, at most %d are allowed", len(p.Route), MaxRoute)
	case p.Mode >= modes:
		return fmt.Errorf("policy: unknown %v", p.Mode)
	case p.Timeout < 0 || p.Timeout > MaxDuration:
		return fmt.Errorf("policy: the timeout is %v, want 0 to %v", p.Timeout, MaxDuration)
	case p.MaxWait < 0 || p.MaxWait > MaxDuration:
		return fmt.Errorf("policy: the longest wait is %v, want 0 to %v", p.MaxWait, MaxDuration)
	case p.QueuePerKey < 0 || p.QueuePerKey > MaxQueue:
		return fmt.Errorf("policy: %d requests may wait for a key, want 0 to %d", p.QueuePerKey, MaxQueue)
	case r == Rate{}:
	case !(r.PerSecond >= MinPerSecond && r.PerSecond <= MaxPerSecond):
		return fmt.Errorf("policy: the rate is %v per second, want one in a day to %v per second", r.PerSecond, MaxPerSecond)
	case r.Burst < 1 || r.Burst > MaxBurst:
		return fmt.Errorf("policy: the rate's burst is %d, want 1 to %d", r.Burst, MaxBurst)
	}
	return nil
}

// Append appends the encoding of p, which Check must accept; it is empty for the zero Policy. The
// encoding has the mode, Timeout and MaxWait in nanoseconds, QueuePerKey and Rate.Burst as unsigned
// varints. The bits of Rate.PerSecond follow in 8 bytes, big endian, then Route after its length.
// The last byte is 1 for Timed and 0 otherwise.
func (p *Policy) Append(b []byte) []byte {
	if *p == (Policy{}) {
		return b
	}
	b = binary.AppendUvarint(b, uint64(p.Mode))
	b = binary.AppendUvarint(b, uint64(p.Timeout))
	b = binary.AppendUvarint(b, uint64(p.MaxWait))
	b = binary.AppendUvarint(b, uint64(p.QueuePerKey))
	b = binary.AppendUvarint(b, uint64(p.Rate.Burst))
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(p.Rate.PerSecond))
	b = binary.AppendUvarint(b, uint64(len(p.Route)))
	b = append(b, p.Route...)
	if p.Timed {
		return append(b, 1)
	}
	return append(b, 0)
}

// errSkew is the error of an encoding that another version has made.
var errSkew = errors.New("it is malformed, or a newer version's: run one version of router and worker")

// Decode decodes what Append has appended. Its error says what is wrong with it.
func Decode(b []byte) (Policy, error) {
	var p Policy
	if len(b) == 0 {
		return p, nil
	}
	r := packed.Reader{Rest: b}
	p.Mode = Mode(r.Number(uint64(modes) - 1))
	p.Timeout, p.MaxWait = r.Duration(), r.Duration()
	p.QueuePerKey, p.Rate.Burst = int(r.Number(math.MaxInt64)), int(r.Number(math.MaxInt64))
	p.Rate.PerSecond = math.Float64frombits(r.Uint64())
	p.Route = r.Text()
	p.Timed = r.Number(1) == 1
	if !r.Done() {
		return Policy{}, fmt.Errorf("policy: %w", errSkew)
	}
	if err := p.Check(); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// AppendText appends an encoding as a header's value has it.
func AppendText(b, encoded []byte) []byte { return base64.RawURLEncoding.AppendEncode(b, encoded) }

// FromText returns the encoding that AppendText has been given.
func FromText(s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", errSkew)
	}
	return b, nil
}
