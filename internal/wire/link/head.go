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
const Version = 4

var errMalformed = errors.New("malformed frame")

func appendText[S ~string | ~[]byte](b []byte, s S) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// appendHead appends the payload of r's request frame. The time until the deadline is 0 for none.
func (r *Request) appendHead(b []byte, timeout time.Duration) []byte {
	b = binary.AppendUvarint(b, uint64(timeout))
	b = binary.AppendUvarint(b, uint64(r.Epoch))
	b = binary.AppendUvarint(b, uint64(r.declared()+1))
	b = appendText(b, r.Method)
	b = appendText(b, r.Host)
	b = appendText(b, r.Target)
	b = appendText(b, r.Key)
	b = binary.AppendUvarint(b, r.Client)
	b = appendText(b, r.Policy)
	return append(b, r.Fields...)
}

// decoder reads a payload. Its results share the payload's memory.
type decoder struct{ packed.Reader }

func decode(p []byte) decoder { return decoder{packed.Reader{Rest: p}} }

// int takes a number that must be an int64 and not negative.
func (d *decoder) int() int64 { return int64(d.Number(math.MaxInt64)) }

// size takes a number that is one more than a size, or 0 for none (-1).
func (d *decoder) size() int64 { return int64(d.Number(1<<63) - 1) }

func (d *decoder) text() string { return grammar.Text(d.bytes()) }

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

// decodeHead sets r to the payload of a request frame, whose memory it uses. The time until the
// deadline is 0 for none.
func (r *ServerRequest) decodeHead(p []byte) (timeout time.Duration, err error) {
	d := decode(p)
	timeout = time.Duration(d.int())
	r.Epoch, r.ContentLength = d.int(), d.size()
	r.Method, r.Host, r.Target, r.Key = d.text(), d.text(), d.text(), d.text()
	r.Client, r.Policy, r.Fields = d.Number(math.MaxUint64), d.bytes(), d.fields()
	if d.Bad || !grammar.IsToken(strings.TrimPrefix(r.Method, callMark)) || !grammar.IsText(r.Host) || !grammar.IsTarget(r.Target) {
		return 0, fmt.Errorf("request head: %w", errMalformed)
	}
	return timeout, nil
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
	b = appendText(b, e.Owner)
	return appendText(b, e.Addr)
}

// decodeRefusal decodes p, which the result does not share.
func decodeRefusal(p []byte) (*RefusedError, error) {
	d := decode(bytes.Clone(p))
	e := &RefusedError{
		Reason: Reason(d.Number(uint64(Busy))),
		Epoch:  d.int(),
		Owner:  d.text(),
		Addr:   d.text(),
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
