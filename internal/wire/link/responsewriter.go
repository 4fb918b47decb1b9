package link

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// ErrAnswered means that the response has begun, or the request was refused.
var ErrAnswered = errors.New("link: already answered")

// ResponseWriter answers one request. It is for one goroutine at a time, until the handler returns.
// An answer consists of interim answers, then its head (answered), body and trailer; failed ends it
// early.
type ResponseWriter struct {
	st       *serverStream
	answered bool
	interims uint8  // interim answers that were sent
	bodiless bool   // the response has no body (HEAD, 204, 304): what is written is dropped
	declared int64  // length of the body, -1 when not known
	wrote    int64  // bytes of body
	trailer  Fields // to be sent at the end
	failed   error  // nothing more will be sent

	ctx      context.Context // of OverflowTo
	overflow func(client uint64, send func([]byte) error) Overflow
	over     Overflow // gets what is written; nil while that is sent at once

	out  *buffer // frames that wait for more to come
	body int     // where the payload of the data frame in out begins; 0 for none
}

// outSize is how much of a response is collected before it is sent.
const outSize = 4 << 10

// Refuse answers that the worker itself does not start the request, which
// lets the router send it elsewhere. It fails with ErrAnswered once the
// response has begun, or an interim one was sent, or more of the body was read than the router keeps.
func (w *ResponseWriter) Refuse(e *RefusedError) error {
	if w.failed != nil {
		return w.failed
	}
	if w.answered || w.interims > 0 || w.st.admitted() {
		return ErrAnswered
	}
	w.answered = true
	w.failed = ErrAnswered
	if !w.st.sc.remove(w.st.id) {
		return ErrClosed
	}
	w.st.c.queue(appendFrame(nil, header{kind: kindRefused, end: true, stream: w.st.id}, appendRefusal(nil, e)))
	return nil
}

// WriteInterim sends an interim answer at once: a status from 102 to 199 and the fields, which are
// copied. It fails with ErrAnswered once the response has begun. An interim answer beyond the
// peer's limits (8 of them, and the size of a head) is dropped without an error.
func (w *ResponseWriter) WriteInterim(status int, f Fields) error {
	switch {
	case w.failed != nil:
		return w.failed
	case w.answered:
		return ErrAnswered
	case !isInterim(status):
		return fmt.Errorf("link: %d is not an interim status", status)
	}
	head := responseHead{status: status, length: -1, fields: f}
	b := head.append(openFrame(nil))
	if w.interims == maxInterim || int64(len(b)-headerLen) > w.st.c.peer.Header {
		return nil
	}
	if !w.st.sending() {
		return ErrClosed
	}
	w.interims++
	closeFrame(b, 0, header{kind: kindResponse, stream: w.st.id})
	return w.pushHead(b)
}

// WriteHead begins the response with a final status, the length of the body (-1 if unknown), and
// the fields, which are copied. For HEAD and status 304 the length is that of the omitted body.
// Without WriteHead, the first Write or the end of the handler sends status 200.
func (w *ResponseWriter) WriteHead(status int, length int64, f Fields) error {
	switch {
	case w.failed != nil:
		return w.failed
	case w.answered:
		return ErrAnswered
	case status < 200 || status > 999:
		return fmt.Errorf("link: %d is not a final status", status)
	}
	head := responseHead{status: status, length: max(length, -1), fields: f}
	w.answered = true
	w.declared = head.length
	w.bodiless = !grammar.HasBody(w.st.req.Method, status)
	w.out = pool.get(max(outSize, headerLen+len(f)+32))
	w.out.b = head.append(openFrame(w.out.b))
	if size := len(w.out.b) - headerLen; int64(size) > w.st.c.peer.Header {
		return w.fail(fmt.Errorf("%w: %d bytes, the peer takes %d", ErrAnswerHeaderTooLarge, size, w.st.c.peer.Header))
	}
	closeFrame(w.out.b, 0, header{kind: kindResponse, stream: w.st.id})
	return nil
}

// begin begins the response, unless that has been done, and returns why it has failed.
func (w *ResponseWriter) begin(length int64) error {
	if !w.answered {
		_ = w.WriteHead(http.StatusOK, length, nil) // failed has its error
	}
	return w.failed
}

func (w *ResponseWriter) fail(err error) error {
	if w.failed == nil {
		w.failed = err
		w.st.reset(CodeAborted)
		w.st.stop(ErrClosed)
	}
	return w.failed
}

// Abort gives the response up: the client sees an error in its midst.
func (w *ResponseWriter) Abort() { w.fail(ErrClosed) }

