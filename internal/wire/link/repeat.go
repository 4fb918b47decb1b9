package link

import (
	"fmt"
	"io"
)

func (r *Request) hasBody() bool { return r.Body != nil || r.Open != nil }

// startCopyLocked sends the body to st from its start. The copy of a former attempt may still run:
// reading is closed when both have ended.
func (r *Request) startCopyLocked(st *clientStream) {
	before, done := r.up.reading, make(chan struct{})
	r.up.reading = done
	go func() {
		defer close(done) // the last that is done with r
		if err := r.copy(st); err != nil {
			st.abandon(fmt.Errorf("link: reading the request's body: %w", err))
		}
		if before != nil {
			<-before
		}
	}()
}

// copy sends the body until it has come to its end, or st has. The error is that of
// the body.
func (r *Request) copy(st *clientStream) error {
	body, err := r.Open()
	if err != nil {
		return err
	}
	defer body.Close()
	buf := pool.get(maxData)
	defer pool.put(buf)
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
