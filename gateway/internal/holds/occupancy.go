package holds

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// Occupancy says who has a key at its owner.
type Occupancy struct {
	Held    bool
	Lock    bool          // a hold has it; otherwise an execution, here or at a former owner
	Token   int64         // of who has it, 0 if that is not known
	Shared  int           // how many shared holds have it; 0 if one has it alone
	Label   string        // of the hold; of those that share the key, the one with the most left
	Left    time.Duration // of its lease
	Waiting int           // who wait for the key
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

// Flags of an Occupancy.
const (
	isHeld = 1 << iota
	isLock
	occupancyFlags
)

// Append appends the occupancy to b.
func (o Occupancy) Append(b []byte) []byte {
	flags := byte(0)
	if o.Held {
		flags |= isHeld
	}
	if o.Lock {
		flags |= isLock
	}
	b = binary.AppendUvarint(append(b, flags), uint64(o.Token))
	b = appendDuration(b, o.Left)
	for _, n := range []int{o.Waiting, o.Shared} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return append(b, o.Label...)
}

// ParseOccupancy parses what [Occupancy.Append] has made.
func ParseOccupancy(b []byte) (o Occupancy, err error) {
	bad := fmt.Errorf("%w: %d bytes do not say who has a key", errMalformed, len(b))
	if len(b) == 0 || b[0] >= occupancyFlags {
		return Occupancy{}, bad
	}
	o.Held, o.Lock, b = b[0]&isHeld != 0, b[0]&isLock != 0, b[1:]
	token, n := binary.Uvarint(b)
	if n <= 0 || int64(token) < 0 {
		return Occupancy{}, bad
	}
	o.Token = int64(token)
	var ok bool
	if o.Left, b, ok = cutDuration(b[n:]); !ok {
		return Occupancy{}, bad
	}
	for _, field := range []*int{&o.Waiting, &o.Shared} {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > math.MaxInt32 {
			return Occupancy{}, bad
		}
		*field, b = int(v), b[n:]
	}
	if o.Label = string(b); !IsLabel(o.Label) {
		return Occupancy{}, bad
	}
	return o, nil
}
