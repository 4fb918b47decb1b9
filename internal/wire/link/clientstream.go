package link

import (
	"context"
	"slices"
	"sync"

	"github.com/keyway-go/keyway/internal/wake"
)

// clientStream is a request at the client's end. Its memory is used again once its
// answer has been released.
type clientStream struct {
	stream
	clientState
	fields Fields // memory for those of the answer
}

// clientState is the part of a clientStream that is reset before its memory is used again. The
// connection's reader changes stage under mu. A caller that gives up sets abandoned, and the stream
// counts until the server's last frame.
type clientState struct {
	cc       *clientConn
	ctx      context.Context // of Do
	headEnd  int64           // position in the byte stream behind the head of the request
	resp     Response
	stage    stage          // under mu
	interims []responseHead // that have come before resp; under mu
	handed   int            // of interims to the caller

	repeatable bool // as the request

	account   Account
	abandoned bool   // given up, and the server's last frame has not come; under cc.mu
	ended     func() // of the account; under cc.mu
}

// stage is how far the server has come with a request, as it says.
type stage uint8

const (
	sent     stage = iota // nothing has come: the request may have begun
	waiting               // it has not begun
	mayRun                // it may have begun, after a wait
	runs                  // there was an interim answer
	answered              // resp is set
)

var clientStreams = sync.Pool{New: func() any { return new(clientStream) }}

// newClientStream returns a stream for a request on cc. The stream gets its number when it is sent.
func newClientStream(ctx context.Context, cc *clientConn, req *Request) *clientStream {
	st := clientStreams.Get().(*clientStream)
	st.c, st.window, st.credit = &cc.conn, initialWindow, initialWindow
	st.cc, st.ctx, st.account, st.repeatable = cc, ctx, req.Account, req.Repeatable
	if req.Watched {
		st.watched = true
		req.current.Store(st)
	}
	return st
}

// recycle makes the stream's memory ready for another one, unless it was given up: then
// the connection's reader may still come to it.
func (st *clientStream) recycle() {
	st.mu.Lock()
	unused := st.complete
	st.mu.Unlock()
	if !unused {
		return
	}
	select {
	case <-st.readable: // nobody waited any more
	default:
	}
	st.id, st.streamState, st.clientState = 0, streamState{readable: st.readable}, clientState{}
	clientStreams.Put(st)
}

// takeFrame takes the payload of a response, trailers or refused frame. It
// reports whether it was in order.
func (st *clientStream) takeFrame(h header, p []byte) bool {
	switch h.kind {
	case kindRefused:
		refusal, err := decodeRefusal(p)
		if err != nil || st.stage > mayRun {
			return false
		}
		st.cc.lookup(st.id, true)
		st.stop(refusal)
		return true
	case kindTrailers:
		f := Fields(append([]byte(nil), p...))
		if !f.valid() || st.stage != answered {
			return false
		}
		st.cc.last(st.id)
		st.finish(f)
		return true
	}
	head, err := decodeResponse(p)
	if err != nil || st.stage == answered {
		return false
	}
	if isInterim(head.status) {
		head.fields = slices.Clone(head.fields)
		return !h.end && st.announce(head)
	}
	if h.end {
		st.cc.last(st.id)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.fields = append(st.fields[:0], head.fields...)
	st.resp = Response{Status: head.status, ContentLength: head.length, Fields: st.fields, Body: (*Body)(st)}
	st.stage = answered
	switch {
	case h.end:
		st.finishLocked(nil)
	case !st.cc.in.follows(kindData, st.id): // else that wakes whoever waits, once for both
		wake.Up(st.readable)
	}
	return true
}

// announce takes the head of an interim answer. It reports whether there may be
// another one.
func (st *clientStream) announce(head responseHead) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.interims) == maxInterim {
		return false
	}
	st.interims, st.stage = append(st.interims, head), runs
	wake.Up(st.readable)
	return true
}

// close gives up an answer that has not come to its end, and frees what is there of it.
func (st *clientStream) close() {
	st.mu.Lock()
	complete := st.complete
	if complete {
		st.discardLocked()
	}
	st.mu.Unlock()
	if !complete {
		st.abandon(ErrClosed)
		st.discard()
	}
}

// head waits for the head of the answer, and hands those of interim ones before
// it to interims, which may be nil.
func (st *clientStream) head(ctx context.Context, interims Interims) error {
	for {
		err := st.await(ctx, func() bool { return st.stage == answered || st.handed < len(st.interims) })
		if err != nil {
			st.abandon(err)
			return err
		}
		if st.handed == len(st.interims) {
			st.mu.Unlock()
			return nil
		}
		head := st.interims[st.handed]
		st.handed++
		st.mu.Unlock()
		if interims != nil {
			interims.Interim(head.status, head.fields)
		}
	}
}

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
