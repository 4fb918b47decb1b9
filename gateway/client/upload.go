package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/send"
)

// upload is the body of the caller's request, closed once, at its end or before.
type upload struct {
	ctx    context.Context // after whose end it is closed
	in     io.ReadCloser
	left   int64 // that is to come; -1 if that is not known
	err    error // of Read, from now on
	closed atomic.Bool
}

func (u *upload) Read(p []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	n, err := u.in.Read(p)
	if u.left >= 0 && (err == nil || err == io.EOF) {
		n, err = u.count(n, err)
	}
	if err == nil {
		return n, nil
	}
	u.Close()
	if err != io.EOF && u.ctx.Err() != nil {
		err = context.Cause(u.ctx)
	}
	u.err = err
	return n, err
}

// count compares what has been read of the body with the length that is declared.
// Behind the last byte it looks for the end.
func (u *upload) count(n int, err error) (int, error) {
	u.left -= int64(n)
	for u.left == 0 && err == nil {
		var one [1]byte
		more := 0
		more, err = u.in.Read(one[:])
		u.left -= int64(more)
	}
	switch {
	case u.left < 0: // the whole of the declared length must not arrive
		return 0, errors.New("it is longer than the request's ContentLength")
	case u.left > 0 && err == io.EOF:
		return 0, fmt.Errorf("it is %d bytes shorter than the request's ContentLength: %w", u.left, io.ErrUnexpectedEOF)
	}
	return n, err
}

func (u *upload) Close() error {
	if u.in == nil || !u.closed.CompareAndSwap(false, true) {
		return nil
	}
	return u.in.Close()
}

// openBody lets each attempt open a body that is not small: the result of GetBody, or else the
// bytes that were read before.
func (x *call) openBody() error {
	to := &x.Request
	switch {
	case to.Body == nil:
		return nil
	case to.ContentLength >= 0 && to.ContentLength <= hop.MaxRepeatedBody && to.Trailer == nil && x.client.fields.Upgrade(x.in.Header) == "":
		return nil
	case x.in.GetBody != nil:
		to.Body, to.Open = nil, x.reopen
		return nil
	}
	return x.keep(nil)
}

// keep reads the whole body, which begins with ahead.
func (x *call) keep(ahead []byte) (err error) {
	if x.whole, err = send.Keep(x.Reserved.Account, ahead, &x.Body); err != nil {
		return err
	}
	x.Request.Body, x.Request.Open, x.Request.ContentLength = nil, x.whole.Open, x.whole.Len()
	if x.Request.Trailer != nil {
		x.Request.ContentLength = -1 // in HTTP/1.1 no body of known length has trailers
	}
	return nil
}

// reopen returns the request's own body, and what GetBody returns after that.
func (x *call) reopen() (io.ReadCloser, error) {
	if x.opened.CompareAndSwap(false, true) {
		return openedBody{&x.Body, &x.upload}, nil
	}
	in, err := x.in.GetBody()
	if err != nil {
		x.Body.Failed.CompareAndSwap(nil, &err)
		return nil, err
	}
	again := &upload{ctx: x.Ctx, in: in, left: cmp.Or(x.in.ContentLength, -1)}
	return openedBody{&copiedBody{again, &x.Body}, again}, nil
}

// openedBody is a body as one attempt reads it.
type openedBody struct {
	io.Reader
	io.Closer
}

// copiedBody is a body of GetBody, whose failure is that of the first one.
type copiedBody struct {
	io.Reader
	first *send.Body
}

func (b *copiedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF {
		b.first.Failed.CompareAndSwap(nil, &err)
	}
	return n, err
}
