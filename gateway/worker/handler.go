package worker

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/appstate"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/gateway/worker/internal/answers"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// Handler returns a handler that runs next with the request's key held. It takes the key from the
// router's [gateway.HeaderKey], or else from Config.Keys. In an [http.Server] of your own, any
// client can choose the key by that header; a [Server] checks the sender. next sees
// [gateway.HeaderKey], [gateway.HeaderToken], [gateway.HeaderEpoch] and [gateway.HeaderPartition].
// Its request's context is the execution's, see [gateway.Execution.Context] and [TokenFrom].
//
// A request that does not run next gets 421 with the owner as a hint if another worker has the key.
// It gets 400 if the key is missing or bad, and 508 if its sender already holds the key. All others
// get 429 or 503 with Retry-After.
//
// If next is an [http.ServeMux], a [BatchHandler] in it gets its requests without their keys held.
func (w *Worker) Handler(next http.Handler) http.Handler {
	mux, _ := next.(*http.ServeMux)
	return &keyedHandler{worker: w, next: next, mux: mux}
}

// keyedHandler admits requests. With detach set, next's context outlives the
// client, so that the key stays held for as long as next runs on.
type keyedHandler struct {
	worker *Worker
	next   http.Handler
	mux    *http.ServeMux // next, if it is one
	detach bool
}

func (h *keyedHandler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if h.batched(r) {
		h.mux.ServeHTTP(rw, r)
		return
	}
	key, how, ok := h.worker.open(rw, r, true)
	if !ok {
		return
	}
	baggage, err := how.Carried(r.Header.Values("Baggage"), key)
	if err != nil {
		h.worker.refuse(rw, r, err)
		return
	}
	r, end := h.worker.keepBody(rw, r, key, how)
	if r == nil {
		return
	}
	defer end()
	var c *alike
	if shares(&how) && r.ContentLength == 0 && keyed.Innermost(r.Context()) == nil {
		c = h.worker.alike(&how, r.Method, r.Host, r.URL.RequestURI(), r.Header)
	}
	h.worker.observeHTTP(r, &how, "http")
	x, c, err := h.admit(r.Context(), key, how, c)
	switch {
	case err != nil:
		h.worker.refuse(rw, r, err)
		return
	case x.IsNone():
		c.answer().ServeHTTP(rw, r)
		return
	}
	a := &appWriter{handler: h, held: x, collapse: c}
	x.Carry(baggage)
	out := h.worker.answers.NewPlain(x.Context(), how.Client, rw, asTiming(how.Trace).tellHTTP)
	defer out.Finish() // after the key is free
	defer a.release()
	r = r.WithContext(x.Context())
	r.Header = r.Header.Clone()
	a.upgrade = h.worker.fields.Clean(r.Header, true)
	setAppHeader(r.Header, x, baggage)
	a.ServeHTTP(out, r)
	out.Returned()
}

// ServeLink is ServeHTTP for a request that came over the link.
func (h *keyedHandler) ServeLink(w *link.ResponseWriter, r *link.ServerRequest) {
	if h.batchedLink(r) {
		submitLink(h.mux, w, r)
		return
	}
	x, c, baggage, ok := h.admitLink(w, r)
	if ok {
		h.serveLink(w, r, x, c, baggage)
	}
}

// serveLink answers a request over the link that was admitted as x, and the requests that wait for
// the answer to c, nil for none.
func (h *keyedHandler) serveLink(w *link.ResponseWriter, r *link.ServerRequest, x keyed.Execution, c *alike, baggage string) {
	header := r.Fields.HeaderFor(len(appNames))
	a := &appWriter{handler: h, held: x, link: linkWriter{w: w, r: r}, collapse: c}
	defer timingOf(x).tell(w)
	defer a.release()
	x.Carry(baggage)
	h.worker.answers.Take(x.Context(), w)
	delete(header, "Upgrade") // the link carries none
	h.worker.fields.Clean(header, true)
	setAppHeader(header, x, baggage)
	link.ServeHTTP(x.Context(), w, r, header, a)
}

