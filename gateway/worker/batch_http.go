package worker

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// BatchHandler returns a handler whose requests are items of b. It finds the key, and refuses, as
// [Worker.Handler] does; decode makes an item of a request, whose context ends when the client
// leaves, and encode answers with the item's Out and Err. An error of decode is answered with 400,
// a body of more than BatchConfig.MaxBytes with 413. Where there is no result, see [Batcher.Do],
// encode is not called: the answer is 500 if the handler of b panicked and 502 otherwise, and says
// that the request may have run.
//
// It is for a server by itself, or for an [http.ServeMux] that also has handlers that hold the key:
// [Worker.Handler] of such a mux begins no execution for it. The mux must be Handler's direct
// argument. If another handler stands in between, each batch has one item, which runs in the
// execution of its request.
func BatchHandler[In, Out any](b *Batcher[In, Out], decode func(*http.Request) (In, error), encode func(http.ResponseWriter, Out, error)) http.Handler {
	bounded := func(rw http.ResponseWriter, r *http.Request) (In, error) {
		if r.Body != nil {
			r.Body = http.MaxBytesReader(rw, r.Body, int64(b.cfg.MaxBytes))
		}
		return decode(r)
	}
	return newSubmitHandler(b, bounded, func(_ *http.Request, _ string, item *Item[In, Out]) (func(http.ResponseWriter), error) {
		return func(rw http.ResponseWriter) { encode(rw, item.Out, item.Err) }, nil
	})
}

func (w *Worker) refuseItem(rw http.ResponseWriter, r *http.Request, err error) {
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		w.counts.own(problem.ItemTooLarge).ServeHTTP(rw, r)
		return
	}
	w.counts.own(problem.BadItem).With(strings.TrimPrefix(err.Error(), "worker: ")).ServeHTTP(rw, r)
}

// answerLost answers a request whose item has no result because of err.
func (w *Worker) answerLost(rw http.ResponseWriter, r *http.Request, err error) {
	_, panicked := errors.AsType[*PanicError](err)
	kind := problem.BatchLost
	switch {
	case panicked, errors.Is(err, errGoexit):
		kind = problem.BatchFailed
	case errors.Is(err, gateway.ErrOwnershipLost):
		kind = problem.OwnershipLost
	}
	w.counts.own(kind).ServeHTTP(rw, r)
}

// submitHandler answers requests that do not hold their key, but are submitted to a batcher.
type submitHandler struct {
	keyedHandler // without a next

	// submit returns what writes the answer, or why the request was not admitted.
	submit func(rw http.ResponseWriter, r *http.Request, key string, how keyed.Asking) (func(http.ResponseWriter), error)
}

// newSubmitHandler returns a handler that submits requests to b. decode makes an item of a request.
// answer returns a function that writes the answer, or why nothing has begun with the item.
func newSubmitHandler[In, Out any](b *Batcher[In, Out], decode func(http.ResponseWriter, *http.Request) (In, error),
	answer func(r *http.Request, key string, item *Item[In, Out]) (write func(http.ResponseWriter), unsent error)) *submitHandler {
	w := b.worker
	w.batches.Store(true)
	submit := func(rw http.ResponseWriter, r *http.Request, key string, how keyed.Asking) (func(http.ResponseWriter), error) {
		in, err := decode(rw, r)
		if err != nil {
			return func(rw http.ResponseWriter) { w.refuseItem(rw, r, err) }, nil
		}
		item, err := b.submit(r.Context(), key, how, in)
		switch {
		case err == nil:
			return answer(r, key, item)
		case !errors.Is(err, gateway.ErrMayHaveRun):
			return nil, err
		case !b.detach && r.Context().Err() == nil: // an app's batches are logged with its address
			w.log.Error("a batch has not been answered", "key", key, "method", r.Method, "path", r.URL.Path, "error", err)
		}
		return func(rw http.ResponseWriter) { w.answerLost(rw, r, err) }, nil
	}
	return &submitHandler{keyedHandler{worker: w, detach: b.detach}, submit}
}

// ServeHTTP implements [http.Handler].
func (h *submitHandler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	key, how, ok := h.worker.open(rw, r, false)
	if !ok {
		return
	}
	over, overLink := rw.(*linkWriter)
	way := "http"
	if overLink {
		way = "link"
	}
	baggage, err := keyed.AddHeld(r.Header.Values("Baggage"), key)
	if h.worker.keys.HeldBy(r.Context(), key) {
		how.Call, baggage, err = true, r.Header.Get("Baggage"), nil // a handler that holds the key has called this one
	}
	if err != nil {
		h.worker.refuse(rw, r, err)
		return
	}
	r = r.WithContext(r.Context())
	r.Header = r.Header.Clone()
	r.Header.Del("Upgrade") // what is handled with others is no tunnel
	h.worker.fields.Clean(r.Header, true)
	r.Header[gateway.HeaderKey], r.Header["Baggage"] = []string{url.PathEscape(key)}, []string{baggage}
	h.worker.observeHTTP(r, &how, way)
	asTiming(how.Trace).joinBatch()
	answer, err := h.submit(rw, r, key, how)
	if err != nil {
		h.worker.refuse(rw, r, err)
		return
	}
	if overLink {
		over.timing = asTiming(how.Trace)
	}
	a := &appWriter{handler: &keyedHandler{worker: h.worker, detach: h.detach, next: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { answer(rw) })}}
	a.ServeHTTP(rw, r)
}

// ServeLink implements [link.Handler].
func (h *submitHandler) ServeLink(w *link.ResponseWriter, r *link.ServerRequest) { submitLink(h, w, r) }
