package router

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/paced"
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

// incoming is the body of a client's request that net/http has read the head of.
type incoming struct {
	router *Router
	in     *http.Request
	source *source
	limit  int64      // bytes that it may have: one of gRPC as many as its route says
	paced  *pacedBody // nil if there is no body
	stream bool       // it goes to a worker as it comes
	kept   keptWhole  // all of it; nil if it is small or streamed
}

// takesCalls reports whether the operator of the partition's worker has configured it for gRPC.
func (rt *Router) takesCalls(partition int) bool {
	owner, _ := rt.cfg.Members.View().Owner(partition)
	return owner.GRPC
}

// asItComes returns the body as the client sends it, up to its limit.
func (b *incoming) asItComes() io.Reader { return &limitedBody{b.paced, b.limit} }

// small reports whether the body is to be read with the first attempt.
func (b *incoming) small() bool { return b.paced != nil && !b.stream && b.kept.Spool == nil }

// begin reads the body, unless it is small or streamed. Its error is that of keep.
func (b *incoming) begin(upgrade bool) error {
	n := b.in.ContentLength
	switch {
	case b.paced == nil:
		return nil
	case n > b.limit:
		return errBodyTooLarge
	case b.stream, n >= 0 && n <= hop.MaxRepeatedBody && len(b.in.Trailer) == 0 && !upgrade:
		return nil
	}
	return b.keep(nil)
}

// keep reads the body, of which ahead has been read already. Its error is that of
// keepWhole.
func (b *incoming) keep(ahead []byte) (err error) {
	rt := b.router
	forwarded := append(b.in.Header.Values(forwardedFor), addrOf(b.source.addr))
	of := account{&rt.budget, b.source.originID(rt, strings.Join(forwarded, ","))}
	b.kept, err = keepWhole(rt.budget.spools, of, ahead, &clientBody{reader: &limitedBody{b.paced, b.limit - int64(len(ahead))}})
	return err
}

// limitedBody is a body that may have so many bytes yet.
type limitedBody struct {
	io.Reader
	left int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, errBodyTooLarge
	}
	return n, err
}

func (b *incoming) end() {
	if b.kept.Spool != nil {
		b.kept.Close()
	}
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

// pacedBody is the client's body, whose trailers are filtered at its end.
type pacedBody struct {
	io.Reader
	pace  *paced.Body // bounds the wait for it; nil for as long as it takes
	in    *http.Request
	rules *fields.Rules

	received *atomic.Int64 // counts its bytes; nil for nothing
	observed *observation  // so does this
}

func newPacedBody(r *http.Request, control *http.ResponseController, rt *Router, rules *fields.Rules) *pacedBody {
	pace := paced.NewBody(r.Body, control, rt.cfg.ClientTimeout, rt.cfg.bodyBytes())
	return &pacedBody{Reader: pace, pace: pace, in: r, rules: rules}
}

// newPatientBody returns the body of a call that has no least rate: it holds no key, its
// client may be silent while it takes part, and its connection shows that it is there.
func newPatientBody(r *http.Request, w *clientWriter, rules *fields.Rules) *pacedBody {
	if h2w, ok := w.ResponseWriter.(*h2Writer); ok {
		h2w.stream.Wait()
	}
	_ = w.control.SetReadDeadline(time.Time{}) // of a server that gives each request one
	return &pacedBody{Reader: r.Body, in: r, rules: rules}
}

func (b *pacedBody) Read(buf []byte) (int, error) {
	n, err := b.Reader.Read(buf)
	if b.received != nil {
		b.received.Add(int64(n))
	}
	if b.observed != nil {
		b.observed.received.Add(int64(n))
	}
	if err == io.EOF {
		b.rules.StripTrailer(b.in.Trailer)
	}
	return n, err
}

// late reports whether the client has sent too little for too long. b may be nil.
func (b *pacedBody) late() bool { return b != nil && b.pace != nil && b.pace.Late() }
