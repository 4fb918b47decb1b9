package http1

import (
	"bytes"
	"errors"
	"strconv"
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
	line    []byte // what has come of a line that is not whole
	left    int64  // bytes of the present chunk
	excess  int64
	trailer []byte // the lines after the last chunk
}

// chunkPlace is the part of a chunked body that comes next.
type chunkPlace uint8

const (
	chunkSize     chunkPlace = iota // the line before a chunk
	chunkData                       // the data
	chunkDataEnd                    // the line end behind them
	chunkTrailers                   // the lines behind the last chunk
	chunkEnd                        // nothing
)

// Decode takes the next bytes of the message and returns the data in them,
// which it moves to the front of b. Once the body has ended, rest is what
// follows it. Its error is errChunked.
func (c *Chunked) Decode(b []byte) (data, rest []byte, err error) {
	n := 0
	for rest = b; len(rest) > 0 && c.place != chunkEnd; {
		var piece []byte
		ok := false
		if piece, rest, ok = c.next(rest); !ok {
			return b[:n], nil, errChunked
		}
		n += copy(b[n:], piece)
	}
	return b[:n], rest, nil
}

// next takes the next piece off b: data, or all that has come of a line. It takes nothing of a line
// that is not ok.
func (c *Chunked) next(b []byte) (data, rest []byte, ok bool) {
	if c.place == chunkData {
		n := min(c.left, int64(len(b)))
		if c.left -= n; c.left == 0 {
			c.place = chunkDataEnd
		}
		return b[:n], b[n:], true
	}
	end := bytes.IndexByte(b, '\n') + 1
	whole := end > 0
	if !whole {
		end = len(b)
	}
	line := b[:end]
	if !whole || len(c.line) > 0 {
		c.line = append(c.line, line...)
		line = c.line
	}
	if len(line) > c.lineRoom() || whole && !c.endLine(line) {
		return nil, b, false
	}
	if whole {
		c.line = c.line[:0]
	}
	return nil, b[end:], true
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

// lineRoom returns how long the present line may be.
func (c *Chunked) lineRoom() int {
	if c.place == chunkTrailers {
		return maxTrailer - len(c.trailer)
	}
	return 2*maxExcess - int(c.excess)
}

// endLine takes a line, and reports whether it is well formed.
func (c *Chunked) endLine(line []byte) bool {
	c.excess += int64(len(line))
	text, _, v := cutLine(line)
	switch {
	case v != Done:
		return false
	case c.place == chunkDataEnd:
		c.place = chunkSize
		return len(text) == 0
	case c.place == chunkSize:
		return c.beginChunk(text)
	case len(text) == 0:
		c.place = chunkEnd
		return true
	}
	c.trailer = append(c.trailer, line...)
	_, ok := cutField(text)
	return ok
}

// beginChunk begins the chunk of a line, or the trailers. An extension must not have control
// characters that could be read as a line's end.
func (c *Chunked) beginChunk(line []byte) bool {
	digits, ext, _ := bytes.Cut(line, []byte(";"))
	digits = bytes.TrimRight(digits, " \t")
	size, err := strconv.ParseUint(string(digits), 16, 63)
	if err != nil || len(digits) > 16 || bytes.ContainsAny(ext, "\r\n\x00") {
		return false
	}
	c.left, c.place = int64(size), chunkData
	if size == 0 {
		c.place = chunkTrailers
	}
	c.excess = max(c.excess-16-2*min(c.left, maxExcess), 0)
	return c.excess <= maxExcess
}
