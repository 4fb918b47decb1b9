//go:build linux

package load

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// session is the client's side of a connection, without the connection.
type session interface {
	send(request []byte, begun time.Duration) // puts a request of newRequests into what is to be written
	feed(in []byte) error                     // takes what has come, and tells the owner of answers
	unsent() []byte                           // takes what is to be written, and may be overwritten by the next send
	underWay() []time.Duration                // when the requests without an answer began
}

// owner is told of each answer, with the beginning of its body if it is another one than 200. It
// may send the next request at once.
type owner interface {
	answered(begun time.Duration, status int, length int64, body []byte)
}

func newSession(cfg *Config, o owner) session {
	if cfg.HTTP2 {
		return newH2(o)
	}
	return &h1{owner: o}
}

// h1 is one request at a time over HTTP/1.1. It finds the ends of answers, and parses no more
// of them than that takes.
type h1 struct {
	owner owner
	out   bytes.Buffer
	begun [1]time.Duration
	busy  int

	head   []byte // what has come of the answer's head
	inBody bool
	status int
	length int64 // of the body
	left   int64 // bytes of it that have not come
	body   []byte
}

func h1Request(m *Mix, key string) []byte {
	b := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n", m.Method, m.Path, host)
	if m.Method == "POST" {
		b = append(b, "Content-Length: 0\r\n"...)
	}
	for _, f := range fields(key) {
		b = fmt.Appendf(b, "%s: %s\r\n", f[0], f[1])
	}
	return append(b, "\r\n"...)
}

func (s *h1) send(request []byte, begun time.Duration) {
	s.out.Write(request)
	s.begun[0], s.busy = begun, 1
}

func (s *h1) unsent() []byte {
	defer s.out.Reset()
	return s.out.Bytes()
}

func (s *h1) underWay() []time.Duration { return s.begun[:s.busy] }

// Errors of answers.
var (
	errUnasked   = errors.New("bytes that were not asked for")
	errMalformed = errors.New("malformed answer")
)

// maxHead bounds the head of an answer.
const maxHead = 16 << 10

var endOfHead = []byte("\r\n\r\n")

func (s *h1) feed(in []byte) (err error) {
	if s.busy == 0 {
		return errUnasked
	}
	if !s.inBody {
		if len(s.head) > 0 {
			in = append(s.head, in...)
		}
		head, body, whole := bytes.Cut(in, endOfHead)
		if !whole {
			if len(in) > maxHead {
				return errMalformed
			}
			s.head = append([]byte(nil), in...)
			return nil
		}
		if s.status, s.length, err = parseHead(head); err != nil {
			return err
		}
		s.head, s.left, s.inBody, s.body, in = nil, s.length, true, s.body[:0], body
	}
	if int64(len(in)) > s.left {
		return errUnasked
	}
	if s.left -= int64(len(in)); s.status != 200 {
		s.body = keep(s.body, in)
	}
	if s.left == 0 {
		s.busy, s.inBody = 0, false
		s.owner.answered(s.begun[0], s.status, s.length, s.body)
	}
	return nil
}

// parseHead returns an answer's status and the length of its body, which must be declared.
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
