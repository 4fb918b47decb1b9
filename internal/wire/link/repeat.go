package link

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

func (r *Request) hasBody() bool { return r.Body != nil || r.Open != nil }

// attach sends the body to st from its start, when the copy of a former attempt has ended: its stream is over, but it may
// still read.
func (r *Request) attach(st *clientStream) {
	u := &r.up
	u.mu.Lock()
	defer u.mu.Unlock()
	before, done := u.reading, make(chan struct{})
	u.stream, u.reading = st, done
	go func() {
		defer close(done) // the last that is done with r
		if before != nil {
			<-before
		}
		if err := r.copy(st); err != nil {
			st.abandon(fmt.Errorf("link: reading the request's body: %w", err))
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.reading == done {
			u.reading = nil
			u.freeLocked()
		}
	}()
}

// freeLocked frees what is kept once nothing needs it any more.
func (u *upload) freeLocked() {
	if u.settled && u.reading == nil {
		pool.put(u.kept)
		u.kept = nil
	}
}

// copy sends the body until it has come to its end, or st has. The error is that of
// the body.
func (r *Request) copy(st *clientStream) error {
	next := (&replay{Request: r, st: st}).next
	if r.Open != nil {
		body := r.Open()
		defer body.Close()
		buf := pool.get(maxData)
		defer pool.put(buf)
		next = func() ([]byte, error) {
			n, err := body.Read(buf.b[:maxData])
			return buf.b[:n], err
		}
	}
	var total int64
	for {
		piece, err := next()
		total += int64(len(piece))
		known := r.ContentLength >= 0
		if known && (total > r.ContentLength || err == io.EOF && total < r.ContentLength) {
			return ErrContentLength
		}
		if err != nil && err != io.EOF {
			return err
		}
		last := err == io.EOF || known && total == r.ContentLength && r.Open != nil // a Body may hold its io.EOF back
		switch {
		case last && r.Trailer == nil:
			_ = st.write(piece, true) // it fails with the stream
			return nil
		case len(piece) > 0 && st.write(piece, false) != nil:
			return nil
		case last:
			r.finish(st)
			return nil
		}
	}
}

// finish ends the body on st with its trailers. Body is at its end.
func (r *Request) finish(st *clientStream) {
	trailers := r.Trailer()
	switch most := st.c.peer.Header; {
	case len(trailers) == 0:
		st.write(nil, true)
	case int64(len(trailers)) > most:
		st.abandon(fmt.Errorf("%w: %d bytes of trailers, the peer takes %d", ErrHeaderTooLarge, len(trailers), most))
	default:
		st.writeTrailers(trailers)
	}
}

// replay is Body as one attempt sends it: what is kept, and then what is read on.
type replay struct {
	*Request
	st   *clientStream
	sent int // bytes of what is kept
}

// next returns the next piece, which is valid until the next call. All pieces before it have been sent.
func (b *replay) next() (piece []byte, err error) {
	u := &b.up
	if u.kept == nil {
		u.kept = pool.get(minBuffer)
	}
	if b.sent == len(u.kept.b) {
		if u.err != nil {
			return nil, u.err
		}
		if err := b.makeRoom(); err != nil {
			return nil, err
		}
		var n int
		n, u.err = b.Body.Read(u.kept.b[b.sent:min(b.sent+maxData, cap(u.kept.b))])
		u.kept.b, u.total, err = u.kept.b[:b.sent+n], u.total+int64(n), u.err
	}
	piece = u.kept.b[b.sent:]
	b.sent = len(u.kept.b)
	return piece, err
}

// makeRoom makes room to read into. If there is none, and that is so for the initial window, that st has credit again says
// that the worker reads.
func (b *replay) makeRoom() error {
	u := &b.up
	switch n := len(u.kept.b); {
	case n < cap(u.kept.b):
		return nil
	case n < initialWindow && b.reserve(4*n):
		u.enlarge(4 * n)
		return nil
	case u.total == b.ContentLength: // only the end is left to read: the worker may give no more credit
		u.kept.b = slices.Grow(u.kept.b, 1)
		return nil
	}
	if _, err := b.st.acquire(0, true); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stream != b.st {
		return ErrClosed // another attempt has to send this first
	}
	u.admitted, u.unkept = true, u.unkept || len(u.kept.b) < initialWindow
	u.kept.b, b.sent = u.kept.b[:0], 0
	return nil
}

// tooLate returns the error of a request that did not start, with err, but of whose
// body a part is not kept, since the server has let more of it come.
func tooLate(err error) error {
	broken := ErrLost
	if _, refused := errors.AsType[*RefusedError](err); refused {
		broken = ErrProtocol
	}
	return fmt.Errorf("%w: the body was under way already: %v", broken, err)
}
