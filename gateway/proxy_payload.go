package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// replayLimit is the size of the largest body that is read before the request
// is sent. So a slow client holds no key while it sends one, and the request
// can go to another worker.
const replayLimit = 64 << 10

// errClientBody is wrapped by errors of reading the client's body.
var errClientBody = errors.New("gateway: the request's body did not arrive")

// errBodiesFull: RouterConfig.ReplayBytes are in use.
var errBodiesFull = errors.New("gateway: too many requests with bodies at once")

// aLongTimeAgo is a deadline that has passed.
var aLongTimeAgo = time.Unix(1, 0)

// payload is a request's body: read whole if it is small, and else streamed to
// the first worker that admits the request.
type payload struct {
	data     []byte    // if stream is nil
	stream   io.Reader // nil for a body in data or none at all
	reserved int64     // bytes taken from the router's budget
	failed   atomic.Pointer[error]
}

// budget bounds the bytes of all bodies in memory.
type budget struct {
	limit int64
	used  atomic.Int64
}

func (b *budget) take(n int64) bool {
	if b.used.Add(n) <= b.limit {
		return true
	}
	b.used.Add(-n)
	return false
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// fill prepares the payload of a request. Its error wraps errClientBody.
func (p *payload) fill(r *http.Request, pace *pacedBody, b *budget) error {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	if r.ContentLength < 0 || r.ContentLength > replayLimit || len(r.Trailer) > 0 || !b.take(r.ContentLength) {
		p.stream = pace
		return nil
	}
	p.reserved = r.ContentLength
	data := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(pace, data); err != nil {
		return errors.Join(errClientBody, err)
	}
	p.data = data
	return nil
}

func (p *payload) release(b *budget) { b.give(p.reserved) }

// attach gives a request to a worker its body. The caller closes what it
// returns once the attempt has ended.
func (p *payload) attach(req *http.Request) *attemptBody {
	switch {
	case p.stream != nil:
		body := &attemptBody{payload: p, reader: p.stream}
		req.Body = body
		req.Header.Set("Expect", "100-continue")
		return body
	case p.data != nil:
		req.Body = io.NopCloser(bytes.NewReader(p.data))
		req.ContentLength = int64(len(p.data))
	default:
		req.Body = nil
		req.ContentLength = 0
	}
	return &attemptBody{}
}

// attemptBody is the streamed body as one attempt sees it. Once it is closed
// the attempt reads no more, so that the body is whole for the next attempt if
// nothing had been read.
type attemptBody struct {
	payload *payload
	reader  io.Reader

	mu     sync.Mutex
	begun  bool
	closed bool
}

func (a *attemptBody) Read(b []byte) (int, error) {
	a.mu.Lock()
	closed := a.closed
	a.begun = a.begun || !closed
	a.mu.Unlock()
	if closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := a.reader.Read(b)
	if err != nil && err != io.EOF {
		a.payload.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Close implements [io.Closer].
func (a *attemptBody) Close() error {
	a.seal()
	return nil
}

// seal ends the attempt's reading and reports whether it had begun.
func (a *attemptBody) seal() (begun bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	return a.begun
}

// pacedBody is the client's body, of which each read must succeed within a
// time.
type pacedBody struct {
	in      *http.Request
	control *http.ResponseController
	pace    time.Duration // 0 or less for no limit
	rules   *fieldRules
}

func (b *pacedBody) Read(buf []byte) (int, error) {
	if b.pace > 0 {
		_ = b.control.SetReadDeadline(time.Now().Add(b.pace)) // not every server has it
	}
	n, err := b.in.Body.Read(buf)
	if b.pace > 0 && (err == nil || err == io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	if err == io.EOF {
		b.rules.stripTrailer(b.in.Trailer)
	}
	return n, err
}
