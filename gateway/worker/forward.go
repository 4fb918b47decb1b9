package worker

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// Forwarder admits requests that an app in another process answers. Package sidecar makes one
// with [Worker.Forward]. A key stays held when the client has left, until the app has answered.
type Forwarder struct {
	keyedHandler
	takes func(*link.ServerRequest) bool
	send  func(*link.ResponseWriter, *link.ServerRequest, Held) error
	batch *submitHandler                                                            // of requests that go to the app together; nil if each goes by itself
	items func(method string, length int64, values func(name string) []string) bool // reports which these are
}

// Forward returns a Forwarder. next sends a request on with net/http. If the app has not begun with it, next passes the
// reason to the method Unsent of its ResponseWriter. A request over the link goes to send instead if takes is true for it:
// send answers the request, or returns why the app has not begun with it.
func (w *Worker) Forward(next http.Handler, takes func(*link.ServerRequest) bool, send func(*link.ResponseWriter, *link.ServerRequest, Held) (unsent error)) *Forwarder {
	return &Forwarder{keyedHandler: keyedHandler{worker: w, next: next, detach: true}, takes: takes, send: send}
}

// ForwardBatches makes f submit requests to b if isItem returns true and their routes allow it.
// decode makes an item of a request. answer returns a function that writes the answer, or why the
// app has not begun with the item.
func ForwardBatches[In, Out any](f *Forwarder, b *Batcher[In, Out], isItem func(method string, length int64, values func(name string) []string) bool,
	decode func(*http.Request) (In, error), answer func(r *http.Request, key string, item *Item[In, Out]) (write func(http.ResponseWriter), unsent error)) {
	b.detach, f.items = true, isItem
	f.batch = newSubmitHandler(b, func(_ http.ResponseWriter, r *http.Request) (In, error) { return decode(r) }, answer)
}

// ServeHTTP implements [http.Handler].
func (f *Forwarder) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if f.batch != nil && f.items(r.Method, r.ContentLength, func(name string) []string { return r.Header[name] }) && maySubmit(f.worker.askingOf(rw, r)) {
		f.batch.ServeHTTP(rw, r)
		return
	}
	f.keyedHandler.ServeHTTP(rw, r)
}

// ServeLink is ServeHTTP for a request that came over the link.
func (f *Forwarder) ServeLink(w *link.ResponseWriter, r *link.ServerRequest) {
	if f.batch != nil && f.items(r.Method, r.ContentLength, r.Fields.Values) && maySubmit(f.worker.askingOfLink(r)) {
		f.batch.ServeLink(w, r)
		return
	}
	x, c, baggage, ok := f.admitLink(w, r)
	switch {
	case !ok:
		return
	case c != nil || !f.takes(r):
		f.serveLink(w, r, x, c, baggage)
		return
	}
	defer timingOf(x).tell(w) // behind a refusal, of which it is no part
	if unsent := f.forward(w, r, x, baggage); unsent != nil {
		f.worker.refuseLink(w, r, unsent)
	}
}

func maySubmit(how keyed.Asking, err error) bool { return err == nil && how.Batches() }

// forward has a request sent on, and releases x.
func (f *Forwarder) forward(w *link.ResponseWriter, r *link.ServerRequest, x keyed.Execution, baggage string) (unsent error) {
	defer f.worker.keys.Release(x)
	x.Carry(baggage)
	if unsent = f.send(w, r, f.Held(x.Context())); unsent != nil {
		timingOf(x).noteFailure("unavailable")
	}
	return unsent
}

// Own counts an answer in place of the app's, and returns it.
func (f *Forwarder) Own(kind problem.Kind) problem.Problem { return f.worker.counts.own(kind) }

// Logger returns the logger for what clients can bring about.
func (f *Forwarder) Logger() *slog.Logger { return f.worker.log }

// Held is an execution whose request an app in another process answers, and its context. It may be used until the
// execution ends.
type Held struct {
	*keyed.Context
	worker *Worker
}

// Held returns the execution that ctx belongs to, which must be one of f.
func (f *Forwarder) Held(ctx context.Context) Held { return Held{keyed.Innermost(ctx), f.worker} }

// Fail records why the app has not answered.
func (h Held) Fail(kind string) { timingOf(h.Context.Execution()).noteFailure(kind) }

// AppendHead appends the head of the request in HTTP/1.1, as the app gets to see it.
func (h Held) AppendHead(b []byte, r *link.ServerRequest) []byte {
	rules, traced := &h.worker.fields, timingOf(h.Context.Execution()).hasFields()
	b = http1.AppendRequest(b, r.Method, r.Target, r.Host)
	for name, value := range r.Fields.All() {
		if rules.Drops(fields.KindOf(name), name) || strings.EqualFold(name, "Baggage") || traced && spans.IsField(name) {
			continue
		}
		b = http1.AppendValidField(b, name, value) // the link takes no other
	}
	b = h.AppendFields(b, h.Token())
	return append(http1.AppendRequestLength(b, r.Method, r.ContentLength), "\r\n"...)
}

// AppendFields appends the fields that describe the execution to the app, with that token.
func (h Held) AppendFields(b []byte, token int64) []byte {
	var numbers [maxNumbers]byte
	for i, value := range appValues(numbers[:], h.Context.Execution(), token, h.Carried()) {
		if value != "" {
			b = http1.AppendValidField(b, appNames[i], value)
		}
	}
	if t := timingOf(h.Context.Execution()); t.hasFields() {
		for name, value := range spans.Fields(t.onward) {
			b = http1.AppendValidField(b, name, value)
		}
	}
	return b
}

// CheckClaim compares the key that the app names in the fields of its answer.
func (h Held) CheckClaim(fields []http1.Field) {
	said, n := valueOf(fields, gateway.HeaderKey)
	h.worker.checkClaim(h.Context.Execution(), said, n)
}

// valueOf returns the first value of the field of that name, and how many values it has.
func valueOf(fields []http1.Field, name string) (value string, n int) {
	for i := range fields {
		if f := &fields[i]; len(f.Name) == len(name) && strings.EqualFold(grammar.Text(f.Name), name) {
			if n++; n == 1 {
				value = grammar.Text(f.Value)
			}
		}
	}
	return value, n
}

// Begin records the head of the app's answer, which is taken from now on at the app's speed. If the
// answer is a stream that continues without the key, Begin returns a function that ends it,
// otherwise nil.
func (h Held) Begin(w *link.ResponseWriter, status int, fields []http1.Field) (end func()) {
	timingOf(h.Context.Execution()).noteStatus(status)
	h.CheckClaim(fields)
	if kind, _ := valueOf(fields, "Content-Type"); isEventStream(kind) {
		if open := detachStream(h.Context.Execution()); open != nil {
			return open.EndStream
		}
	}
	h.worker.answers.Take(h.Context, w)
	return nil
}