// submitLink has h, a submitHandler or a mux that leads to one, answer a request
// that came over the link.
func submitLink(h http.Handler, w *link.ResponseWriter, r *link.ServerRequest) {
	header := r.Fields.HeaderFor(2)
	header[gateway.HeaderKey] = []string{url.PathEscape(r.Key)}
	header[gateway.HeaderEpoch] = []string{strconv.FormatInt(r.Epoch, 10)}
	over := &linkWriter{w: w, r: r}
	link.ServeHTTP(r.Context(), w, r, header, http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		over.ResponseWriter = rw
		h.ServeHTTP(over, req)
	}))
	over.timing.tell(w)
}

// linkWriter answers a request that came over the link.
type linkWriter struct {
	http.ResponseWriter
	w      *link.ResponseWriter
	r      *link.ServerRequest
	timing *timing // of a request that runs in a batch; nil if nobody wants them
}

// Unwrap lets [http.ResponseController] reach the writer.
func (w *linkWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// batched reports whether h's next is a mux that leads r to a batch handler.
func (h *keyedHandler) batched(r *http.Request) bool {
	if h.mux == nil || !h.worker.batches.Load() {
		return false
	}
	to, _ := h.mux.Handler(r)
	_, ok := to.(*submitHandler)
	return ok
}

func (h *keyedHandler) batchedLink(r *link.ServerRequest) bool {
	if h.mux == nil || !h.worker.batches.Load() {
		return false
	}
	u, err := url.ParseRequestURI(r.Target)
	return err == nil && h.batched(&http.Request{Method: r.Method, Host: r.Host, URL: u})
}

// admitLink admits a request, and returns what it carries on, or answers it. c is nil
// unless others wait for its answer.
func (h *keyedHandler) admitLink(w *link.ResponseWriter, r *link.ServerRequest) (x keyed.Execution, c *alike, baggage string, ok bool) {
	how, err := h.worker.askingOfLink(r)
	if err == nil {
		baggage, err = how.Carried(r.Fields.Values("Baggage"), r.Key)
	}
	if err == nil && shares(&how) && r.ContentLength == 0 {
		c = h.worker.alike(&how, r.Method, r.Host, r.Target, r.Fields.HeaderFor(0))
	}
	if err == nil {
		h.worker.observeLink(r, &how)
		x, c, err = h.admit(r.Context(), r.Key, how, c)
	}
	switch {
	case err != nil:
		h.worker.refuseLink(w, r, err)
		return x, nil, "", false
	case x.IsNone():
		link.ServeHTTP(r.Context(), w, r, r.Fields.HeaderFor(0), c.answer())
		asTiming(how.Trace).tell(w)
		return x, nil, "", false
	}
	return x, c, baggage, true
}

// admit admits a request; c is what it waits with if it may get another's answer, nil for none. It returns no execution if the
// request got the answer to an equal one. Otherwise it returns c if equal requests wait for the
// answer.
func (h *keyedHandler) admit(ctx context.Context, key string, how keyed.Asking, c *alike) (keyed.Execution, *alike, error) {
	x, err := h.worker.keys.Admit(ctx, key, how)
	switch {
	case err != nil:
		c.leaveAnswer()
		return x, nil, err
	case x.IsNone():
		h.worker.counts.shared.Add(1)
		return x, c, nil
	case !h.worker.leads(c, x):
		c = nil
	}
	if h.detach {
		x.GoesTo(h.worker.cfg.AtApp)
	}
	x.Bound(h.worker.timeoutOf(how.Policy))
	if h.detach || c != nil {
		x.Detach()
	}
	return x, c, nil
}

// appNames are the names of what appValues returns.
var appNames = [...]string{gateway.HeaderKey, gateway.HeaderToken, gateway.HeaderEpoch, gateway.HeaderPartition, "Baggage"}

// maxNumbers is the length of a token, an epoch and a partition's number at most.
const maxNumbers = 64

// appValues returns the values of appNames for an execution, "" for a name that is left out. An
// execution without a key has no token. token is the execution's own or one that it has reserved.
// The values share memory.
func appValues(memory []byte, x keyed.Execution, token int64, baggage string) [len(appNames)]string {
	if keyed.IsKeyless(x.Key) {
		values := [...]string{len(appNames) - 1: baggage}
		if key := keyed.KeyOf(x.Key); key != "" {
			values[0], values[3] = url.PathEscape(key), strconv.Itoa(x.Partition().Number)
		}
		return values
	}
	b := strconv.AppendInt(memory[:0], token, 10)
	first := len(b)
	b = strconv.AppendInt(b, keyed.TokenEpoch(token), 10)
	epoch := len(b)
	b = strconv.AppendInt(b, int64(x.Partition().Number), 10)
	numbers := grammar.Text(b)
	return [...]string{url.PathEscape(x.Key), numbers[:first], numbers[first:epoch], numbers[epoch:], baggage}
}

func setAppHeader(h http.Header, x keyed.Execution, baggage string) {
	all := appValues(make([]byte, 0, maxNumbers), x, x.Token(), baggage)
	values := all[:]
	for i, name := range appNames {
		if delete(h, name); values[i] != "" {
			h[name] = values[i : i+1 : i+1]
		}
	}
	if t := timingOf(x); t.hasFields() {
		spans.SetFields(h, t.onward)
	}
}

func (w *Worker) requestKey(rw http.ResponseWriter, r *http.Request) (string, error) {
	if r.Header.Get(gateway.HeaderKey) != "" {
		return gateway.KeyFromHeader(r.Header)
	}
	if len(w.cfg.Keys) == 0 {
		return "", fmt.Errorf("%w: send it percent-encoded in %s, or go through a router", gateway.ErrNoKey, gateway.HeaderKey)
	}
	return w.cfg.Keys.ExtractFrom(pacedKey{keysource.Of(r), rw, r})
}

// appWriter lets the app answer one request, and passes the answer on without the headers that only
// Keyway may set. With detach it continues to take the answer of an app whose client has left. The
// request's goroutine owns it; it holds the execution until the answer ends or becomes a stream.
type appWriter struct {
	http.ResponseWriter
	handler *keyedHandler
	request *http.Request
	upgrade string // protocol that the app may change to, "" for none
	wrote   bool
	gone    bool // the client left, or has its whole answer

	held     keyed.Execution // of the request; zero once it is released
	collapse *alike          // whose answer others wait for; nil for none
	stream   *keyed.Context  // as which the answer goes on without its key; nil for none
	link     linkWriter      // of a request that came over the link, without its ResponseWriter
	unsent   error           // see Unsent
}

func (a *appWriter) release() {
	a.stream.EndStream()
	if x := a.held; !x.IsNone() {
		a.held = keyed.Execution{}
		a.handler.worker.keys.Release(x)
	}
}

// Unsent records why the app has provably not begun with the request, which has no answer so far.
func (a *appWriter) Unsent(err error) { a.unsent = err }

// refuse refuses a request that the app has not begun with, once its key is free.
func (a *appWriter) refuse() {
	timingOf(a.held).noteFailure("unavailable")
	a.release()
	rw := a.ResponseWriter
	if a.link.w != nil {
		a.link.ResponseWriter = rw
		rw = &a.link
	}
	a.handler.worker.refuse(rw, a.request, a.unsent)
}

// ServeHTTP implements [http.Handler].
func (a *appWriter) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if a.collapse == nil {
		a.serve(rw, r)
		return
	}
	kept := a.handler.worker.answers.NewRecorder(rw, r.Method)
	defer kept.Close()
	a.serve(kept, r)
	kept.NoteStatus(http.StatusOK)
	a.share(kept)
}

