package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/packed"
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

// decoder reads a payload. What it returns shares the payload's memory.
type decoder struct{ packed.Reader }

func decode(p []byte) *decoder { return &decoder{packed.Reader{Rest: p}} }

// int takes a number that must be an int64 and not negative.
func (d *decoder) int() int64 { return int64(d.Number(math.MaxInt64)) }

// size takes a number that is one more than a size, or 0 for none (-1).
func (d *decoder) size() int64 { return int64(d.Number(1<<63) - 1) }

func (d *decoder) string() string { return grammar.Text(d.bytes()) }

// bytes takes bytes with their length in front; nil if there are none.
func (d *decoder) bytes() []byte {
	if b := d.Bytes(int(d.Number(maxPayload))); len(b) > 0 {
		return b
	}
	return nil
}

// fields takes all that is left.
func (d *decoder) fields() Fields {
	f := Fields(d.Rest)
	if !f.valid() {
		d.Bad = true
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
	d := decode(p)
	h := requestHead{
		timeout: time.Duration(d.int()),
		epoch:   d.int(),
		length:  d.size(),
		method:  d.string(),
		host:    d.string(),
		target:  d.string(),
		key:     d.string(),
		client:  d.Number(math.MaxUint64),
		policy:  d.bytes(),
	}
	h.fields = d.fields()
	if d.Bad || !grammar.IsToken(strings.TrimPrefix(h.method, callMark)) || !grammar.IsText(h.host) || !grammar.IsTarget(h.target) {
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
	d := decode(p)
	status := d.int()
	h := responseHead{length: d.size(), fields: d.fields()}
	if d.Bad || status < 200 && !isInterim(int(status)) || status > 999 {
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
	d := decode(bytes.Clone(p))
	e := &RefusedError{
		Reason: Reason(d.Number(uint64(Busy))),
		Epoch:  d.int(),
		Owner:  d.string(),
		Addr:   d.string(),
	}
	if d.Bad || e.Reason < NotOwner {
		return nil, fmt.Errorf("refusal: %w", errMalformed)
	}
	return e, nil
}

func appendControl(b []byte, k kind, stream, n uint64) []byte {
	start := len(b)
	b = binary.AppendUvarint(openFrame(b), n)
	closeFrame(b, start, header{kind: k, stream: stream})
	return b
}
