package send

import (
	"io"
	"sync/atomic"
)

// Body counts the client's body, and remembers what went wrong with reading it.
type Body struct {
	Reader   io.Reader
	Received atomic.Int64  // bytes
	Count    *atomic.Int64 // counts them too, as they come; nil for nothing
	Ended    atomic.Bool   // at its end
	Failed   atomic.Pointer[error]
}

func (b *Body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.Received.Add(int64(n))
	if b.Count != nil {
		b.Count.Add(int64(n))
	}
	switch err {
	case nil:
	case io.EOF:
		b.Ended.Store(true)
	default:
		b.Failed.CompareAndSwap(nil, &err)
	}
	return n, err
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