// share gives the answer to the requests that wait for it, if the execution has held
// the key to its end and the answer is one for all of them.
func (a *appWriter) share(kept *answers.Recorder) {
	if x := a.held; !x.IsNone() && x.Context().Err() == nil && kept.Shareable() {
		kept.End()
		a.collapse.give(x, func() any { return kept.Share() })
	}
}

func (a *appWriter) serve(rw http.ResponseWriter, r *http.Request) {
	a.ResponseWriter, a.request = rw, r
	if rules := &a.handler.worker.fields; r.Body != nil && r.Body != http.NoBody {
		rules.StripTrailer(r.Trailer)
		r.Body = &trailedBody{r.Body, r, rules}
	}
	t := timingOf(a.held)
	t.noteFailure("aborted") // unless the handler returns
	a.handler.next.ServeHTTP(a, r)
	t.noteFailure("")
	switch {
	case a.unsent != nil:
		a.refuse()
		return
	case !a.wrote && errors.Is(context.Cause(r.Context()), gateway.ErrTimeout):
		a.handler.worker.counts.own(problem.TimedOut).ServeHTTP(a, r)
	}
	a.beginAnswer()
	t.noteStatus(http.StatusOK) // of an answer that the handler has not begun
	fields.CleanTrailers(a.Header())
}

