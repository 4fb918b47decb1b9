package link

import (
	"context"
	"errors"
)

// Overflow buffers parts of an answer that its client is too slow for, and sends them on at the
// client's speed.
type Overflow interface {
	// Write takes as much of p as it has room for, without waiting for the client, and returns that
	// length. An error means that sending has failed.
	Write(p []byte) (int, error)
	// Idle reports whether everything taken has been sent.
	Idle() bool
	// End waits until everything taken has been sent, frees the Overflow, and returns the error of
	// sending, if any. It may be called once.
	End() error
}

// OverflowTo lets the answer's writer continue while its client reads slowly. Parts without room go
// to an Overflow that begin makes for the request's client; it sends them with send. If that is
// full too, the writer waits until ctx ends, which breaks the answer off. Without OverflowTo the
// writer waits at once, for as long as there is a client.
func (w *ResponseWriter) OverflowTo(ctx context.Context, begin func(client uint64, send func(p []byte) error) Overflow) {
	w.ctx, w.overflow = ctx, begin
}

func (w *ResponseWriter) sendBody(p []byte) error { return w.st.write(p, false) }

// put sends p, or passes the part that does not fit to an overflow. If that is full, put waits until
// the client has taken all that came before, and p.
func (w *ResponseWriter) put(p []byte) error {
	switch {
	case len(p) == 0:
		return nil
	case w.overflow == nil:
		return w.sendBody(p)
	case w.over == nil:
		n, err := w.st.send(nil, p, false, false)
		if err != nil || n == len(p) {
			return err
		}
		p = p[n:]
		w.over = w.overflow(w.st.req.Client, w.sendBody)
	}
	n, err := w.over.Write(p)
	if err != nil || n == len(p) {
		return err
	}
	defer context.AfterFunc(w.ctx, func() { w.st.stopSending(context.Cause(w.ctx)) })()
	if err := w.endOverflow(); err != nil {
		return err
	}
	return w.sendBody(p[n:])
}

func (w *ResponseWriter) endOverflow() error {
	if w.over == nil {
		return nil
	}
	over := w.over
	w.over = nil
	return over.End()
}

// pushHead queues a head. It waits for room only if there is no overflow, or the
// client has stopped reading altogether.
func (w *ResponseWriter) pushHead(frames []byte) error {
	if w.overflow != nil {
		if _, err := w.st.c.out.add(frames); !errors.Is(err, ErrTooManyStreams) {
			return err
		}
	}
	_, err := w.st.c.out.push(frames, nil, true)
	return err
}
