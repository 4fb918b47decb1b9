package sidecar

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

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/http1"
)

// maxBatchAnswer bounds what is read of an app's answer to a batch, in bytes.
const maxBatchAnswer = 16 << 20

// batches sends the requests that wait for a key to the app as one, see worker.App.Batch.
type batches struct {
	sidecar *sidecar
	target  string // of the request to the app
	host    string
}

// forwardBatches has a sidecar send batches, and returns their path.
func forwardBatches(s *sidecar, w *worker.Worker, app *url.URL) (ownPath, error) {
	cfg := w.Config()
	target := strings.TrimSuffix(app.EscapedPath(), "/") + cfg.Batch
	if !strings.HasPrefix(cfg.Batch, "/") || !grammar.IsTarget(target) {
		return nil, fmt.Errorf("worker: App.Batch is %q, want a path such as /batch", cfg.Batch)
	}
	b := &batches{sidecar: s, target: target, host: app.Host}
	own, err := foldPath(cfg.Batch)
	if err != nil || own.odd || len(own.segments) == 0 {
		return nil, fmt.Errorf("worker: App.Batch is %q, want a path without empty or dot segments, such as /batch", cfg.Batch)
	}
	batcher, err := worker.NewBatcher(w, cfg.Batches, b.run)
	if err != nil {
		return nil, err
	}
	batcher.Size = jsonRequest.size
	worker.ForwardBatches(s.Forwarder, batcher, isBatched, decodeItem, b.answer)
	return own.segments, nil
}

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

// decodeItem makes an item of a request that [isBatched].
func decodeItem(r *http.Request) (jsonRequest, error) {
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return jsonRequest{}, err
	}
	return newJSONRequest(r, body), checkJSON(body)
}

// answer returns what answers the request of an item, or why the app has not begun with it.
func (b *batches) answer(r *http.Request, key string, item *worker.Item[jsonRequest, jsonAnswer]) (write func(http.ResponseWriter), unsent error) {
	if item.Err == nil {
		return item.Out.write, nil
	}
	if unsent := b.sidecar.unsent(r.Context(), key, item.Err); unsent != nil {
		return nil, unsent
	}
	return func(rw http.ResponseWriter) { b.refuse(rw, r, item.Err) }, nil
}

// refuse answers a request whose batch the app has not answered.
func (b *batches) refuse(rw http.ResponseWriter, r *http.Request, err error) {
	kind := problem.BatchLost
	if refused, ok := errors.AsType[refusedBatch](err); ok && refused < 500 {
		b.sidecar.Own(problem.BadItem).With(err.Error()).ServeHTTP(rw, r)
		return
	}
	switch {
	case errors.Is(err, gateway.ErrTimeout):
		kind = problem.TimedOut
	case errors.Is(err, hop1.ErrFull):
		kind = problem.AppFull
	}
	b.sidecar.Own(kind).ServeHTTP(rw, r)
}

// refusedBatch is the status with which the app refused an array before it acted on any item of it.
type refusedBatch int

func (s refusedBatch) Error() string {
	return fmt.Sprintf("the app refused it with status %d", int(s))
}

// run is the handler of the batches: it makes the app answer one. If the app refuses a batch, its
// requests go to the app one by one, so that none of them fails the others.
func (b *batches) run(e gateway.Execution, items []*worker.Item[jsonRequest, jsonAnswer]) error {
	x := b.sidecar.Held(e.Context())
	err := b.send(x, x.Token(), items)
	refused, ok := errors.AsType[refusedBatch](err)
	if !ok || len(items) == 1 {
		return err
	}
	b.sidecar.Logger().Warn("the app refused a batch: it gets the requests one by one", "app", b.sidecar.app, "path", b.target, "key", x.Key(), "requests", len(items), "status", int(refused))
	first, reserved := x.Reserve(len(items))
	for i, item := range items {
		if i == reserved || !x.MayGoOn() {
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
func (b *batches) send(x worker.Held, token int64, items []*worker.Item[jsonRequest, jsonAnswer]) error {
	err := b.exchange(x, token, items)
	if err != nil && !errors.Is(err, hop1.ErrNotStarted) && context.Cause(x.Context) == nil {
		b.sidecar.Logger().Warn("the app did not answer a batch", "app", b.sidecar.app, "path", b.target, "key", x.Key(), "requests", len(items), "error", err)
	}
	return err
}

func (b *batches) exchange(x worker.Held, token int64, items []*worker.Item[jsonRequest, jsonAnswer]) error {
	body := appendBatch(nil, items)
	e := b.sidecar.pool.Begin()
	defer e.Close() // with the key held, see [hop1.Pool.Grace]
	e.Method = http.MethodPost
	e.Message = http1.AppendRequest(e.Message, e.Method, b.target, b.host)
	e.Message = http1.AppendField(e.Message, "Content-Type", "application/json")
	e.Message = http1.AppendField(e.Message, "Keyway-Batch", strconv.Itoa(len(items)))
	e.Message = x.AppendFields(e.Message, token)
	e.Message = append(append(http1.AppendRequestLength(e.Message, e.Method, int64(len(body))), "\r\n"...), body...)
	err := b.sidecar.send(x.Context, e)
	for err == nil && e.Status < 200 {
		err = e.Continue()
	}
	if err != nil {
		return err
	}
	refused := refuses(e)
	x.CheckClaim(e.Fields)
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
			b.sidecar.Logger().Warn("the app's answer to a request of a batch is invalid", "app", b.sidecar.app, "path", b.target, "key", x.Key(), "error", item.Err)
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
