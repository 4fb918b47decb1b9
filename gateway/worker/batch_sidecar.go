package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// maxBatchAnswer bounds what is read of an app's answer to a batch, in bytes.
const maxBatchAnswer = 16 << 20

// batchSidecar sends the requests that wait for a key to the app as one, see
// App.Batch.
type batchSidecar struct {
	*submitHandler
	sidecar *sidecar
	batcher *Batcher[jsonRequest, jsonAnswer]
	target  string // of the request to the app
	host    string
	path    []string // App.Batch, folded
}

func newBatchSidecar(s *sidecar, app *url.URL) (*batchSidecar, error) {
	w := s.worker
	target := strings.TrimSuffix(app.EscapedPath(), "/") + w.cfg.Batch
	if !strings.HasPrefix(w.cfg.Batch, "/") || !grammar.IsTarget(target) {
		return nil, fmt.Errorf("worker: App.Batch is %q, want a path such as /batch", w.cfg.Batch)
	}
	b := &batchSidecar{sidecar: s, target: target, host: app.Host}
	own, err := foldPath(w.cfg.Batch)
	if b.path = own.segments; err != nil || own.odd || len(own.segments) == 0 {
		return nil, fmt.Errorf("worker: App.Batch is %q, want a path without empty or dot segments, such as /batch", w.cfg.Batch)
	}
	if b.batcher, err = newBatcher(w, w.cfg.Batches, b.run); err != nil {
		return nil, err
	}
	b.batcher.Size = jsonRequest.size
	b.batcher.detach = true
	b.submitHandler = newSubmitHandler(w, b.submit)
	b.submitHandler.detach = true
	return b, nil
}

// takes reports whether a request is one that goes to the app with others.
func (b *batchSidecar) takes(r *http.Request) bool {
	return b != nil && isBatched(r.Method, r.ContentLength, func(name string) []string { return r.Header[name] }) && batches(b.worker.askingOf(r))
}

func (b *batchSidecar) takesLink(r *link.ServerRequest) bool {
	return b != nil && isBatched(r.Method, r.ContentLength, func(name string) []string { return fieldValues(r.Fields, name) }) && batches(b.worker.askingOfLink(r))
}

func batches(how asking, err error) bool { return err == nil && how.batches() }

// isBatched reports whether a request with a body of that length goes to the app with
// others: it is a POST, its body is JSON as it is, and there is nothing behind it.
func isBatched(method string, length int64, values func(string) []string) bool {
	if method != http.MethodPost {
		return false
	}
	types := values("Content-Type")
	if length <= 0 || length > hop.MaxRepeatedBody || len(types) != 1 || values("Content-Encoding") != nil || values("Trailer") != nil || values("Upgrade") != nil {
		return false
	}
	if types[0] == "application/json" {
		return true
	}
	name, parameters, err := mime.ParseMediaType(types[0])
	charset, ok := parameters["charset"]
	return err == nil && name == "application/json" && (!ok || strings.EqualFold(charset, "utf-8"))
}

// submit implements [submitHandler.submit].
func (b *batchSidecar) submit(_ http.ResponseWriter, r *http.Request, key string, how asking) (func(http.ResponseWriter), error) {
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	if err == nil {
		err = checkJSON(body)
	}
	if err != nil {
		return func(rw http.ResponseWriter) { b.sidecar.worker.refuseItem(rw, r, err) }, nil
	}
	item, err := b.batcher.submit(r.Context(), key, how, newJSONRequest(r, body))
	switch {
	case err == nil && item.Err == nil:
		return item.Out.write, nil
	case err == nil:
		if unsent := b.sidecar.unsent(r.Context(), key, item.Err); unsent != nil {
			return nil, unsent
		}
		return func(rw http.ResponseWriter) { b.sidecar.worker.refuseBatched(rw, r, item.Err) }, nil
	case errors.Is(err, ErrMayHaveRun):
		return func(rw http.ResponseWriter) { b.sidecar.worker.answerLost(rw, r, err) }, nil
	}
	return nil, err
}

// refuseBatched answers a request whose batch the app has not answered.
func (w *Worker) refuseBatched(rw http.ResponseWriter, r *http.Request, err error) {
	kind := problem.BatchLost
	if refused, ok := errors.AsType[refusedBatch](err); ok && refused < 500 {
		w.counts.own(problem.BadItem).With(err.Error()).ServeHTTP(rw, r)
		return
	}
	switch {
	case errors.Is(err, ErrTimeout):
		kind = problem.TimedOut
	case errors.Is(err, hop1.ErrFull):
		kind = problem.AppFull
	}
	w.counts.own(kind).ServeHTTP(rw, r)
}

