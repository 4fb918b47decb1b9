package link

import (
	"context"
	"io"
	"net/http"
	"runtime/debug"
	"time"
)

// serverStream is a request at the server's end. It is one allocation and never reused, so parts
// that a handler keeps do no harm.
type serverStream struct {
	stream
	sc  *serverConn
	ctx requestContext

	abandoned bool // by the client; under sc.mu
	wait      wait // under sc.mu

	req ServerRequest
	w   ResponseWriter
}

// ServerRequest is a request as a worker gets it.
type ServerRequest struct {
	Method        string
	Target        string // path?query
	Host          string
	Key           string // canonical bytes of the business key
	Epoch         int64  // highest epoch that the router knows of the key's partition; 0 for none
	Client        uint64 // tells clients apart; 0 if it is not known
	Policy        []byte // the router's policy, in the users' own encoding; nil for none
	Fields        Fields
	ContentLength int64        // -1 when not known, 0 for no body
	Body          *RequestBody // never nil

	sized bool // the client has sent a length
	st    *serverStream
}

// Context is done when the client has given the request up, the connection is
// lost, the deadline has passed, or the handler has returned. Its cause is
// context.Canceled or context.DeadlineExceeded.
func (r *ServerRequest) Context() context.Context { return &r.st.ctx }

// Remote returns the address of the client's end of the connection.
func (r *ServerRequest) Remote() string { return r.st.sc.remote }

// RequestBody is the body of a ServerRequest. It is for one goroutine at a
// time, until the handler returns.
type RequestBody serverStream

// Read implements io.Reader. It fails when the request's context is done for
// another reason than its deadline.
func (b *RequestBody) Read(p []byte) (int, error) {
	return b.read(context.Background(), p) // the end of its own context ends the stream
}

// ReadContext is Read that also fails when ctx is done, with its cause, if there is
// nothing to read.
func (b *RequestBody) ReadContext(ctx context.Context, p []byte) (int, error) {
	return b.read(ctx, p)
}

// Trailer returns the trailers once Read has returned io.EOF.
func (b *RequestBody) Trailer() Fields {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trailer
}

// empty reports whether nothing will ever come out of b.
func (b *RequestBody) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inErr == io.EOF && len(b.chunks) == 0 && b.trailer == nil
}

// newServerStream returns the stream of a request with the head p, whose memory it uses.
func newServerStream(sc *serverConn, h header, p []byte) (*serverStream, error) {
	st := &serverStream{sc: sc}
	st.c, st.id = &sc.conn, h.stream
	st.window, st.credit = initialWindow, initialWindow
	st.ctx.conn = &sc.conn
	r := &st.req
	timeout, err := r.decodeHead(p)
	if err != nil {
		return nil, err
	}
	if timeout > 0 {
		st.ctx.deadline = time.Now().Add(timeout)
	}
	r.sized = r.ContentLength >= 0
	st.short = r.sized && r.ContentLength <= initialWindow
	if h.end {
		st.inErr, r.ContentLength = io.EOF, 0
	}
	r.st, r.Body = st, (*RequestBody)(st)
	st.w.st, st.w.declared = st, -1
	return st, nil
}

func (st *serverStream) serve() {
	defer st.sc.returned(st)
	defer st.close()
	defer func() {
		if p := recover(); p != nil {
			st.w.Abort()
			if p != http.ErrAbortHandler {
				st.c.cfg.Logger.Error("link: handler panicked", "method", st.req.Method, "target", st.req.Target, "panic", p, "stack", string(debug.Stack()))
			}
		}
	}()
	st.sc.srv.Handler.ServeLink(&st.w, &st.req)
	st.w.finish()
}

func (st *serverStream) admitted() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.grown
}

func (st *serverStream) cancel(err error) {
	st.stop(err)
	st.ctx.cancel()
}

// reset gives the stream up and tells the client, unless it is over.
func (st *serverStream) reset(code Code) {
	if st.sc.remove(st.id) {
		st.c.control(kindReset, st.id, uint64(code))
	}
}

// close frees what the stream holds when its handler has returned.
func (st *serverStream) close() {
	st.stop(ErrClosed)
	st.discard()
	st.ctx.cancel()
	st.w.release()
}
