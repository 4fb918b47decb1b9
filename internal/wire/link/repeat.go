package link

import (
	"fmt"
	"io"
	"sync"
)

func (r *Request) hasBody() bool { return r.Body != nil || r.Open != nil }

// copies counts the attempts that send what Request.Open has returned. It outlives
// the request, whose memory may be used again as soon as none is closed.
type copies struct {
	mu      sync.Mutex
	running int
	none    chan struct{} // closed when running becomes 0
}

// startCopy sends the body to st from its start.
func (r *Request) startCopy(st *clientStream) {
	u := &r.up
	u.mu.Lock()
	if u.copies == nil {
		u.copies = new(copies)
	}
	c := u.copies
	u.mu.Unlock()
	c.beginCopy()
	go func() {
		defer c.endCopy()
		if err := r.copy(st); err != nil {
			st.abandon(fmt.Errorf("link: reading the request's body: %w", err))
		}
	}()
}

func (c *copies) beginCopy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running++; c.running == 1 {
		c.none = make(chan struct{})
	}
}

func (c *copies) endCopy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running--; c.running == 0 {
		close(c.none)
	}
}

// done returns a channel that is closed once no attempt reads the body.
func (c *copies) done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.none
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
