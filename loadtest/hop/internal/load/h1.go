//go:build linux

package load

import (
	"fmt"

	"github.com/keyway-go/keyway/loadtest/internal/answer"
)

// h1 is one request at a time over HTTP/1.1.
type h1 struct {
	meter   *meter
	answer  answer.Reader
	begun   int64
	waiting bool
	detail  detail
}

func h1Request(cfg Config, key string) []byte {
	b := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n", cfg.Path, host)
	for _, f := range requestFields(&cfg) {
		b = fmt.Appendf(b, "%s: %s\r\n", f[0], f[1])
	}
	return fmt.Appendf(b, "%s: %s\r\n\r\n", HeaderKey, key)
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

func (s *h1) feed(in, out []byte, now int64) ([]byte, error) {
	for len(in) > 0 {
		if !s.waiting {
			return out, fmt.Errorf("load: %w", answer.ErrUnasked)
		}
		body, rest, whole, err := s.answer.Feed(in)
		if err != nil {
			return out, fmt.Errorf("load: %w", err)
		}
		if s.answer.Status != 200 {
			s.detail.add(body)
		}
		if !whole {
			return out, nil
		}
		in = rest
		s.meter.answered(s.begun, now, s.answer.Status, s.answer.Length, s.detail.take())
		out = s.begin(out, now)
	}
	return out, nil
}
