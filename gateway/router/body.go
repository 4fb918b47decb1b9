package router

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
)

// clientBody remembers what went wrong with reading the client's body.
type clientBody struct {
	reader io.Reader
	ended  atomic.Bool // at its end
	failed atomic.Pointer[error]
}

func (b *clientBody) Read(p []byte) (int, error) {
	n, err := b.reader.Read(p)
	switch err {
	case nil:
	case io.EOF:
		b.ended.Store(true)
	default:
		b.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// payload is a request's body: read whole if it is small, and else streamed to
// the first worker that admits the request.
type payload struct {
	data     []byte         // if stream has no reader
	stream   clientBody     // has no reader for a body in data or none at all
	asked    bool           // a worker has asked for stream
	done     sync.WaitGroup // of attempts that may read stream
	reserved reservation
}

// fill prepares the payload of a request, whose body is read from body. Its error wraps errClientBody.
func (p *payload) fill(r *http.Request, body io.Reader) error {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	if r.ContentLength < 0 || r.ContentLength > hop.MaxRepeatedBody || len(r.Trailer) > 0 {
		p.stream.reader = body
		return nil
	}
	data, whole, err := p.reserved.gather(body, r.ContentLength)
	switch {
	case err != nil:
		return errors.Join(errClientBody, err)
	case whole:
		p.data = data
	default:
		p.stream.reader = io.MultiReader(bytes.NewReader(data), body)
	}
	return nil
}

// attach gives a request to a worker its body.
func (p *payload) attach(req *http.Request) *http.Request {
	switch {
	case p.stream.reader != nil:
		p.done.Add(1)
		req.Body = offeredBody{&p.stream, &p.done}
		req.Header.Set("Expect", "100-continue")
		asked := &httptrace.ClientTrace{Got100Continue: func() { p.asked = true }}
		return req.WithContext(httptrace.WithClientTrace(req.Context(), asked))
	case p.data != nil:
		req.Body = io.NopCloser(bytes.NewReader(p.data))
		req.ContentLength = int64(len(p.data))
	default:
		req.Body = nil
		req.ContentLength = 0
	}
	return req
}

// offeredBody is a streamed body as one attempt sees it.
type offeredBody struct {
	io.Reader
	done *sync.WaitGroup
}

// Close implements [io.Closer].
func (b offeredBody) Close() error {
	b.done.Done()
	return nil
}

// pacedBody is the client's body, of which so many bytes must come within each
// such time that is spent waiting for them.
type pacedBody struct {
	in      *http.Request
	control *http.ResponseController
	pace    time.Duration
	bytes   int64
	rules   *fields.Rules

	left  time.Duration // of the present time
	need  int64         // of its bytes
	began time.Time
	due   atomic.Int64 // when Read will have waited too long, since began; 0 while it does not
}

func newPacedBody(r *http.Request, control *http.ResponseController, rt *Router) *pacedBody {
	pace, bytes := rt.cfg.ClientTimeout, rt.cfg.bodyBytes()
	return &pacedBody{in: r, control: control, pace: pace, bytes: bytes, rules: &rt.fields, left: pace, need: bytes, began: time.Now()}
}

func (b *pacedBody) Read(buf []byte) (int, error) {
	start := time.Now()
	b.due.Store(int64(start.Add(b.left).Sub(b.began)))
	_ = b.control.SetReadDeadline(start.Add(b.left)) // not every server has it
	n, err := b.in.Body.Read(buf)
	if err == nil || err == io.EOF {
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
