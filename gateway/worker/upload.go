package worker

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/paced"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/spool"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/requestlog"
)

// How much a client of a worker's own port has to send of a body within each such time.
const (
	uploadTime  = time.Minute
	uploadBytes = 60 << 10
)

func pacedBody(rw http.ResponseWriter, r *http.Request) *paced.Body {
	return paced.NewBody(r.Body, http.NewResponseController(rw), uploadTime, uploadBytes)
}

// pacedKey is a request whose body is looked into for its key only as long as the client sends it.
type pacedKey struct {
	keysource.Keyed
	rw http.ResponseWriter
	r  *http.Request
}

// KeyBody implements [keysource.Keyed].
func (k pacedKey) KeyBody() ([]byte, error) {
	if k.r.Body != nil && k.r.Body != http.NoBody {
		k.r.Body = struct {
			io.Reader
			io.Closer
		}{pacedBody(k.rw, k.r), k.r.Body}
	}
	return k.Keyed.KeyBody()
}

// keepBody reads a request's body completely before its key is asked for, and returns the request
// with it. It returns nil if it has answered r instead. gRPC calls to an app that takes them stream
// their bodies. A body that is not small is read only once the worker owns the key. end frees the
// body's memory and file.
func (w *Worker) keepBody(rw http.ResponseWriter, r *http.Request, key string, how keyed.Asking) (whole *http.Request, end func()) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return r, func() {}
	}
	body := pacedBody(rw, r)
	if w.cfg.GRPC && hop.IsCall(r.ProtoMajor == 2, r.Header.Get("Content-Type")) {
		whole = r.WithContext(r.Context())
		whole.Body = struct {
			io.Reader
			io.Closer
		}{body, r.Body}
		return whole, body.End
	}
	if r.ContentLength > w.cfg.MaxBody {
		w.refuseBody(rw, r, spool.ErrTooLong, false)
		return nil, nil
	}
	if p := w.keys.Of(key); !how.Unkeyed() && (r.ContentLength < 0 || r.ContentLength > hop.MaxRepeatedBody) {
		if err := p.AwaitOpen(r.Context(), key, how); err != nil {
			w.refuse(rw, r, err)
			return nil, nil
		}
	}
	kept := w.bodies.Of(0).NewSpool()
	if _, err := kept.ReadFrom(body); err != nil {
		kept.Close()
		w.refuseBody(rw, r, err, body.Late())
		return nil, nil
	}
	kept.CloseWrite(nil)
	reader := kept.NewReader()
	whole = r.WithContext(r.Context())
	if whole.Body = reader; len(r.Trailer) == 0 { // HTTP/1.1 has trailers only with a length that is not known
		whole.ContentLength, whole.TransferEncoding = kept.Len(), nil
	}
	return whole, func() {
		reader.Close()
		kept.Close()
	}
}

// refuseBody answers a request whose body could not be read whole.
func (w *Worker) refuseBody(rw http.ResponseWriter, r *http.Request, err error, late bool) {
	kind, warning := problem.BodyBroken, ""
	switch {
	case errors.Is(err, spool.ErrTooLong):
		kind = problem.BodyTooLarge
	case errors.Is(err, spool.ErrFull):
		kind = problem.BodiesFull
		if _, disk := errors.AsType[*fs.PathError](err); disk {
			warning = "a request's body cannot be written to a temporary file"
		}
	case late, errors.Is(err, os.ErrDeadlineExceeded):
		kind = problem.BodyTooSlow
	}
	requestlog.Failure(r.Context(), w.log, warning, "method", r.Method, "error", err)
	rw.Header().Set("Connection", "close")
	w.counts.own(kind).ServeHTTP(rw, r)
}
