package link

import (
	"fmt"
	"io"
)

// hasBody reports whether the request has a body.
func (r *Request) hasBody() bool { return r.Body != nil || r.Open != nil }

// copies counts the attempts that send what Request.Open has returned. It is
// guarded by upload.mu.
type copies struct {
	running int
	none    chan struct{} // closed when running becomes 0; nil while it is
}

// startCopy sends the body to st from its start.
func (r *Request) startCopy(st *clientStream) {
	u := &r.up
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.copies.running++; u.copies.none == nil {
		u.copies.none = make(chan struct{})
	}
	go func() {
		defer r.endCopy()
		if err := r.copy(st); err != nil {
			st.abandon(fmt.Errorf("link: reading the request's body: %w", err))
		}
	}()
}

// endCopy notes that one of those who read the body has ended.
func (r *Request) endCopy() {
	u := &r.up
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.copies.running--; u.copies.running == 0 {
		close(u.copies.none)
		u.copies.none = nil
	}
}

// copy sends the body until it has come to its end, or st has. The error is that of
// the body.
func (r *Request) copy(st *clientStream) error {
	body, err := r.Open()
	if err != nil {
		return err
	}
	defer body.Close()
	buf := st.c.pool.get(maxData)
	defer st.c.pool.put(buf)
	var total int64
	for {
		n, err := body.Read(buf.b[:maxData])
		total += int64(n)
		known := r.ContentLength >= 0
		if known && (total > r.ContentLength || err == io.EOF && total < r.ContentLength) {
			return ErrContentLength
		}
		if err != nil && err != io.EOF {
			return err
		}
		last := err == io.EOF || known && total == r.ContentLength
		switch {
		case last && r.Trailer == nil:
			_ = st.write(buf.b[:n], true) // it fails with the stream
			return nil
		case n > 0 && st.write(buf.b[:n], false) != nil:
			return nil
		case last:
			r.finish(st)
			return nil
		}
	}
}
