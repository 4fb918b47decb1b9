package router

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/paced"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/keysource"
)

// incoming is a request that net/http has read, and its body. The request's goroutine either keeps
// all of the body first, or reads it with the first attempt (small), or streams it to the worker.
// For key sources it is the request ([keysource.Keyed]); a body that has the key is kept.
type incoming struct {
	*http.Request
	keysource.Keyed // of Request; KeyClient and KeyBody are the router's own
	writer          *clientWriter
	limit           int64      // bytes that the body may have: one of gRPC as many as its route says
	paced           *pacedBody // nil if there is no body, or nobody has read of it
	stream          bool       // it goes to a worker as it comes
	kept            send.Kept  // all of it; nil if it is small or streamed
}

// takesCalls reports whether the operator of the partition's worker has configured it for gRPC.
func (rt *Router) takesCalls(partition int) bool {
	owner, _ := rt.cfg.Members.View().Owner(partition)
	return owner.GRPC
}

// hasBody reports whether the client sends a body, which may turn out to be empty.
func (b *incoming) hasBody() bool {
	return b.Body != nil && b.Body != http.NoBody && b.ContentLength != 0
}

// KeyClient implements [keysource.Keyed].
func (b *incoming) KeyClient() string {
	return b.writer.source.keyClient(b.writer.router, b.Header[forwardedFor])
}

// KeyBody implements [keysource.Keyed]. It waits for the client as for any body, and keeps it as any.
func (b *incoming) KeyBody() ([]byte, error) {
	switch {
	case !b.hasBody():
		return nil, nil
	case b.ContentLength > keysource.MaxBody:
		return nil, keysource.ErrBody
	case b.kept.Spool == nil:
		b.paced, b.limit = newPacedBody(b.writer, b.Request, new(fields.Rules)), keysource.MaxBody
		switch err := b.keep(nil); {
		case errors.Is(err, send.ErrBodyTooLarge):
			return nil, keysource.ErrBody
		case err != nil:
			return nil, err
		}
	}
	return b.kept.Bytes()
}

// asItComes returns the body as the client sends it, up to its limit.
func (b *incoming) asItComes() io.Reader { return &send.Limited{Reader: b.paced, Left: b.limit} }

// beginBody reads the body, unless it is small or streamed. Its error is that of keep.
func (b *incoming) beginBody(upgrade bool) error {
	n := b.ContentLength
	if b.kept.Spool != nil {
		n = b.kept.Len()
	}
	switch {
	case b.paced == nil:
		return nil
	case n > b.limit:
		return send.ErrBodyTooLarge
	case b.kept.Spool != nil, b.stream, n >= 0 && n <= hop.MaxRepeatedBody && len(b.Trailer) == 0 && !upgrade:
		return nil
	}
	return b.keep(nil)
}

// keep reads the whole body, which begins with ahead. Errors are those of [send.Keep].
func (b *incoming) keep(ahead []byte) (err error) {
	account := b.writer.source.account(b.writer.router, b.Header[forwardedFor])
	b.kept, err = send.Keep(account, ahead, &send.Body{Reader: &send.Limited{Reader: b.paced, Left: b.limit - int64(len(ahead))}})
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
	pace   *paced.Body // bounds the wait for it; nil for as long as it takes
	in     *http.Request
	rules  *fields.Rules
	counts *record // its bytes; nil for nothing
}

func newPacedBody(w *clientWriter, r *http.Request, rules *fields.Rules) *pacedBody {
	cfg := &w.router.cfg
	pace := paced.NewBody(r.Body, w.control, cfg.ClientTimeout, cfg.bodyBytes())
	return &pacedBody{Reader: pace, pace: pace, in: r, rules: rules}
}

// newPatientBody returns the body of a call that has no least rate: it holds no key, its
// client may be silent while it takes part, and its connection shows that it is there.
func newPatientBody(w *clientWriter, r *http.Request, rules *fields.Rules) *pacedBody {
	if h2w, ok := w.ResponseWriter.(*h2Writer); ok {
		h2w.stream.Wait()
	}
	_ = w.control.SetReadDeadline(time.Time{}) // of a server that gives each request one
	return &pacedBody{Reader: r.Body, in: r, rules: rules}
}

func (b *pacedBody) Read(buf []byte) (int, error) {
	n, err := b.Reader.Read(buf)
	if b.counts != nil {
		b.counts.countReceived(int64(n))
	}
	if err == io.EOF {
		b.rules.StripTrailer(b.in.Trailer)
	}
	return n, err
}

// late reports whether the client has sent too little for too long. b may be nil.
func (b *pacedBody) late() bool { return b != nil && b.pace != nil && b.pace.Late() }
