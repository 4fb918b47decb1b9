package link

import (
	"context"
	"fmt"
	"io"
)

// clientStream is a request at the client's end.
type clientStream struct {
	stream
	cc       *clientConn
	headEnd  int64 // position in the byte stream behind the head of the request
	resp     Response
	body     Body
	answered bool          // resp is set; under mu
	told     waitTold      // under mu
	interims *interimHeads // that have come before resp; under mu

	account   Account
	abandoned bool   // given up, and the server's last frame has not come; under cc.mu
	ended     func() // of the account; under cc.mu
}

// interimHeads are the heads of a stream's interim answers.
type interimHeads struct {
	heads       [maxInterim]responseHead
	come, taken int
}

// add reports whether there may be another one.
func (q *interimHeads) add(head responseHead) bool {
	if q.come == maxInterim {
		return false
	}
	q.heads[q.come] = head
	q.come++
	return true
}

// next returns the next one that has come. q may be nil.
func (q *interimHeads) next() (head responseHead, ok bool) {
	if q == nil || q.taken == q.come {
		return head, false
	}
	head, q.heads[q.taken] = q.heads[q.taken], responseHead{}
	q.taken++
	return head, true
}

// take takes the payload of a response, trailers or refused frame. It
// reports whether it was in order.
func (st *clientStream) take(h header, p []byte) bool {
	switch h.kind {
	case kindRefused:
		refusal, err := decodeRefusal(p)
		if err != nil || st.started() {
			return false
		}
		st.cc.lookup(st.id, true)
		st.stop(refusal)
		return true
	case kindTrailers:
		f := Fields(append([]byte(nil), p...))
		if !f.valid() || !st.hasHead() {
			return false
		}
		st.finished(f)
		return true
	}
	head, err := decodeResponse(append([]byte(nil), p...))
	if err != nil || st.hasHead() {
		return false
	}
	if isInterim(head.status) {
		return !h.end && st.announce(head)
	}
	st.mu.Lock()
	st.resp = Response{Status: head.status, ContentLength: head.length, Fields: head.fields, Body: &st.body}
	st.answered = true
	wake(st.readable)
	st.mu.Unlock()
	if h.end {
		st.finished(nil)
	}
	return true
}

// announce takes the head of an interim answer. It reports whether there may be
// another one.
func (st *clientStream) announce(head responseHead) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.interims == nil {
		st.interims = new(interimHeads)
	}
	if !st.interims.add(head) {
		return false
	}
	wake(st.readable)
	return true
}

func (st *clientStream) hasHead() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.answered
}

// started reports whether there has been a head, of an interim answer too.
func (st *clientStream) started() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.answered || st.interims != nil
}

// finished ends a stream whose answer has come to its end.
func (st *clientStream) finished(trailer Fields) {
	st.cc.lookup(st.id, true)
	st.endReceive(io.EOF, trailer)
	st.stopSending(ErrClosed)
}

// head waits for the head of the answer, and hands those of interim ones before
// it to interims, which may be nil.
func (st *clientStream) head(ctx context.Context, interims Interims) error {
	for {
		st.mu.Lock()
		if head, ok := st.interims.next(); ok {
			st.mu.Unlock()
			if interims != nil {
				interims.Interim(head.status, head.fields)
			}
			continue
		}
		if st.answered {
			st.mu.Unlock()
			return nil
		}
		if st.inErr != nil {
			err := st.inErr
			st.mu.Unlock()
			return err
		}
		ready := waiterLocked(&st.readable)
		st.mu.Unlock()
		select {
		case <-ready:
		case <-ctx.Done():
			err := context.Cause(ctx)
			st.abandon(err)
			return err
		}
	}
}

// abandon ends a stream that this side no longer wants.
func (st *clientStream) abandon(err error) {
	st.giveUp(err, CodeCancel)
}

// giveUp ends a stream from this side and tells the peer, unless it is over.
func (st *clientStream) giveUp(err error, code Code) {
	if st.cc.abandon(st) {
		st.cc.control(kindReset, st.id, uint64(code))
	}
	st.stop(err)
}

// endWithTrailers ends the request's body.
func (st *clientStream) endWithTrailers(f Fields) error {
	if int64(len(f)) > st.c.peer.header {
		err := fmt.Errorf("%w: %d bytes of trailers, the peer takes %d", ErrHeaderTooLarge, len(f), st.c.peer.header)
		st.abandon(err)
		return err
	}
	return st.writeTrailers(f)
}
