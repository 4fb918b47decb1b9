package router

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/paced"
	"github.com/keyway-go/keyway/gateway/internal/send"
)

// incoming is the body of a client's request whose head net/http has read. The request's goroutine
// either keeps all of it first, or reads it with the first attempt (small), or streams it to the
// worker.
type incoming struct {
	router *Router
	in     *http.Request
	source *source
	limit  int64      // bytes that it may have: one of gRPC as many as its route says
	paced  *pacedBody // nil if there is no body
	stream bool       // it goes to a worker as it comes
	kept   send.Kept  // all of it; nil if it is small or streamed
}

// takesCalls reports whether the operator of the partition's worker has configured it for gRPC.
func (rt *Router) takesCalls(partition int) bool {
	owner, _ := rt.cfg.Members.View().Owner(partition)
	return owner.GRPC
}

// asItComes returns the body as the client sends it, up to its limit.
func (b *incoming) asItComes() io.Reader { return &send.Limited{Reader: b.paced, Left: b.limit} }

// small reports whether the body is read with the first attempt.
func (b *incoming) small() bool { return b.paced != nil && !b.stream && b.kept.Spool == nil }

// beginBody reads the body, unless it is small or streamed. Its error is that of keep.
func (b *incoming) beginBody(upgrade bool) error {
	n := b.in.ContentLength
	if b.kept.Spool != nil {
		n = b.kept.Len()
	}
	switch {
	case b.paced == nil:
		return nil
	case n > b.limit:
		return send.ErrBodyTooLarge
	case b.kept.Spool != nil, b.stream, n >= 0 && n <= hop.MaxRepeatedBody && len(b.in.Trailer) == 0 && !upgrade:
		return nil
	}
	return b.keep(nil)
}

// keep reads the whole body, which begins with ahead. Errors are those of [send.Keep].
func (b *incoming) keep(ahead []byte) (err error) {
	b.kept, err = send.Keep(b.source.account(b.router, b.in.Header[forwardedFor]), ahead, &send.Body{Reader: &send.Limited{Reader: b.paced, Left: b.limit - int64(len(ahead))}})
	return err
}

func (b *incoming) endBody() {
	if b.paced != nil && b.paced.pace != nil {
		b.paced.pace.End()
	}
	if b.kept.Spool != nil {
		b.kept.Close()
	}
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
