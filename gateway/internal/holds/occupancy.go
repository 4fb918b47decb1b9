package holds

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/keyway-go/keyway/internal/wire/packed"
)

// Occupancy says who has a key at its owner.
type Occupancy struct {
	Held    bool
	Lock    bool          // a hold has it; otherwise an execution, here or at a former owner
	Token   int64         // of the holder, 0 if unknown
	Shared  int           // number of shared holds; 0 for an exclusive one
	Label   string        // of the hold; if shared, of the one with the most left
	Left    time.Duration // of its lease
	Waiting int           // callers that wait for the key
}

// Refused is the error of a key that was not acquired: a sentence in place of what Why says.
type Refused struct {
	Why  error // one of package gateway's or locking's
	Key  string
	Text string // what the key is, such as "is held"
}

func (e *Refused) Error() string { return fmt.Sprintf("keyway: key %q %s", e.Key, e.Text) }

// Unwrap returns Why.
func (e *Refused) Unwrap() error { return e.Why }

// Append appends the occupancy to b.
func (o Occupancy) Append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, flagByte(o.Held, o.Lock)), uint64(o.Token))
	b = appendDuration(b, o.Left)
	for _, n := range []int{o.Waiting, o.Shared} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return append(b, o.Label...)
}

// ParseOccupancy parses what [Occupancy.Append] has made.
func ParseOccupancy(b []byte) (o Occupancy, err error) {
	p := packed.Reader{Rest: b}
	readFlags(&p, &o.Held, &o.Lock)
	o.Token, o.Left = int64(p.Number(math.MaxInt64)), p.Duration()
	o.Waiting, o.Shared = int(p.Number(math.MaxInt32)), int(p.Number(math.MaxInt32))
	if o.Label = string(p.Rest); p.Bad || !IsLabel(o.Label) {
		return Occupancy{}, fmt.Errorf("%w: %d bytes do not say who has a key", errMalformed, len(b))
	}
	return o, nil
}
