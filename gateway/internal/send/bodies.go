package send

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/spool"
)

// Body counts the client's body, and remembers what went wrong with reading it.
type Body struct {
	Reader   io.Reader
	Received atomic.Int64 // bytes
	Ended    atomic.Bool  // at its end
	Failed   atomic.Pointer[error]
}

func (b *Body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.Received.Add(int64(n))
	switch err {
	case nil:
	case io.EOF:
		b.Ended.Store(true)
	default:
		b.Failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Kept is a body that was read to its end before any worker was asked for the key. Each attempt
// sends it from its start.
type Kept struct{ *spool.Spool }

// Open is a [link.Request]'s Open.
func (k Kept) Open() (io.ReadCloser, error) { return k.NewReader(), nil }

// Keep reads a whole body, which begins with ahead. Its error wraps ErrClientBody, ErrBodyTooLarge
// or ErrBodiesFull. The spool must be closed in any case.
func Keep(of spool.Account, ahead []byte, body *Body) (Kept, error) {
	k := Kept{of.NewSpool()}
	_, err := k.ReadFrom(io.MultiReader(bytes.NewReader(ahead), body))
	switch failed := body.Failed.Load(); {
	case failed != nil && errors.Is(*failed, ErrBodyTooLarge):
		return k, ErrBodyTooLarge
	case failed != nil:
		return k, fmt.Errorf("%w: %w", ErrClientBody, *failed)
	case errors.Is(err, spool.ErrTooLong):
		return k, ErrBodyTooLarge
	case err != nil:
		return k, fmt.Errorf("%w: %w", ErrBodiesFull, err)
	}
	k.CloseWrite(nil)
	return k, nil
}

// Payload is a body on its way to a worker in net/http's form: kept whole, or
// streamed to the first worker that admits the request.
type Payload struct {
	Open   func() (io.ReadCloser, error) // nil if the body is streamed, or there is none
	Length int64                         // of what open returns, -1 if that is not known
	Stream Body                          // has no reader unless the body is streamed
	asked  bool                          // a worker has asked for stream
	done   sync.WaitGroup                // of attempts that may read stream
}

// attach gives a request to a worker its body. One that is not small is not read before
// the worker asks for it.
func (p *Payload) attach(req *http.Request) (*http.Request, error) {
	switch {
	case p.Stream.Reader != nil:
		p.done.Add(1)
		req.Body = offeredBody{&p.Stream, &p.done}
		req.Header.Set("Expect", "100-continue")
		asked := &httptrace.ClientTrace{Got100Continue: func() { p.asked = true }}
		return req.WithContext(httptrace.WithClientTrace(req.Context(), asked)), nil
	case p.Open == nil:
		req.Body, req.ContentLength, req.TransferEncoding = nil, 0, nil
		return req, nil
	}
	body, err := p.Open()
	if err != nil {
		return nil, err
	}
	req.Body, req.ContentLength, req.TransferEncoding = body, p.Length, nil
	if len(req.Trailer) > 0 {
		req.ContentLength = -1
	}
	if p.Length < 0 || p.Length > hop.MaxRepeatedBody {
		req.Header.Set("Expect", "100-continue")
	}
	return req, nil
}

// offeredBody is a streamed body as one attempt sees it.
type offeredBody struct {
	io.Reader
	done *sync.WaitGroup
}

func (b offeredBody) Close() error {
	b.done.Done()
	return nil
}

// Limited is a body of at most Left more bytes. The error of a longer one is ErrBodyTooLarge.
type Limited struct {
	io.Reader
	Left int64
}

func (b *Limited) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.Left -= int64(n); b.Left < 0 {
		return n, ErrBodyTooLarge
	}
	return n, err
}
