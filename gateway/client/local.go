package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/internal/wire/httphandler"
	"github.com/keyway-go/keyway/internal/wire/link"
)

const (
	localWindow = 64 << 10    // bytes of an answer that its reader has not taken yet
	localPiece  = 16 << 10    // of them that are worth waking the reader for
	localAddr   = "127.0.0.1" // the RemoteAddr of requests of this process, with port 0
)

// attemptLocal gives the request to the worker of this process.
func (x *call) attemptLocal(t routing.Target) routing.Outcome {
	var body io.Reader
	switch {
	case x.Request.Body != nil:
		body = bytes.NewReader(x.Request.AppendKept(nil))
	case x.Request.Open != nil:
		opened, err := x.Request.Open()
		if err != nil {
			return routing.Outcome{Err: fmt.Errorf("%w: %w", send.ErrClientBody, err)}
		}
		body = opened
	}
	s := &localStream{call: x, body: body, readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancelCause(x.Traces().Context(x.Ctx))
	go s.run(x.localRequest(s.ctx, t.Epoch, body), x.client.local, x.client.log)
	reply := (*localReply)(s)
	if err := s.await(x.Ctx); err != nil {
		reply.Close()
		return send.OutcomeOf(x.Ctx, t.Member, err, x.Body.Failed.Load())
	}
	header := func(name string) string {
		for n, value := range s.head.All() {
			if strings.EqualFold(n, name) {
				return value
			}
		}
		return ""
	}
	refusal := hop.ReadRefusal(header)
	if refusal != nil {
		reply.Close()
		return send.OutcomeOf(x.Ctx, t.Member, refusal, nil)
	}
	x.Answer = send.Answer{Status: s.status, Length: s.length, Fields: s.head}
	x.reply.body = reply
	return routing.Outcome{}
}

// localRequest makes the request as a server has it.
func (x *call) localRequest(ctx context.Context, epoch int64, body io.Reader) *http.Request {
	to := &x.Request
	u, err := url.ParseRequestURI(to.Target)
	if err != nil {
		u = &url.URL{Path: "/"} // it was made of a URL
	}
	h := make(http.Header, len(x.in.Header)+4)
	for name, value := range x.fields() {
		h.Add(name, value)
	}
	x.setOwn(h, epoch)
	if s := x.Traces(); s != nil {
		spans.SetFields(h, s.Onward)
	}
	r := &http.Request{
		Method: to.Method, URL: u, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Host: to.Host, RemoteAddr: localAddr + ":0", RequestURI: to.Target,
	}
	if names := x.trailerNames(); len(names) > 0 {
		h["Trailer"] = names
	}
	switch to.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		h["Content-Length"] = []string{"0"}
	}
	if body != nil {
		if r.ContentLength = to.ContentLength; r.ContentLength < 0 {
			r.TransferEncoding = []string{"chunked"}
			delete(h, "Content-Length")
		} else {
			h["Content-Length"] = []string{strconv.FormatInt(r.ContentLength, 10)}
		}
	}
	return r.WithContext(ctx)
}

// setOwn sets the fields that tell a worker's HTTP server about the request.
func (x *call) setOwn(h http.Header, epoch int64) {
	h[gateway.HeaderKey] = []string{url.PathEscape(x.Request.Key)}
	if epoch > 0 {
		h[gateway.HeaderEpoch] = []string{strconv.FormatInt(epoch, 10)}
	}
}

// localStream is an answer of this process's worker on its way to the caller. The handler writes it
// as its [httphandler.Stream], and the caller reads it through a [localReply], both under mu. It is
// open until over is set.
type localStream struct {
	httphandler.Writer
	call   *call
	body   io.Reader       // of the request
	ctx    context.Context // the handler's
	cancel context.CancelCauseFunc
	fields link.Fields // that the handler's side sends next

	mu      sync.Mutex // guards what follows
	status  int        // of the head; 0 until it is there
	length  int64
	head    link.Fields
	ready   bool         // the caller may see the head
	pending bytes.Buffer // of the body
	trailer link.Fields
	over    error // why nothing comes any more; io.EOF at the regular end

	readable, writable chan struct{} // wake the caller and the handler; capacity 1
}

