package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
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

// Close implements [io.Closer].
func (u *upload) Close() error {
	if u.in == nil || !u.closed.CompareAndSwap(false, true) {
		return nil
	}
	return u.in.Close()
}
