// Package paced bounds the wait for what clients send.
package paced

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Body is a request's body whose sender must send a number of bytes in each interval of waiting.
// Make one with [NewBody]. Its reader owns it, except for due, and for [Body.End].
type Body struct {
	in      io.Reader
	control *http.ResponseController
	every   time.Duration
	bytes   int64

	left  time.Duration // of the present time
	need  int64         // of its bytes
	began time.Time
	due   atomic.Int64 // when Read will have waited too long, since began; 0 while it does not

	mu    sync.Mutex // guards ended, and control against use after it is set
	ended bool
}

// NewBody returns the body of a request that control answers: bytes of it must come within every.
// If it may be read by another goroutine than the handler's, the handler must call End.
// If the server has no deadlines for reading, only Late reports a slow client.
func NewBody(in io.Reader, control *http.ResponseController, every time.Duration, bytes int64) *Body {
	return &Body{in: in, control: control, every: every, bytes: bytes, left: every, need: bytes, began: time.Now()}
}

// End ends the reading: a Read from now on fails with [http.ErrBodyReadAfterClose]. The server's
// ResponseWriter must not be used after the handler has returned. That of HTTP/2 panics then, and
// with HTTP/1.1 the connection may have the next request.
func (b *Body) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

// deadline sets the deadline for reading, if the server has one. It reports false after End.
func (b *Body) deadline(t time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		_ = b.control.SetReadDeadline(t)
	}
	return !b.ended
}

// Read implements [io.Reader]. If the client is too slow, the error wraps [os.ErrDeadlineExceeded].
func (b *Body) Read(buf []byte) (int, error) {
	start := time.Now()
	if !b.deadline(start.Add(b.left)) {
		return 0, http.ErrBodyReadAfterClose
	}
	b.due.Store(int64(start.Add(b.left).Sub(b.began)))
	n, err := b.in.Read(buf)
	if err == nil || err == io.EOF {
		b.deadline(time.Time{})
		b.due.Store(0)
	}
	b.left -= time.Since(start)
	if b.need -= int64(n); b.need <= 0 {
		b.left, b.need = b.every, b.bytes
	}
	return n, err
}

// Late reports whether the client has sent too little for too long. net/http
// ends the request's context then, before Read fails.
func (b *Body) Late() bool {
	due := b.due.Load()
	return due != 0 && int64(time.Since(b.began)) >= due
}
