package link

import (
	"bufio"
	"encoding/binary"
	"io"
)

// kind is the type of a frame.
type kind uint8

const (
	kindHello    kind = iota + 1 // first frame each way: version and configuration
	kindRequest                  // head of a request; opens a stream
	kindResponse                 // head of a response
	kindData                     // part of a body
	kindTrailers                 // trailers; ends the body
	kindRefused                  // the worker itself did not start the request
	kindReset                    // the sender has given the stream up
	kindWindow                   // the receiver may send this many more bytes of body
	kindPing                     // asks for a pong
	kindPong                     // answers a ping
	kindGoAway                   // no request above the given stream will start
	kindWaiting                  // the request has not begun, and will not before a begun frame
	kindBegun                    // the request may begin

	kindProof kind = 14 // second frame of a client: its settings, and the proof that it is a member
)

func (k kind) String() string {
	return nameOf("kind", uint8(k), []string{
		kindHello: "hello", kindRequest: "request", kindResponse: "response",
		kindData: "data", kindTrailers: "trailers", kindRefused: "refused",
		kindReset: "reset", kindWindow: "window", kindPing: "ping",
		kindPong: "pong", kindGoAway: "goaway", kindWaiting: "waiting", kindBegun: "begun", kindProof: "proof",
	})
}

const (
	preface   = "\x00keyway\n" // first bytes each way; no HTTP message and no TLS record starts with a zero byte
	headerLen = 12             // payload length (24 bits), kind with endBit (8), stream (64); big endian
	endBit    = 0x80           // nothing of this half of the stream follows

	maxPayload    = 1<<24 - 1 // what the length field can say
	maxData       = 16 << 10  // payload of a data frame
	initialWindow = 64 << 10  // bytes of body that may be sent before the first window frame
	grownWindow   = 256 << 10 // and once its reader reads
	maxWindow     = 1 << 30   // credit that a stream may reach
)

// header is a decoded frame header.
type header struct {
	length int
	kind   kind
	end    bool
	stream uint64
}

func putHeader(b []byte, h header) {
	first := uint32(h.length)<<8 | uint32(h.kind)
	if h.end {
		first |= endBit
	}
	binary.BigEndian.PutUint32(b, first)
	binary.BigEndian.PutUint64(b[4:], h.stream)
}

func parseHeader(b []byte) header {
	first := binary.BigEndian.Uint32(b)
	return header{
		length: int(first >> 8),
		kind:   kind(first &^ endBit),
		end:    first&endBit != 0,
		stream: binary.BigEndian.Uint64(b[4:]),
	}
}

func appendFrame(b []byte, h header, payload []byte) []byte {
	h.length = len(payload)
	b = openFrame(b)
	putHeader(b[len(b)-headerLen:], h)
	return append(b, payload...)
}

// bareFrame returns a frame without a payload.
func bareFrame(k kind, stream uint64) (b [headerLen]byte) {
	putHeader(b[:], header{kind: k, stream: stream})
	return b
}

// openFrame appends room for a header, which closeFrame fills in.
func openFrame(b []byte) []byte {
	return append(b, make([]byte, headerLen)...)
}

// closeFrame fills in the header of the frame that starts at b[start] and
// ends at the end of b.
func closeFrame(b []byte, start int, h header) {
	h.length = len(b) - start - headerLen
	putHeader(b[start:], h)
}

// reader takes frames from a connection through one buffer, which bounds
// what a peer can make this side hold before a frame has been judged.
type reader struct {
	in    *bufio.Reader
	src   io.Reader
	fresh bool  // bytes have come in since fresh was last cleared
	end   error // that src last failed with
}

func newReader(src io.Reader, size int) *reader {
	r := &reader{src: src}
	r.in = bufio.NewReaderSize((*source)(r), size)
	return r
}

// source is the connection that a reader reads.
type source reader

func (s *source) Read(p []byte) (int, error) {
	n, err := s.src.Read(p)
	s.fresh, s.end = s.fresh || n > 0, err
	return n, err
}

// next returns the next n bytes, which are valid until the next call; n must not exceed the buffer.
func (r *reader) next(n int) ([]byte, error) {
	b, err := r.in.Peek(n)
	if err == nil {
		_, err = r.in.Discard(n)
		return b, err
	}
	if err == io.EOF && len(b) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

// arrived returns what has come and is not taken.
func (r *reader) arrived() []byte {
	b, _ := r.in.Peek(r.in.Buffered()) // of these many it cannot fail
	return b
}

// follows reports whether all of the next frame has come, and it is of that kind and
// stream.
func (r *reader) follows(k kind, stream uint64) bool {
	b := r.arrived()
	if len(b) < headerLen {
		return false
	}
	h := parseHeader(b)
	return h.kind == k && h.stream == stream && (h.length > 0 || h.end) && len(b)-headerLen >= h.length
}

// some returns between 1 and n bytes, none only if n is 0. They are valid until the next call.
func (r *reader) some(n int) ([]byte, error) {
	return r.next(min(n, max(r.in.Buffered(), 1)))
}

func (r *reader) skip(n int) error {
	_, err := r.in.Discard(n)
	return err
}

func (r *reader) header() (header, error) {
	b, err := r.next(headerLen)
	if err != nil {
		return header{}, err
	}
	return parseHeader(b), nil
}
