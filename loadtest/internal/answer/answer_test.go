package answer_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/loadtest/internal/answer"
)

// TestFeed feeds two answers in pieces of every size.
func TestFeed(t *testing.T) {
	const answers = "HTTP/1.1 200 OK\r\nDate: today\r\ncontent-length: 5\r\n\r\nhello" + "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"
	for size := 1; size <= len(answers); size++ {
		var r answer.Reader
		var bodies strings.Builder
		var statuses []int
		for piece := range slices.Chunk([]byte(answers), size) {
			for len(piece) > 0 {
				body, rest, whole, err := r.Feed(piece)
				if err != nil {
					t.Fatalf("pieces of %d: %v", size, err)
				}
				bodies.Write(body)
				if piece = rest; whole {
					statuses = append(statuses, r.Status)
				}
			}
		}
		if bodies.String() != "hello" || !slices.Equal(statuses, []int{200, 503}) {
			t.Errorf("pieces of %d: bodies %q, statuses %v", size, bodies.String(), statuses)
		}
	}
}

func TestMalformed(t *testing.T) {
	for _, in := range []string{
		"HTTP/2 200\r\n\r\n", "SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 abc\r\nContent-Length: 1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", strings.Repeat("x", 16<<10+1),
	} {
		if _, _, _, err := new(answer.Reader).Feed([]byte(in)); !errors.Is(err, answer.ErrMalformed) {
			t.Errorf("%.40q: %v", in, err)
		}
	}
}

func FuzzFeed(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), 20)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		var r answer.Reader
		cut = max(0, min(cut, len(b)))
		for _, in := range [][]byte{b[:cut], b[cut:]} {
			body, rest, whole, err := r.Feed(in)
			if err != nil {
				return
			}
			if int64(len(body)) > r.Length || !whole && len(rest) > 0 {
				t.Errorf("%d bytes of a body of %d, and %d after it", len(body), r.Length, len(rest))
			}
		}
	})
}
