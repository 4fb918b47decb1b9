//go:build linux

package load

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// h1 is one request at a time over HTTP/1.1.
type h1 struct {
	meter   *meter
	head    []byte // the beginning of a head whose end has not come
	left    int64  // bytes of the body that have not come
	length  int64  // of the body
	status  int
	begun   int64
	waiting bool
}

func h1Request(cfg Config, key string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: bench.example\r\nUser-Agent: keyway-hop\r\nAccept: */*\r\n%s: %s\r\n\r\n", cfg.Path, HeaderKey, key)
}

func (s *h1) busy() int {
	if s.waiting {
		return 1
	}
	return 0
}

func (s *h1) begin(out []byte, now int64) []byte {
	request, begun, ok := s.meter.next(now)
	s.begun, s.waiting = begun, ok
	return append(out, request...)
}

var (
	errUnasked   = errors.New("load: bytes that were not asked for")
	errMalformed = errors.New("load: malformed answer")
	endOfHead    = []byte("\r\n\r\n")
)

// maxHead bounds the head of an answer.
const maxHead = 16 << 10

func (s *h1) feed(in, out []byte, now int64) ([]byte, error) {
	for len(in) > 0 {
		if !s.waiting {
			return out, errUnasked
		}
		if s.left == 0 {
			rest, whole, err := s.feedHead(in)
			if err != nil || !whole {
				return out, err
			}
			in = rest
		}
		n := min(s.left, int64(len(in)))
		in, s.left = in[n:], s.left-n
		if s.left == 0 {
			s.meter.answered(s.begun, now, s.status, s.length)
			out = s.begin(out, now)
		}
	}
	return out, nil
}

// feedHead reads a head and returns what follows it.
func (s *h1) feedHead(in []byte) (rest []byte, whole bool, err error) {
	if len(s.head) > 0 {
		in = append(s.head, in...)
		s.head = nil
	}
	end := bytes.Index(in, endOfHead)
	if end < 0 {
		if len(in) > maxHead {
			return nil, false, errMalformed
		}
		s.head = append([]byte(nil), in...)
		return nil, false, nil
	}
	s.status, s.length, err = parseHead(in[:end+2])
	s.left = s.length
	return in[end+4:], true, err
}

// parseHead takes answers with a declared length only.
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
