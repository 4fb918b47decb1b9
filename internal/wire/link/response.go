package link

import "io"

// Response is a worker's answer.
type Response struct {
	Status        int
	ContentLength int64 // declared length of the body, also where there is none (HEAD, 304); -1 when not declared
	Fields        Fields
	Body          *Body // never nil; to be closed
}

// Release gives the memory of the answer back for others: neither the Response nor
// anything that it has led to, such as the text of its fields, may be used any more. It may
// be left out. It comes after Body.Close, and after the end of Request.BodyDone.
func (r *Response) Release() { (*clientStream)(r.Body).recycle() }

// Body is the body of a Response. It is for one goroutine at a time. Reading
// fails once the context given to Do is done.
type Body clientStream

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) { return b.read(b.ctx, p) }

// Next returns the next piece of the body without copying it. It is valid
// until the next call of any method. At the end the error is io.EOF.
func (b *Body) Next() ([]byte, error) { return b.next(b.ctx) }

// Trailer returns the trailers once reading has come to io.EOF.
func (b *Body) Trailer() Fields {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trailer
}

// Close frees the body. An answer that has not come to its end is given up,
// which the worker's handler sees as the end of its context. Unlike the other
// methods it may be called during a Read, which then fails.
func (b *Body) Close() error {
	(*clientStream)(b).close()
	return nil
}

// Buffered reports how many bytes can be read without waiting, and whether
// they are all that is left: then Next returns them, in pieces, and io.EOF,
// at once.
func (b *Body) Buffered() (n int, last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.chunks {
		n += len(c.b)
	}
	return n - b.off, b.inErr == io.EOF
}
