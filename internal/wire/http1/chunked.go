package http1

import (
	"errors"
	"math"
)

// errChunked means that a body's chunks are malformed.
var errChunked = errors.New("http1: malformed chunks")

// Bounds of the bytes of a chunked body that are no data.
const (
	maxTrailer = 16 << 10
	maxExcess  = 2 << 10 // more than 16 bytes for each chunk and two for each byte of data
)

// Chunked takes a body out of its chunks (RFC 9112, section 7.1). Lines must
// end in CRLF; extensions are dropped. The zero value is at the start of a
// body.
type Chunked struct {
	place   chunkPlace
	digits  int
	left    int64 // bytes of the present chunk
	excess  int64
	trailer []byte // the lines after the last chunk
	start   int    // of the present line of trailer
}

// chunkPlace is the part of a chunked body that the next byte belongs to.
type chunkPlace uint8

const (
	chunkSize     chunkPlace = iota
	chunkPad                 // spaces after the size
	chunkExt                 // an extension
	chunkLF                  // the end of the size's line
	chunkData                // the data
	chunkDataCR              // the line end behind them
	chunkDataLF              //
	chunkTrailers            // behind the last chunk
	chunkEnd                 // behind the body
)

// Decode takes the next bytes of the message and returns the data in them,
// which it moves to the front of b. Once the body has ended, rest is what
// follows it. Its error is errChunked.
func (c *Chunked) Decode(b []byte) (data, rest []byte, err error) {
	n := 0
	for i := 0; i < len(b); {
		switch c.place {
		case chunkEnd:
			return b[:n], b[i:], nil
		case chunkData:
			k := copy(b[n:], b[i:i+int(min(c.left, int64(len(b)-i)))])
			n, i = n+k, i+k
			if c.left -= int64(k); c.left == 0 {
				c.place = chunkDataCR
			}
		default:
			if !c.step(b[i]) {
				return b[:n], nil, errChunked
			}
			i++
		}
	}
	return b[:n], nil, nil
}

// Ended reports whether the body has ended.
func (c *Chunked) Ended() bool { return c.place == chunkEnd }

// Trailer returns the fields that came after the body.
func (c *Chunked) Trailer() (fields []Field) {
	for rest := c.trailer; ; {
		var line []byte
		if line, rest, _ = cutLine(rest); len(line) == 0 {
			return fields
		}
		if f, ok := cutField(line); ok {
			fields = append(fields, f)
		}
	}
}

// step takes a byte that is not data.
func (c *Chunked) step(b byte) bool {
	c.excess++
	switch c.place {
	case chunkSize, chunkPad, chunkExt:
		return c.sizeLine(b)
	case chunkLF:
		return b == '\n' && c.beginChunk()
	case chunkDataCR:
		c.place = chunkDataLF
		return b == '\r'
	case chunkDataLF:
		c.place = chunkSize
		return b == '\n'
	default:
		return c.trailers(b)
	}
}

// sizeLine takes a byte of the line before a chunk.
func (c *Chunked) sizeLine(b byte) bool {
	switch {
	case b == '\r' && c.digits > 0:
		c.place = chunkLF
	case b == '\r' || b == '\n' || b == 0:
		return false
	case c.place == chunkExt:
	case c.digits > 0 && (b == ' ' || b == '\t'):
		c.place = chunkPad
	case c.digits > 0 && b == ';':
		c.place = chunkExt
	case c.place == chunkPad || !hex(b) || c.digits == 16 || c.left > math.MaxInt64>>4:
		return false
	default:
		c.digits++
		c.left = c.left<<4 | int64(unhex(b))
	}
	return c.excess < 2*maxExcess
}

func unhex(b byte) byte {
	if b <= '9' {
		return b - '0'
	}
	return b | 0x20 - 'a' + 10
}

// beginChunk begins a chunk, whose size is left, or the trailers.
func (c *Chunked) beginChunk() bool {
	c.digits = 0
	c.excess = max(c.excess-16-2*min(c.left, maxExcess), 0)
	c.place = chunkData
	if c.left == 0 {
		c.place = chunkTrailers
	}
	return c.excess <= maxExcess
}

// trailers takes a byte that comes after the last chunk.
func (c *Chunked) trailers(b byte) bool {
	c.trailer = append(c.trailer, b)
	if b != '\n' {
		return len(c.trailer) < maxTrailer
	}
	line, _, v := cutLine(c.trailer[c.start:])
	c.start = len(c.trailer)
	switch {
	case v != Done:
		return false
	case len(line) == 0:
		c.place = chunkEnd
		return true
	}
	_, ok := cutField(line)
	return ok
}
