package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// readBody reads the whole body, before any worker is asked for the key.
func (x *call) readBody() (err error) {
	to, body := &x.Request, x.in.Body
	if body == nil || body == http.NoBody {
		return nil
	}
	defer x.closeBody()
	defer context.AfterFunc(x.Ctx, x.closeBody)() // a Read may take long
	defer func() {
		if err != nil && x.Ctx.Err() != nil {
			err = context.Cause(x.Ctx)
		}
	}()
	x.Body.Reader, to.Body, to.ContentLength = body, &x.Body, -1
	if n := x.in.ContentLength; n > 0 {
		x.Body.Reader, to.ContentLength = &declaredBody{body, n}, n
	}
	return x.Keep()
}

// declaredBody is a body of the declared length. It fails if there is less of it, or more.
type declaredBody struct {
	io.Reader
	left int64
}

func (b *declaredBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.left -= int64(n)
	for b.left == 0 && err == nil { // behind the last byte has to be the end
		var one [1]byte
		var more int
		more, err = b.Reader.Read(one[:])
		b.left -= int64(more)
	}
	switch {
	case b.left < 0: // the whole of the declared length must not arrive
		return 0, errors.New("it is longer than the request's ContentLength")
	case b.left > 0 && err == io.EOF:
		return 0, fmt.Errorf("it is %d bytes shorter than the request's ContentLength: %w", b.left, io.ErrUnexpectedEOF)
	}
	return n, err
}
