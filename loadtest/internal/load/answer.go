//go:build linux

package load

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// Errors of answers.
var (
	errUnasked   = errors.New("bytes that were not asked for")
	errMalformed = errors.New("malformed answer")
)

// maxHead bounds the head of an answer.
const maxHead = 16 << 10

var endOfHead = []byte("\r\n\r\n")

// reader finds the ends of a connection's answers over HTTP/1.1, and parses no more of them than that takes. The zero
// value is ready.
type reader struct {
	status int   // of the last head
	length int64 // of its body

	part   []byte // the beginning of a head whose end has not come
	inBody bool
	left   int64 // bytes of the body that have not come
}

// feed takes what has come. It returns what of it belongs to the answer's body
// and, once the answer is whole, what follows it. An answer without a declared
// length is malformed.
func (r *reader) feed(in []byte) (body, rest []byte, whole bool, err error) {
	if !r.inBody {
		if len(r.part) > 0 {
			in = append(r.part, in...)
			r.part = nil
		}
		end := bytes.Index(in, endOfHead)
		if end < 0 {
			if len(in) > maxHead {
				return nil, nil, false, errMalformed
			}
			r.part = append([]byte(nil), in...)
			return nil, nil, false, nil
		}
		if r.status, r.length, err = parseHead(in[:end+2]); err != nil {
			return nil, nil, false, err
		}
		r.left, r.inBody = r.length, true
		in = in[end+len(endOfHead):]
	}
	n := min(r.left, int64(len(in)))
	r.left -= n
	r.inBody = r.left > 0
	return in[:n], in[n:], !r.inBody, nil
}

func parseHead(head []byte) (status int, length int64, err error) {
	line, fields, _ := bytes.Cut(head, []byte("\r\n"))
	if len(line) < 12 || string(line[:7]) != "HTTP/1." {
		return 0, 0, errMalformed
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, errMalformed
	}
	const name = "content-length:"
	for len(fields) > 0 {
		line, fields, _ = bytes.Cut(fields, []byte("\r\n"))
		if len(line) > len(name) && line[0]|0x20 == 'c' && bytes.EqualFold(line[:len(name)], []byte(name)) {
			length, err = strconv.ParseInt(string(bytes.TrimSpace(line[len(name):])), 10, 64)
			if err != nil || length < 0 {
				return 0, 0, errMalformed
			}
			return status, length, nil
		}
	}
	return 0, 0, fmt.Errorf("%w: status %d without Content-Length", errMalformed, status)
}
