package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/ring"
)

// reply is the body of an answer to a [Client]. One goroutine reads it under reading; another may
// close it meanwhile, which interrupts the Read. mu keeps that interruption from a body that is
// over.
type reply struct {
	body send.AnswerBody
	call *call

	reading sync.Mutex // guards what follows
	left    int64      // of the declared length; negative if there is none
	err     error      // of Read, from now on

	mu   sync.Mutex // guards over
	over bool       // body is not interrupted any more
}

func (r *reply) Read(p []byte) (int, error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.err != nil || len(p) == 0 {
		return 0, r.err
	}
	n, err := r.body.Read(p)
	if err == nil {
		if more, last := r.body.Buffered(); more == 0 && last {
			err = io.EOF
		}
	}
	if r.left >= 0 {
		if r.left -= int64(n); r.left < 0 {
			n, err = n+int(r.left), send.ErrLength
		} else if r.left > 0 && err == io.EOF {
			err = fmt.Errorf("%w: %w", send.ErrLength, io.ErrUnexpectedEOF)
		}
	}
	switch err {
	case nil:
		return n, nil
	case io.EOF:
		r.call.setTrailer()
	default:
		if r.call.Ctx.Err() != nil {
			err = context.Cause(r.call.Ctx)
		}
		err = r.failure(err)
	}
	r.endBody(err)
	return n, err
}

// endBody ends the use of the body; err is what a Read returns from now on.
func (r *reply) endBody(err error) {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.err = err
	r.call.finish(r.failed())
}

// failed returns why the body has ended before its end, nil if its reader has left it or it has not.
func (r *reply) failed() error {
	if r.err == io.EOF || r.err == http.ErrBodyReadAfterClose {
		return nil
	}
	return r.err
}

func (r *reply) Close() error {
	r.giveUp(http.ErrBodyReadAfterClose)
	return nil
}

// abandon gives up an answer whose context has ended.
func (r *reply) abandon() { r.giveUp(r.failure(context.Cause(r.call.Ctx))) }

// giveUp ends the use of an answer that may not have come to its end, and makes a Read that is under way fail. err is what
// a Read returns from now on.
func (r *reply) giveUp(err error) {
	r.mu.Lock()
	if !r.over {
		r.over = true
		if plain, ok := r.body.(send.PlainBody); ok {
			plain.Interrupt()
		} else {
			r.body.Close()
		}
	}
	r.mu.Unlock()
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.err == nil {
		r.endBody(err)
	}
}

// failure is the error of an answer that has begun.
func (r *reply) failure(err error) error {
	return r.call.failure(fmt.Errorf("%w: %w", gateway.ErrMayHaveRun, err))
}

// callError is the error of a [Client]'s call.
type callError struct {
	key  string
	kind error // one of package gateway's; nil for none
	err  error
}

// failure makes the caller's error of what a call has ended with.
func (x *call) failure(err error) error { return failedCall(x.Request.Key, err) }

// failedCall makes the caller's error of what a call for key has ended with.
func failedCall(key string, err error) error {
	e := &callError{key: key, err: err}
	_, unreachable := errors.AsType[*routing.UnreachableError](err)
	switch {
	case unreachable, errors.Is(err, ring.ErrSettings):
		e.kind = gateway.ErrUnavailable
	case errors.Is(err, send.ErrBusy), errors.Is(err, send.ErrWorkerFull), errors.Is(err, send.ErrBodiesFull), errors.Is(err, routing.ErrHoldFull):
		e.kind = gateway.ErrBusy
	}
	return e
}

func (e *callError) Error() string {
	if _, ok := errors.AsType[*holds.Refused](e.err); ok {
		return e.err.Error()
	}
	text := e.err.Error()
	if e.kind != nil {
		text = e.kind.Error() + ": " + text
	}
	if e.key != "" {
		text = fmt.Sprintf("client: key %q: ", e.key) + text
	}
	return text
}

// Unwrap lets [errors.Is] find what the error is.
func (e *callError) Unwrap() []error {
	if e.kind == nil {
		return []error{e.err}
	}
	return []error{e.kind, e.err}
}

// Timeout reports whether a deadline has passed, for [url.Error].
func (e *callError) Timeout() bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](e.err)
	return ok && t.Timeout()
}
