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
// Transfer-Encoding, and Transfer-Encoding in HTTP/1.0. It also refuses folded lines, differing
// lengths and malformed chunks, and leaves other malformed input to the server. The zero value is at
// the start of a connection.
type Follower struct {
	state  followState
	line   []byte // what has come of the line
	left   int64  // bytes to come of the body
	chunks Chunked
	err    error

	old    bool // the request is not of HTTP/1.1
	coded  bool // it has Transfer-Encoding
	length int64
	sized  bool // it has Content-Length, which is length
}

type followState uint8

const (
	atRequest followState = iota // in the request line
	atField                      // in the line of a field, or the empty one after them
	atBody                       // in a body of known length
	atChunks                     // in a body in chunks
	atOther                      // in another protocol
)

// Check follows the next bytes and returns how many of them may pass to the server. Once a line
// breaks the framing, the bytes from that line on may not pass, and this and each later call return
// the error.
func (f *Follower) Check(p []byte) (n int, err error) {
	for n < len(p) && f.err == nil {
		took := len(p) - n
		switch f.state {
		case atOther:
		case atBody:
			took = int(min(int64(took), f.left))
			if f.left -= int64(took); f.left == 0 {
				f.state = atRequest
			}
		case atChunks:
			_, rest, ok := f.chunks.next(p[n:])
			took -= len(rest)
			if !ok {
				f.err = fmt.Errorf("%w: malformed chunks", errFraming)
			} else if f.chunks.Ended() {
				f.state = atRequest
			}
		default:
			took = f.takeLine(p[n:])
		}
		n += took
	}
	return n, f.err
}

// takeLine takes what b has of a line of a head, or nothing if that is an error.
func (f *Follower) takeLine(b []byte) (took int) {
	text, _, whole := bytes.Cut(b, []byte("\n"))
	f.line = append(f.line, text...)
	switch {
	case whole:
		f.err = f.endLine(bytes.TrimSuffix(f.line, []byte("\r")))
		if f.line = f.line[:0]; f.err != nil {
			return 0
		}
		return len(text) + 1
	case len(f.line) > maxFramingLine:
		f.err = fmt.Errorf("%w: a line of more than %d bytes", errFraming, maxFramingLine)
	}
	return len(text)
}

func (f *Follower) endLine(line []byte) error {
	switch {
	case f.state == atRequest && len(line) == 0: // the server takes some after a POST
		return nil
	case f.state == atRequest:
		f.old, f.coded, f.sized, f.length = !bytes.HasSuffix(line, []byte(" HTTP/1.1")), false, false, 0
		f.state = atField
		if string(line) == "PRI * HTTP/2.0" {
			f.state = atOther
		}
		return nil
	case len(line) > 0:
		return f.field(line)
	}
	return f.endHead()
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
		f.state, f.chunks = atChunks, Chunked{}
	case f.length > 0:
		f.state, f.left = atBody, f.length
	default:
		f.state = atRequest
	}
	return nil
}
