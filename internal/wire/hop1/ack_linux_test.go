package hop1

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestNoDelayedAcknowledgement: a server that writes head and body one after the other,
// with Nagle's algorithm on as most have it, is not held up by the 40 ms for which the
// kernel may wait with the acknowledgement of the head.
func TestNoDelayedAcknowledgement(t *testing.T) {
	s := newServer(t, func(c net.Conn, r *http.Request) bool {
		c.(*net.TCPConn).SetNoDelay(false)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
		_, err := io.WriteString(c, "ok")
		return err == nil
	})
	p := s.pool(t, false)
	for way, ask := range map[string]func() error{
		"exchange": func() error {
			_, err := ask(t.Context(), p, "GET", get)
			return err
		},
		"round trip": func() error {
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://h/", nil)
			res, err := p.RoundTrip(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			_, err = io.ReadAll(res.Body)
			return err
		},
	} {
		fastest := time.Hour
		for i := range 60 {
			begun := time.Now()
			if err := ask(); err != nil {
				t.Fatal(err)
			}
			if i >= 40 { // a new connection acknowledges at once by itself
				fastest = min(fastest, time.Since(begun))
			}
		}
		if fastest > 30*time.Millisecond {
			t.Errorf("%s: the fastest of 20 requests took %v", way, fastest)
		}
	}
}