// SetTrailer sets the trailers, to be sent when the handler returns.
func (w *ResponseWriter) SetTrailer(f Fields) { w.trailer = f }

// AddLast adds a field whose value is known only at the end of the answer. The field joins the head
// if the answer has no body and its head is unsent; a head without room for it drops it. Otherwise
// it becomes the last trailer.
func (w *ResponseWriter) AddLast(name, value string) {
	switch {
	case w.begin(0) != nil: // so the answer fails
	case w.wrote > 0 || len(w.out.b) == 0:
		w.trailer = AppendField(slices.Clip(w.trailer), name, value)
	default:
		head := AppendField(Fields(w.out.b), name, value)
		if int64(len(head)-headerLen) <= w.st.c.peer.Header {
			w.out.b = head
			closeFrame(w.out.b, 0, header{kind: kindResponse, stream: w.st.id})
		}
	}
}

// Write sends p as a part of the body: small pieces are collected until there
// are 4 KiB of them, Flush is called, or the handler returns. More than the
// declared length fails with ErrContentLength. When the client reads slowly,
// Write waits, see OverflowTo.
func (w *ResponseWriter) Write(p []byte) (int, error) {
	if err := w.begin(-1); err != nil {
		return 0, err
	}
	if w.bodiless || len(p) == 0 {
		return len(p), nil
	}
	if w.wrote += int64(len(p)); w.declared >= 0 && w.wrote > w.declared {
		w.wrote -= int64(len(p))
		return 0, ErrContentLength
	}
	if w.over != nil && w.over.Idle() {
		if err := w.endOverflow(); err != nil {
			return 0, w.fail(err)
		}
	}
	if w.over == nil && len(w.out.b)+headerLen+len(p) > outSize {
		if err := w.send(false); err != nil {
			return 0, err
		}
	}
	if w.over != nil || len(p) > outSize-headerLen {
		if err := w.put(p); err != nil {
			return 0, w.fail(err)
		}
		return len(p), nil
	}
	if w.body == 0 {
		w.out.b = openFrame(w.out.b)
		w.body = len(w.out.b)
	}
	w.out.b = append(w.out.b, p...)
	return len(p), nil
}

// Flush sends what was collected.
func (w *ResponseWriter) Flush() error {
	if err := w.begin(-1); err != nil || w.over != nil {
		return err
	}
	return w.send(false)
}

// send sends what was collected, and with end set the end of the response.
func (w *ResponseWriter) send(end bool) error {
	err := w.flush(end)
	if err != nil {
		return w.fail(err)
	}
	w.out.b, w.body = w.out.b[:0], 0
	return nil
}

func (w *ResponseWriter) flush(end bool) error {
	head, body, st := w.out.b, []byte(nil), w.st
	switch {
	case w.body > 0:
		head, body = head[:w.body-headerLen], head[w.body:]
		n, err := st.send(head, body, end, end || w.overflow == nil)
		if err != nil || n == len(body) {
			return err
		}
		if body = body[n:]; n > 0 {
			head = nil
		}
	case end && len(head) == 0:
		return st.write(nil, true)
	case end:
		putHeader(head, header{length: len(head) - headerLen, kind: kindResponse, end: true, stream: st.id})
	}
	if !st.sending() {
		return ErrClosed
	}
	if len(head) > 0 {
		if err := w.pushHead(head); err != nil {
			return err
		}
	}
	return w.put(body)
}

// finish completes the answer when the handler has returned.
func (w *ResponseWriter) finish() {
	err := w.begin(0)
	if err == nil {
		err = w.endOverflow()
	}
	switch {
	case err != nil:
	case !w.bodiless && w.declared >= 0 && w.wrote != w.declared:
		err = ErrContentLength
	case len(w.trailer) == 0 || w.bodiless:
		err = w.send(true)
	case int64(len(w.trailer)) > w.st.c.peer.Header:
		err = ErrAnswerHeaderTooLarge
	default:
		err = w.endWithTrailer()
	}
	if err != nil {
		w.fail(err)
	}
}

// endWithTrailer sends what was collected, and the trailers.
func (w *ResponseWriter) endWithTrailer() error {
	if err := w.send(false); err != nil {
		return err
	}
	if err := w.endOverflow(); err != nil { // send may have begun one
		return err
	}
	return w.st.writeTrailers(w.trailer)
}

func (w *ResponseWriter) release() {
	_ = w.endOverflow() // if it is not sent by now, it fails
	pool.put(w.out)
	w.out = nil
	if w.failed == nil {
		w.failed = ErrClosed
	}
}
