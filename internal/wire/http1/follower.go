package http1

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// errFraming means that a request does not say in one way alone where its body
// ends.
var errFraming = errors.New("http1: ambiguous framing")

// maxFramingLine is the longest line that a Follower takes, far above what a
// server takes.
const maxFramingLine = 1 << 20

// Follower follows the bytes of an HTTP/1 connection from request to request. It serves a server
// whose handlers cannot see what RFC 9112 section 6.1 forbids: Content-Length together with
// Transfer-Encoding, and Transfer-Encoding in HTTP/1.0. It also refuses folded lines and differing
// lengths, and leaves other malformed input to the server. The zero value is at the start of a
// connection.
type Follower struct {
	state followState
	line  []byte // what has come of the line
	left  int64  // bytes to come of the body or chunk
	err   error

	old    bool // the request is not of HTTP/1.1
	coded  bool // it has Transfer-Encoding
	length int64
	sized  bool // it has Content-Length, which is length
}

type followState uint8

const (
	atRequest   followState = iota // in the request line
	atField                        // in the line of a field, or the empty one after them
	atBody                         // in a body of known length
	atChunkSize                    // in the line before a chunk
	atChunk                        // in a chunk
	atChunkEnd                     // in the line end after a chunk
	atTrailer                      // in the line of a trailer, or the empty one after them
	atOther                        // in another protocol
)

// Check follows the next bytes and returns how many of them may pass to the server. Once a line
// breaks the framing, the bytes from that line on may not pass, and this and each later call return
// the error.
func (f *Follower) Check(p []byte) (n int, err error) {
	for n < len(p) && f.err == nil {
		switch f.state {
		case atOther:
			return len(p), nil
		case atBody, atChunk:
			k := min(int64(len(p)-n), f.left)
			n += int(k)
			f.left -= k
			switch {
			case f.left > 0:
			case f.state == atBody:
				f.state = atRequest
			default:
				f.state = atChunkEnd
			}
		default:
			i := bytes.IndexByte(p[n:], '\n')
			if i < 0 {
				f.line = append(f.line, p[n:]...)
				n = len(p)
				if len(f.line) > maxFramingLine {
					f.err = fmt.Errorf("%w: a line of more than %d bytes", errFraming, maxFramingLine)
				}
				continue
			}
			f.line = append(f.line, p[n:n+i]...)
			f.err = f.endLine(bytes.TrimSuffix(f.line, []byte("\r")))
			f.line = f.line[:0]
			if f.err == nil {
				n += i + 1
			}
		}
	}
	return n, f.err
}

func (f *Follower) endLine(line []byte) error {
	switch f.state {
	case atRequest:
		f.old, f.coded, f.sized, f.length = !bytes.HasSuffix(line, []byte(" HTTP/1.1")), false, false, 0
		f.state = atField
		if string(line) == "PRI * HTTP/2.0" {
			f.state = atOther
		}
	case atField:
		if len(line) > 0 {
			return f.field(line)
		}
		return f.endHead()
	case atChunkSize:
		return f.chunkSize(line)
	case atChunkEnd:
		if len(line) > 0 {
			return fmt.Errorf("%w: a chunk is longer than its size", errFraming)
		}
		f.state = atChunkSize
	case atTrailer:
		if len(line) == 0 {
			f.state = atRequest
		}
	}
	return nil
}

func (f *Follower) field(line []byte) error {
	if line[0] == ' ' || line[0] == '\t' {
		return fmt.Errorf("%w: a folded line", errFraming)
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	switch {
	case grammar.EqualFold(name, "transfer-encoding"):
		f.coded = true
	case grammar.EqualFold(name, "content-length"):
		length, ok := grammar.ParseLength(grammar.Trim(value))
		if !ok || f.sized && length != f.length {
			return fmt.Errorf("%w: Content-Length %q", errFraming, value)
		}
		f.length, f.sized = length, true
	}
	return nil
}

func (f *Follower) endHead() error {
	switch {
	case f.coded && f.sized:
		return fmt.Errorf("%w: Content-Length beside Transfer-Encoding", errFraming)
	case f.coded && f.old:
		return fmt.Errorf("%w: Transfer-Encoding before HTTP/1.1", errFraming)
	case f.coded:
		f.state = atChunkSize
	case f.length > 0:
		f.state, f.left = atBody, f.length
	default:
		f.state = atRequest
	}
	return nil
}

func (f *Follower) chunkSize(line []byte) error {
	size, ok := parseChunkSize(line)
	if !ok {
		return fmt.Errorf("%w: chunk size %q", errFraming, line)
	}
	f.state, f.left = atChunk, size
	if size == 0 {
		f.state = atTrailer
	}
	return nil
}
