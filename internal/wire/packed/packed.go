// Package packed reads what members encode for each other: numbers, times and texts, one after the other.
package packed

import (
	"encoding/binary"
	"math"
	"time"
)

// Reader takes values off the front of Rest. A value that is not there, or is out of its bounds, sets Bad and ends
// Rest; that value and all later ones are zero.
type Reader struct {
	Rest []byte
	Bad  bool
}

// Done reports whether all of Rest was read, and nothing was bad.
func (r *Reader) Done() bool { return !r.Bad && len(r.Rest) == 0 }

func (r *Reader) fail() { r.Rest, r.Bad = nil, true }

// Number reads a uvarint that is at most most.
func (r *Reader) Number(most uint64) uint64 {
	v, n := uint64(0), 1
	if len(r.Rest) > 0 && r.Rest[0] < 0x80 { // as most are
		v = uint64(r.Rest[0])
	} else {
		v, n = binary.Uvarint(r.Rest)
	}
	if n <= 0 || v > most {
		r.fail()
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Duration reads a uvarint of nanoseconds.
func (r *Reader) Duration() time.Duration { return time.Duration(r.Number(math.MaxInt64)) }

// Bytes reads n bytes, which share memory with Rest. It returns nil if there are fewer.
func (r *Reader) Bytes(n int) []byte {
	if n > len(r.Rest) {
		r.fail()
		return nil
	}
	b := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return b
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if b := r.Bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// Uint64 reads eight bytes, the highest first.
func (r *Reader) Uint64() uint64 {
	if b := r.Bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// Text reads a text after its length, which is a uvarint.
func (r *Reader) Text() string { return string(r.Bytes(int(r.Number(math.MaxInt32)))) }
