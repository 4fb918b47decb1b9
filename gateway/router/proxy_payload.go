package router

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
)

// aLongTimeAgo is a deadline that has passed.
var aLongTimeAgo = time.Unix(1, 0)

// payload is a request's body: read whole if it is small, and else streamed to
// the first worker that admits the request.
type payload struct {
	data     []byte    // if stream is nil
	stream   io.Reader // nil for a body in data or none at all
	reserved reservation
	failed   atomic.Pointer[error]
}

// fill prepares the payload of a request. Its error wraps errClientBody.
func (p *payload) fill(r *http.Request, pace *pacedBody) error {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	if r.ContentLength < 0 || r.ContentLength > hop.MaxRepeatedBody || len(r.Trailer) > 0 {
		p.stream = pace
		return nil
	}
	data, whole, err := p.reserved.gather(pace, r.ContentLength)
	switch {
	case err != nil:
		return errors.Join(errClientBody, err)
	case whole:
		p.data = data
	default:
		p.stream = io.MultiReader(bytes.NewReader(data), pace)
	}
	return nil
}

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

// pacedBody is the client's body, of which so many bytes must come within each
// such time that is spent waiting for them.
type pacedBody struct {
	in      *http.Request
	control *http.ResponseController
	pace    time.Duration // 0 or less for no limit
	bytes   int64
	rules   *fields.Rules

	left  time.Duration // of the present time
	need  int64         // of its bytes
	began time.Time
	due   atomic.Int64 // when Read will have waited too long, since began; 0 while it does not
}

func newPacedBody(r *http.Request, w *clientWriter, rt *Router) *pacedBody {
	bytes := rt.cfg.bodyBytes()
	return &pacedBody{in: r, control: w.control, pace: w.pace, bytes: bytes, rules: &rt.fields, left: w.pace, need: bytes, began: time.Now()}
}

func (b *pacedBody) Read(buf []byte) (int, error) {
	start := time.Now()
	if b.pace > 0 {
		b.due.Store(int64(start.Add(b.left).Sub(b.began)))
		_ = b.control.SetReadDeadline(start.Add(b.left)) // not every server has it
	}
	n, err := b.in.Body.Read(buf)
	if b.pace > 0 && (err == nil || err == io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
		b.due.Store(0)
	}
	b.left -= time.Since(start)
	if b.need -= int64(n); b.need <= 0 {
		b.left, b.need = b.pace, b.bytes
	}
	if err == io.EOF {
		b.rules.StripTrailer(b.in.Trailer)
	}
	return n, err
}

// late reports whether the client has sent too little for too long. net/http
// ends the request's context then, before Read fails.
func (b *pacedBody) late() bool {
	if b == nil {
		return false
	}
	due := b.due.Load()
	return due != 0 && int64(time.Since(b.began)) >= due
}