var errLocalAborted = errors.New("client: the handler has aborted its answer")

// run lets the worker answer r.
func (s *localStream) run(r *http.Request, h http.Handler, log *slog.Logger) {
	defer s.cancel(nil)
	if opened, ok := s.body.(io.Closer); ok {
		defer opened.Close()
	}
	defer s.Abort(errLocalAborted) // or it has ended
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			log.Error("client: the handler of a request of this process panicked", "method", r.Method, "target", r.RequestURI, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	s.Begin(s, r, s.body != nil)
	if h.ServeHTTP(&s.Writer, r); s.ctx.Err() != nil {
		s.Abort(context.Cause(s.ctx)) // a handler that was told to end may not have answered in full
	}
	s.Finish()
}

// The handler's side.

// ReadBody implements [httphandler.Stream]. A body that breaks off ends the call.
func (s *localStream) ReadBody(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if err != nil && err != io.EOF {
		s.Abort(fmt.Errorf("%w: %w", send.ErrClientBody, err))
		s.cancel(err)
	}
	return n, err
}

func (s *localStream) Trailer() http.Header { return s.call.trailer() }

func (s *localStream) AddField(name, value string) {
	s.fields = link.AppendField(s.fields, name, value)
}

func (s *localStream) SendInterim(status int) {
	if to := s.call.Request.Interims; to != nil {
		to.Interim(status, s.fields)
	}
	s.fields = nil
}

func (s *localStream) SendHead(status int, length int64, body []byte, _ bool) error {
	s.mu.Lock()
	s.status, s.length, s.head = status, length, s.fields
	s.mu.Unlock()
	s.fields = nil
	return s.SendBody(body)
}

func (s *localStream) SendBody(p []byte) error {
	for {
		s.mu.Lock()
		if s.over != nil {
			defer s.mu.Unlock()
			return s.over
		}
		n := min(len(p), localWindow-s.pending.Len())
		s.pending.Write(p[:n])
		if s.pending.Len() >= localPiece {
			s.readyLocked()
		}
		s.mu.Unlock()
		if p = p[n:]; len(p) == 0 {
			return nil
		}
		select {
		case <-s.writable:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

func (s *localStream) SendPending() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readyLocked()
	return s.over
}

func (s *localStream) SendEnd()        { s.endAnswer(io.EOF, s.fields) }
func (s *localStream) Abort(err error) { s.endAnswer(err, nil) }

// readyLocked lets the caller see what there is.
func (s *localStream) readyLocked() {
	s.ready = true
	wake.Up(s.readable)
}

// endAnswer ends the answer, unless it has ended.
func (s *localStream) endAnswer(err error, trailer link.Fields) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over, s.trailer = err, trailer
	}
	s.readyLocked()
	wake.Up(s.writable)
}

// await waits for the head of the answer.
func (s *localStream) await(ctx context.Context) error {
	for {
		s.mu.Lock()
		ready, headless, err := s.ready, s.status == 0, s.over
		s.mu.Unlock()
		switch {
		case ready && headless:
			return err
		case ready:
			return nil
		}
		select {
		case <-s.readable:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// localReply is the answer's body as the caller reads it. It may be closed during a
// Read. It implements [replyBody].
type localReply localStream

func (r *localReply) Read(p []byte) (int, error) {
	for {
		r.mu.Lock()
		n, _ := r.pending.Read(p) // its end is not that of the body
		over := r.over
		r.mu.Unlock()
		if n > 0 {
			wake.Up(r.writable)
			return n, nil
		}
		if over != nil {
			return 0, over
		}
		select {
		case <-r.readable:
		case <-r.call.Ctx.Done():
			return 0, context.Cause(r.call.Ctx)
		}
	}
}

func (r *localReply) Buffered() (n int, last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending.Len(), r.over == io.EOF
}

func (r *localReply) Trailer() link.Fields {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trailer
}

// Close implements [io.Closer]. It ends the context of a handler that still runs.
func (r *localReply) Close() error {
	s := (*localStream)(r)
	s.endAnswer(http.ErrBodyReadAfterClose, nil)
	s.mu.Lock()
	s.pending = bytes.Buffer{}
	s.mu.Unlock()
	s.cancel(context.Canceled)
	return nil
}