// trailedBody is a request's body. At its end it removes those trailers that may
// not be there: net/http adds all that have come, announced or not.
type trailedBody struct {
	io.ReadCloser
	request *http.Request
	rules   *fields.Rules
}

func (b *trailedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.rules.StripTrailer(b.request.Trailer)
	}
	return n, err
}

func (a *appWriter) WriteHeader(status int) {
	a.beginAnswer()
	if status == http.StatusSwitchingProtocols && a.upgrade == "" && !a.wrote {
		clear(a.Header())
		a.handler.worker.counts.own(problem.Switched).ServeHTTP(a.ResponseWriter, a.request)
		a.wrote, a.gone = true, true
		return
	}
	if status >= 200 || status == http.StatusSwitchingProtocols {
		a.detachStream(status)
	}
	a.ResponseWriter.WriteHeader(status)
	a.wrote = a.wrote || status >= 200
}

func (a *appWriter) beginAnswer() {
	if !a.wrote {
		if said := a.Header()[gateway.HeaderKey]; len(said) > 0 && !a.held.IsNone() {
			a.handler.worker.checkClaim(a.held, said[0], len(said))
		}
		fields.CleanAnswer(a.Header())
		if a.handler.detach { // it is an app's behind a sidecar
			fields.LeaveUntyped(a.Header())
		}
	}
}

func (a *appWriter) Write(b []byte) (int, error) {
	a.beginAnswer()
	a.detachStream(http.StatusOK)
	a.wrote = true
	if a.gone {
		return len(b), nil
	}
	n, err := a.ResponseWriter.Write(b)
	if err != nil && a.handler.detach {
		a.gone = true
		return len(b), nil
	}
	return n, err
}

