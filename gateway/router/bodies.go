package router

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

// keptWhole is a body that has been read to its end before anybody was asked for the
// key, and is sent from its start to each worker that is tried.
type keptWhole struct{ *spool.Spool }

// open is a [link.Request]'s Open.
func (k keptWhole) open() (io.ReadCloser, error) { return k.NewReader(), nil }

// keepWhole reads a body, of which ahead has been read already. The error wraps
// errClientBody, errBodyTooLarge or errBodiesFull; the spool has to be closed then too.
func keepWhole(spools *spool.Pool, of account, ahead []byte, body *clientBody) (keptWhole, error) {
	k := keptWhole{spools.New(of)}
	_, err := k.ReadFrom(io.MultiReader(bytes.NewReader(ahead), body))
	switch failed := body.failed.Load(); {
	case failed != nil && errors.Is(*failed, errBodyTooLarge):
		return k, errBodyTooLarge
	case failed != nil:
		return k, fmt.Errorf("%w: %w", errClientBody, *failed)
	case errors.Is(err, spool.ErrTooLong):
		return k, errBodyTooLarge
	case err != nil:
		return k, fmt.Errorf("%w: %w", errBodiesFull, err)
	}
	k.CloseWrite(nil)
	return k, nil
}

// payload is a body on its way to a worker in net/http's form: kept whole, or
// streamed to the first worker that admits the request.
type payload struct {
	open   func() (io.ReadCloser, error) // nil if the body is streamed, or there is none
	length int64                         // of what open returns, -1 if that is not known
	stream clientBody                    // has no reader unless the body is streamed
	asked  bool                          // a worker has asked for stream
	done   sync.WaitGroup                // of attempts that may read stream
}

// attach gives a request to a worker its body. One that is not small is not read before
// the worker asks for it.
func (p *payload) attach(req *http.Request) (*http.Request, error) {
	switch {
	case p.stream.reader != nil:
		p.done.Add(1)
		req.Body = offeredBody{&p.stream, &p.done}
		req.Header.Set("Expect", "100-continue")
		asked := &httptrace.ClientTrace{Got100Continue: func() { p.asked = true }}
		return req.WithContext(httptrace.WithClientTrace(req.Context(), asked)), nil
	case p.open == nil:
		req.Body, req.ContentLength, req.TransferEncoding = nil, 0, nil
		return req, nil
	}
	body, err := p.open()
	if err != nil {
		return nil, err
	}
	req.Body, req.ContentLength, req.TransferEncoding = body, p.length, nil
	if len(req.Trailer) > 0 {
		req.ContentLength = -1
	}
	if p.length < 0 || p.length > hop.MaxRepeatedBody {
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
