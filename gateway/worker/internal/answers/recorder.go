package answers

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/gateway/internal/spool"
	"github.com/keyway-go/keyway/internal/wire/grammar"
)

var errClientLeft = errors.New("worker: the client has left")

// Recorder passes an answer on, and keeps it for equal requests. The handler's goroutine owns it
// until End; readers then read body, which does not change.
type Recorder struct {
	http.ResponseWriter
	method string
	status int         // 0 until it is known
	head   http.Header // as it was then
	body   *spool.Spool
	failed bool // the body is not whole in body
	gone   bool // the client takes nothing more
}

// NewRecorder returns a recorder of the answer to a request of that method. It has to be closed.
func (k *Room) NewRecorder(rw http.ResponseWriter, method string) *Recorder {
	return &Recorder{ResponseWriter: rw, method: method, body: k.pool.Of(0).NewSpool()}
}

// WriteHeader implements [http.ResponseWriter].
func (r *Recorder) WriteHeader(status int) {
	r.NoteStatus(status)
	r.ResponseWriter.WriteHeader(status)
}

// NoteStatus records the head of the answer, if it is final and the first.
func (r *Recorder) NoteStatus(status int) {
	if r.status == 0 && status >= 200 {
		r.status, r.head = status, cloned(r.Header())
	}
}

// Write implements [io.Writer]. It continues for a client that has left, as long as the answer is
// kept.
func (r *Recorder) Write(p []byte) (n int, err error) {
	r.NoteStatus(http.StatusOK)
	if !r.gone {
		n, err = r.ResponseWriter.Write(p)
		if errors.Is(err, http.ErrBodyNotAllowed) || errors.Is(err, http.ErrContentLength) {
			return n, err
		}
		r.gone = err != nil
	}
	if !r.failed {
		_, full := r.body.Write(p)
		r.failed = full != nil
	}
	if r.failed && r.gone {
		return n, cmp.Or(err, errClientLeft)
	}
	return len(p), nil
}

// FlushError is for [http.ResponseController].
func (r *Recorder) FlushError() error {
	r.NoteStatus(http.StatusOK)
	err := http.NewResponseController(r.ResponseWriter).Flush()
	if r.gone = r.gone || err != nil && !errors.Is(err, http.ErrNotSupported); r.gone && !r.failed {
		return nil
	}
	return err
}

// Unwrap lets [http.ResponseController] reach the server's writer.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// End completes the kept answer.
func (r *Recorder) End() { r.body.CloseWrite(nil) }

// Close frees the kept answer once its present readers are done.
func (r *Recorder) Close() { r.body.Close() }

// Shareable reports whether the answer is one for equal requests: it is whole, and a
// cache that is not its client's own could use it for them (RFC 9111, sections 3 and 4).
func (r *Recorder) Shareable() bool {
	switch s := r.status; {
	case r.failed, s < 200, s >= 400 && s != http.StatusNotFound && s != http.StatusGone:
		return false
	case r.head["Set-Cookie"] != nil, r.head["Trailer"] != nil:
		return false
	}
	for name := range r.Header() {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return false
		}
	}
	for directive := range grammar.Items(r.head["Cache-Control"]) {
		name, _, _ := strings.Cut(strings.ToLower(directive), "=")
		if name == "private" || name == "no-store" {
			return false
		}
	}
	for name := range grammar.Items(r.head["Vary"]) {
		if name == "*" || slices.ContainsFunc(OwnFields, func(own string) bool { return strings.EqualFold(own, name) }) {
			return false
		}
	}
	return r.whole()
}

func (r *Recorder) whole() bool {
	length := r.head["Content-Length"]
	if len(length) == 0 || r.method == http.MethodHead || grammar.HasNoBody(r.status) {
		return true
	}
	n, ok := grammar.ParseLength(length[0])
	return ok && n == r.body.Len()
}

// Share returns the answer, which has ended, for one more request.
func (r *Recorder) Share() *Shared {
	return &Shared{r.status, r.head, r.body.NewReader()}
}

// Shared is the answer to a request for one equal to it.
type Shared struct {
	status int
	head   http.Header // of all that share it
	body   *spool.Reader
}

// ServeHTTP implements [http.Handler].
func (a *Shared) ServeHTTP(rw http.ResponseWriter, _ *http.Request) {
	defer a.body.Close()
	maps.Copy(rw.Header(), cloned(a.head))
	rw.WriteHeader(a.status)
	if grammar.HasNoBody(a.status) {
		return
	}
	if _, err := io.Copy(rw, a.body); err != nil {
		panic(http.ErrAbortHandler) // the client must not take what it got for the whole
	}
}

// Close ends the use of an answer that is not served.
func (a *Shared) Close() { a.body.Close() }

func cloned(h http.Header) http.Header {
	out := make(http.Header, len(h))
	for name, values := range h {
		var list []string
		for _, v := range values {
			list = append(list, strings.Clone(v))
		}
		out[strings.Clone(name)] = list
	}
	return out
}

// OwnFields are the fields that may differ between equal requests: they name the sender, proxies on
// the way, and traces.
var OwnFields = []string{"Forwarded", "Via", "X-Forwarded-For", "X-Real-Ip", "Traceparent", "Tracestate", "X-Request-Id"}
