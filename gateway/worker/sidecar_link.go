package worker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/requestlog"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// ServeLink implements [link.Handler].
func (s *sidecar) ServeLink(w *link.ResponseWriter, r *link.ServerRequest) {
	if !s.root || !isSimple(r) {
		s.keyedHandler.ServeLink(w, r)
		return
	}
	x, baggage, ok := s.admitLink(w, r, fieldValues(r.Fields, "Baggage"))
	if !ok {
		return
	}
	defer s.worker.release(x)
	var body []byte
	if r.ContentLength > 0 {
		body = make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, body); err != nil {
			w.Abort() // the app has seen nothing
			return
		}
	}
	e := s.pool.Begin()
	defer e.Close()
	e.Method = r.Method
	e.Message = append(appMessage(e.Message, r, &s.worker.fields, x, baggage), body...)
	err := e.Do(x.Context())
	for err == nil && e.Status < 200 {
		if e.Status != http.StatusContinue {
			_ = w.WriteInterim(e.Status, publicFields(nil, e.Fields)) // should it fail, so does the answer
		}
		err = e.Continue()
	}
	if err != nil {
		link.ServeHTTP(x.Context(), w, r, r.Fields.HeaderFor(0), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			s.noAnswer(rw, r, err)
		}))
		return
	}
	answerFromApp(w, e)
}

// isSimple reports whether a request is of a form that needs nothing of
// net/http: a small body of known length, no trailers.
func isSimple(r *link.ServerRequest) bool {
	return r.ContentLength >= 0 && r.ContentLength <= hop.MaxRepeatedBody && strings.HasPrefix(r.Target, "/") &&
		http1.SimpleRequest(r.Method, r.Target, r.Host) && fieldValues(r.Fields, "Trailer") == nil
}

func fieldValues(f link.Fields, name string) (values []string) {
	for n, v := range f.All() {
		if len(n) == len(name) && strings.EqualFold(n, name) {
			values = append(values, v)
		}
	}
	return values
}

// appMessage appends the head of the request as the app gets to see it.
func appMessage(b []byte, r *link.ServerRequest, rules *fields.Rules, x Execution, baggage string) []byte {
	b = http1.AppendRequest(b, r.Method, r.Target, r.Host)
	for name, value := range r.Fields.All() {
		if rules.Drops(fields.KindOf(name), name) || strings.EqualFold(name, "Baggage") {
			continue
		}
		b = http1.AppendField(b, name, value)
	}
	for i, value := range appValues(x, baggage) {
		b = http1.AppendField(b, appNames[i], value)
	}
	return append(http1.AppendRequestLength(b, r.Method, r.ContentLength), "\r\n"...)
}

// answerFromApp passes the app's answer on. When the client has gone it still
// waits for the end of it.
func answerFromApp(w *link.ResponseWriter, e *hop1.Exchange) {
	var memory [512]byte
	gone := w.WriteHead(e.Status, e.ContentLength, publicFields(memory[:0], e.Fields)) != nil
	for {
		if n, last := e.Buffered(); n == 0 && !last && !gone {
			gone = w.Flush() != nil
		}
		piece, err := e.Next()
		switch {
		case err == io.EOF:
			w.SetTrailer(publicTrailer(e.Trailer()))
			return
		case err != nil:
			w.Abort()
			return
		case !gone:
			_, err := w.Write(piece)
			gone = err != nil
		}
	}
}

// publicFields appends what goes on to the client of the fields of an app's
// answer.
func publicFields(list link.Fields, app []http1.Field) link.Fields {
	for i := range app {
		name := http.CanonicalHeaderKey(grammar.Text(app[i].Name))
		if value, ok := fields.ToClient(name, grammar.Text(app[i].Value)); ok {
			list = link.AppendField(list, name, value)
		}
	}
	return list
}

// publicTrailer returns what goes on to the client of an app's trailers.
func publicTrailer(trailer []http1.Field) (list link.Fields) {
	for _, f := range trailer {
		if fields.IsTrailer(grammar.Text(f.Name)) {
			list = link.AppendField(list, f.Name, f.Value)
		}
	}
	return list
}

// noAnswer answers a request to which the app has not. Where the app is, and what
// went wrong there, is for the log only.
func (s *sidecar) noAnswer(rw http.ResponseWriter, r *http.Request, err error) {
	public := "worker: the app did not answer"
	if cause := context.Cause(r.Context()); errors.Is(cause, ErrOwnershipLost) {
		err, public = cause, ErrOwnershipLost.Error()
	}
	status := http.StatusBadGateway
	if errors.Is(err, hop1.ErrFull) {
		status, public = http.StatusServiceUnavailable, "worker: the app has as many requests as it may have, try again"
		rw.Header().Set("Retry-After", "1")
	}
	warning := "the app did not answer"
	if errors.Is(err, hop1.ErrBrokeOff) {
		warning = ""
	}
	requestlog.Failure(r.Context(), s.worker.log, warning, "app", s.app, "method", r.Method, "path", r.URL.Path, "error", err)
	http.Error(rw, public, status)
}
