package send

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/internal/spool"
)

// Body counts the client's body, and remembers what went wrong with reading it.
type Body struct {
	Reader   io.Reader
	Received atomic.Int64 // bytes
	Ended    atomic.Bool  // at its end
	Failed   atomic.Pointer[error]
}

func (b *Body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.Received.Add(int64(n))
	switch err {
	case nil:
	case io.EOF:
		b.Ended.Store(true)
	default:
		b.Failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Kept is a body that was read to its end before any worker was asked for the key. Each attempt
// sends it from its start.
type Kept struct{ *spool.Spool }

// Open is a [link.Request]'s Open.
func (k Kept) Open() (io.ReadCloser, error) { return k.NewReader(), nil }

// Bytes returns the body.
func (k Kept) Bytes() ([]byte, error) {
	reader := k.NewReader()
	defer reader.Close()
	return io.ReadAll(reader)
}

// Keep reads a whole body, which begins with ahead. Its error wraps ErrClientBody, ErrBodyTooLarge
// or ErrBodiesFull. The spool must be closed in any case.
func Keep(of spool.Account, ahead []byte, body *Body) (Kept, error) {
	k := Kept{of.NewSpool()}
	_, err := k.ReadFrom(io.MultiReader(bytes.NewReader(ahead), body))
	switch failed := body.Failed.Load(); {
	case failed != nil && errors.Is(*failed, ErrBodyTooLarge):
		return k, ErrBodyTooLarge
	case failed != nil:
		return k, fmt.Errorf("%w: %w", ErrClientBody, *failed)
	case errors.Is(err, spool.ErrTooLong):
		return k, ErrBodyTooLarge
	case err != nil:
		return k, fmt.Errorf("%w: %w", ErrBodiesFull, err)
	}
	k.CloseWrite(nil)
	return k, nil
}

// Limited is a body of at most Left more bytes. The error of a longer one is ErrBodyTooLarge.
type Limited struct {
	io.Reader
	Left int64
}

func (b *Limited) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.Left -= int64(n); b.Left < 0 {
		return n, ErrBodyTooLarge
	}
	return n, err
}
