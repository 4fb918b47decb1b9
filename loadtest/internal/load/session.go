//go:build linux

package load

import (
	"bytes"
	"fmt"
	"time"
)

// session is the client's side of a connection, without the connection.
type session interface {
	send(request []byte, begun time.Duration) // puts a request of newRequests into what is to be written
	feed(in []byte) error                     // takes what has come, and tells the owner of answers
	unsent() []byte                           // takes what is to be written
	underWay() []time.Duration                // when the requests without an answer began
}

// owner is told of each answer, with the beginning of its body. It may send the next request at once.
type owner interface {
	answered(begun time.Duration, status int, length int64, body []byte)
}

func newSession(cfg *Config, o owner) session {
	if cfg.HTTP2 {
		return newH2(o)
	}
	return &h1{owner: o}
}

// outbox is what is to be written.
type outbox struct{ out []byte }

func (o *outbox) unsent() []byte {
	out := o.out
	o.out = o.out[:0]
	return out
}

// h1 is one request at a time over HTTP/1.1.
type h1 struct {
	outbox
	owner  owner
	answer reader
	begun  [1]time.Duration
	busy   int
	body   []byte
}

func h1Request(m *Mix, method, key string) []byte {
	b := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, m.Path, host)
	if method == "POST" {
		b = append(b, "Content-Length: 0\r\n"...)
	}
	for _, f := range m.fields() {
		b = fmt.Appendf(b, "%s: %s\r\n", f[0], f[1])
	}
	return fmt.Appendf(b, "%s: %s\r\n\r\n", HeaderKey, key)
}

func (s *h1) send(request []byte, begun time.Duration) {
	s.out, s.begun[0], s.busy, s.body = append(s.out, request...), begun, 1, s.body[:0]
}

func (s *h1) underWay() []time.Duration { return s.begun[:s.busy] }

func (s *h1) feed(in []byte) error {
	if s.busy == 0 {
		return errUnasked
	}
	body, rest, whole, err := s.answer.feed(in)
	if err != nil {
		return err
	}
	if s.body = keep(s.body, body); len(rest) > 0 {
		return errUnasked
	}
	if whole {
		s.busy = 0
		s.owner.answered(s.begun[0], s.answer.status, s.answer.length, s.body)
	}
	return nil
}

// started returns when the critical section began, as the beginning of an answer's body says; 0 if it does not.
func started(body []byte) time.Duration {
	_, rest, _ := bytes.Cut(body, []byte(Begun))
	var n int64
	for _, c := range rest {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int64(c-'0')
	}
	return time.Duration(n)
}