// refusedBatch is the status with which the app has refused an array before it did anything
// that the array asks for.
type refusedBatch int

func (s refusedBatch) Error() string {
	return fmt.Sprintf("the app refused it with status %d", int(s))
}

// run is the handler of the batches: it has the app answer one. The requests of one that the
// app refuses go to it one by one, so that none of them fails the others.
func (b *batchSidecar) run(x execution, items []*Item[jsonRequest, jsonAnswer]) error {
	err := b.send(x, x.run.token, items)
	refused, ok := errors.AsType[refusedBatch](err)
	if !ok || len(items) == 1 {
		return err
	}
	b.worker.log.Warn("the app refused a batch: it gets the requests one by one", "app", b.sidecar.app, "path", b.target, "key", x.key, "requests", len(items), "status", int(refused))
	part := x.run.part
	first, reserved := part.table.Reserve(len(items))
	part.minted(max(first+int64(reserved)-1, 0))
	for i, item := range items {
		if i == reserved || x.Context().Err() != nil || !b.worker.admits(time.Now()) {
			err = fmt.Errorf("%w: the worker may begin nothing more for the key", hop1.ErrNotStarted)
		}
		if !errors.Is(err, hop1.ErrNotStarted) {
			err = b.send(x, first+int64(i), items[i:i+1])
		}
		item.Err = cmp.Or(err, item.Err)
	}
	return nil
}

// send has the app answer items as one batch, with that token.
func (b *batchSidecar) send(x execution, token int64, items []*Item[jsonRequest, jsonAnswer]) error {
	err := b.exchange(x, token, items)
	if err != nil && !errors.Is(err, hop1.ErrNotStarted) && context.Cause(x.Context()) == nil {
		b.worker.log.Warn("the app did not answer a batch", "app", b.sidecar.app, "path", b.target, "key", x.key, "requests", len(items), "error", err)
	}
	return err
}

func (b *batchSidecar) exchange(x execution, token int64, items []*Item[jsonRequest, jsonAnswer]) error {
	baggage, err := addHeld(nil, x.key)
	if err != nil {
		return err
	}
	body := appendBatch(nil, items)
	e := b.sidecar.pool.Begin()
	defer e.Close() // with the key held, see [hop1.Pool.Grace]
	e.Method = http.MethodPost
	e.Message = http1.AppendRequest(e.Message, e.Method, b.target, b.host)
	e.Message = http1.AppendField(e.Message, "Content-Type", "application/json")
	e.Message = http1.AppendField(e.Message, "Keyway-Batch", strconv.Itoa(len(items)))
	e.Message = appendAppFields(e.Message, x, token, baggage)
	e.Message = append(append(http1.AppendRequestLength(e.Message, e.Method, int64(len(body))), "\r\n"...), body...)
	err = b.sidecar.send(x.Context(), e)
	for err == nil && e.Status < 200 {
		err = e.Continue()
	}
	if err != nil {
		return err
	}
	refused := refuses(e)
	b.worker.checkClaimOf(x, e.Fields)
	answer, err := readAnswer(e)
	switch {
	case err != nil:
		return err
	case refused:
		return refusedBatch(e.Status)
	case e.Status != http.StatusOK:
		return fmt.Errorf("worker: the app answered a batch with status %d, want 200: %.200q", e.Status, answer)
	}
	answers, errs, err := decodeAnswers(answer, len(items))
	if err != nil {
		return err
	}
	for i, item := range items {
		if item.Out, item.Err = answers[i], errs[i]; item.Err != nil {
			b.worker.log.Warn("the app's answer to a request of a batch is none", "app", b.sidecar.app, "path", b.target, "key", x.key, "error", item.Err)
		}
	}
	return nil
}

// refuses reports whether the app says with its answer that it has done nothing.
func refuses(e *hop1.Exchange) bool {
	switch e.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return true
	}
	return e.Status >= 400 && slices.ContainsFunc(e.Fields, func(f http1.Field) bool {
		return strings.EqualFold(grammar.Text(f.Name), "Keyway-Batch") && grammar.Text(f.Value) == "undone"
	})
}

func readAnswer(e *hop1.Exchange) (answer []byte, err error) {
	for {
		piece, err := e.Next()
		switch {
		case err == io.EOF:
			return answer, nil
		case err != nil:
			return nil, err
		case len(answer)+len(piece) > maxBatchAnswer:
			return nil, fmt.Errorf("worker: the app's answer to a batch has more than %d bytes", maxBatchAnswer)
		}
		answer = append(answer, piece...)
	}
}
