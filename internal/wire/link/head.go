package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// Version is the version of the protocol that this package speaks.
const Version = 3

var errMalformed = errors.New("malformed frame")

// requestHead is the payload of a request frame.
type requestHead struct {
	timeout time.Duration // until the deadline; 0 for none
	epoch   int64
	length  int64 // of the body; -1 when not known
	method  string
	host    string
	target  string
	key     string
	client  uint64
	policy  []byte
	fields  Fields
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func (h *requestHead) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(h.timeout))
	b = binary.AppendUvarint(b, uint64(h.epoch))
	b = binary.AppendUvarint(b, uint64(h.length+1))
	b = appendString(b, h.method)
	b = appendString(b, h.host)
	b = appendString(b, h.target)
	b = appendString(b, h.key)
	b = binary.AppendUvarint(b, h.client)
	b = binary.AppendUvarint(b, uint64(len(h.policy)))
	b = append(b, h.policy...)
	return append(b, h.fields...)
}

// decoder takes values from the front of a payload. After a failure it
// yields zero values; ok tells at the end.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) uint() uint64 {
	n, rest, ok := cutUint(d.rest)
	if !ok {
		d.bad = true
		return 0
	}
	d.rest = rest
	return n
}

// uint64 takes a number of eight bytes, which is no varint.
func (d *decoder) uint64() uint64 {
	b := d.takeBytes(8)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// byte takes a byte that must not be above most.
func (d *decoder) byte(most byte) byte {
	b := d.takeBytes(1)
	if b == nil || b[0] > most {
		d.bad = true
		return 0
	}
	return b[0]
}

func (d *decoder) takeBytes(n int) []byte {
	if len(d.rest) < n {
		d.bad = true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

// endFields makes it a failure if anything is left.
func (d *decoder) endFields() { d.bad = d.bad || len(d.rest) > 0 }

// int takes a number that must be an int64 and not negative.
func (d *decoder) int() int64 {
	n := int64(d.uint())
	if n < 0 {
		d.bad = true
		return 0
	}
	return n
}

// size takes a number that is one more than a size, or 0 for none (-1).
func (d *decoder) size() int64 {
	n := d.uint()
	if n > 1<<63 {
		d.bad = true
		return 0
	}
	return int64(n - 1)
}

func (d *decoder) string() string { return grammar.Text(d.bytes()) }

// bytes takes bytes with their length in front; nil if there are none.
func (d *decoder) bytes() []byte {
	b, rest, ok := cutBytes(d.rest)
	if !ok {
		d.bad = true
		return nil
	}
	d.rest = rest
	if len(b) == 0 {
		return nil
	}
	return b
}

// fields takes all that is left.
func (d *decoder) fields() Fields {
	f := Fields(d.rest)
	if !f.valid() {
		d.bad = true
		return nil
	}
	return f
}

// callMark begins the method of a call between members. No method of HTTP can
// have it.
const callMark = ":"

// IsCall reports whether method names a call between members, such as ":renew". No client can send
// one, since methods of HTTP contain no colon.
func IsCall(method string) bool { return strings.HasPrefix(method, callMark) }

// decodeRequest decodes p, whose memory the result uses.
func decodeRequest(p []byte) (requestHead, error) {
	d := decoder{rest: p}
	h := requestHead{
		timeout: time.Duration(d.int()),
		epoch:   d.int(),
		length:  d.size(),
		method:  d.string(),
		host:    d.string(),
		target:  d.string(),
		key:     d.string(),
		client:  d.uint(),
		policy:  d.bytes(),
	}
	h.fields = d.fields()
	if d.bad || !grammar.IsToken(strings.TrimPrefix(h.method, callMark)) || !grammar.IsText(h.host) || !grammar.IsTarget(h.target) {
		return requestHead{}, fmt.Errorf("request head: %w", errMalformed)
	}
	return h, nil
}

// maxInterim is how many interim answers there may be to a request.
const maxInterim = 8

// isInterim reports whether a head with the status is followed by another head. 100
// and 101 are about one connection.
func isInterim(status int) bool { return 102 <= status && status <= 199 }

// responseHead is the payload of a response frame.
type responseHead struct {
	status int
	length int64 // of the body; -1 when not known
	fields Fields
}

func (h *responseHead) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(h.status))
	b = binary.AppendUvarint(b, uint64(h.length+1))
	return append(b, h.fields...)
}

// decodeResponse decodes p, whose memory the result uses.
func decodeResponse(p []byte) (responseHead, error) {
	d := decoder{rest: p}
	status := d.int()
	h := responseHead{length: d.size(), fields: d.fields()}
	if d.bad || status < 200 && !isInterim(int(status)) || status > 999 {
		return responseHead{}, fmt.Errorf("response head: %w", errMalformed)
	}
	h.status = int(status)
	return h, nil
}

func appendRefusal(b []byte, e *RefusedError) []byte {
	b = append(b, byte(e.Reason))
	b = binary.AppendUvarint(b, uint64(e.Epoch))
	b = appendString(b, e.Owner)
	return appendString(b, e.Addr)
}

// decodeRefusal decodes p, which the result does not share.
func decodeRefusal(p []byte) (*RefusedError, error) {
	d := decoder{rest: append([]byte(nil), p...)}
	e := &RefusedError{
		Reason: Reason(d.uint()),
		Epoch:  d.int(),
		Owner:  d.string(),
		Addr:   d.string(),
	}
	if d.bad || e.Reason < NotOwner || e.Reason > Busy {
		return nil, fmt.Errorf("refusal: %w", errMalformed)
	}
	return e, nil
}

// appendControl appends a frame whose payload is one varint.
func appendControl(b []byte, k kind, stream, n uint64) []byte {
	start := len(b)
	b = binary.AppendUvarint(openFrame(b), n)
	closeFrame(b, start, header{kind: k, stream: stream})
	return b
}