// Flush implements [http.Flusher].
func (a *appWriter) Flush() {
	a.beginAnswer()
	a.detachStream(http.StatusOK)
	a.wrote = true
	_ = http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack implements [http.Hijacker], for requests whose protocol may change.
func (a *appWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if a.upgrade == "" {
		return nil, nil, fmt.Errorf("worker: the request asks for no protocol of App.Upgrades: %w", http.ErrNotSupported)
	}
	conn, buffered, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	a.detachStream(http.StatusSwitchingProtocols)
	a.wrote = true
	if a.stream != nil {
		ctx := a.request.Context()
		context.AfterFunc(ctx, func() {
			if context.Cause(ctx) == appstate.ErrStreamEnds {
				time.AfterFunc(streamGrace, func() { netutil.CloseNow(conn) })
			}
		})
	}
	return conn, buffered, nil
}

// Unwrap lets [http.ResponseController] reach the server's writer.
func (a *appWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// streamGrace is how long a connection that has changed protocols may continue when its stream must end.
const streamGrace = time.Second

func isEventStream(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(grammar.Trim(kind), "text/event-stream")
}

// detachStream is [keyed.Execution.LetGo], and ends the execution's span.
func detachStream(x keyed.Execution) *keyed.Context {
	t := timingOf(x)
	s := x.LetGo()
	if s != nil {
		t.noteFailure("") // whatever becomes of the stream
		t.End("")
	}
	return s
}

// detachStream frees the key of an answer that begins with that status, if it is a stream.
func (a *appWriter) detachStream(status int) {
	if a.wrote || a.held.IsNone() {
		return
	}
	timingOf(a.held).noteStatus(status)
	if status != http.StatusSwitchingProtocols && !isEventStream(a.Header().Get("Content-Type")) {
		return
	}
	if a.stream = detachStream(a.held); a.stream != nil {
		a.held = keyed.Execution{}
	}
}

// open reads the key that a request is for, and how it asks for it. The key is "" if there is none, the route has
// requests without a key, and unkeyed allows them. open has answered the request unless ok.
func (w *Worker) open(rw http.ResponseWriter, r *http.Request, unkeyed bool) (key string, how keyed.Asking, ok bool) {
	if kind, bad := fields.BadForm(r.Method, r.URL.Path, r.RequestURI, r.Host); bad {
		w.counts.problems[kind].Add(1)
		problem.Of(kind).ServeHTTP(rw, r)
		return "", how, false
	}
	how, err := w.askingOf(rw, r)
	if err != nil {
		w.refuse(rw, r, err)
		return "", how, false
	}
	if unkeyed && how.Unkeyed() {
		return "", how, true
	}
	key, err = w.requestKey(rw, r)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.refuseBody(rw, r, err, false)
	case err != nil:
		w.refuseKey(rw, r, err)
	}
	return key, how, err == nil
}

func (w *Worker) askingOf(rw http.ResponseWriter, r *http.Request) (how keyed.Asking, err error) {
	if over, ok := rw.(*linkWriter); ok {
		return w.askingOfLink(over.r)
	}
	how.Epoch, _ = strconv.ParseInt(r.Header.Get(gateway.HeaderEpoch), 10, 64)
	how.Client, _ = strconv.ParseUint(r.Header.Get(hop.HeaderClient), 10, 64)
	encoded, err := policy.FromText(r.Header.Get(hop.HeaderPolicy))
	if err == nil {
		how.Policy, err = w.policies.get(encoded)
	}
	return how, w.policyError(err)
}

func (w *Worker) askingOfLink(r *link.ServerRequest) (how keyed.Asking, err error) {
	how.Epoch, how.Share, how.Client = r.Epoch, r, r.Client
	how.Policy, err = w.policies.get(r.Policy)
	return how, w.policyError(err)
}

func (w *Worker) policyError(err error) error {
	if err == nil {
		return nil
	}
	w.log.Error("a request was refused: this version does not know a setting of its route", "error", err)
	return fmt.Errorf("%w: %w", errPolicy, err)
}

func (w *Worker) timeoutOf(p *policy.Policy) time.Duration {
	if p == nil {
		return w.cfg.Timeout
	}
	return cmp.Or(p.Timeout, w.cfg.Timeout)
}

// checkClaim compares the first of n values of [gateway.HeaderKey] with the key of x.
func (w *Worker) checkClaim(x keyed.Execution, said string, n int) {
	if n == 0 {
		return
	}
	key := keyed.KeyOf(x.Key)
	if claimed, err := url.PathUnescape(said); n == 1 && err == nil && claimed == key {
		return
	}
	m := status.KeyMismatch{Key: strings.Clone(key), App: strings.Clone(said), Values: n, At: time.Now()}
	if p := x.Policy(); p != nil {
		m.Route = p.Route
	}
	w.log.Error("the app worked on another key than its request holds, so exclusion does not cover it: let the app use Keyway-Key of the request instead of reading the request again",
		"route", m.Route, "key", key, "app", said, "values", n)
	w.claims.note(m)
}
