package link

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

// waitTold is what the server has said of the wait of a request.
type waitTold uint8

const (
	untold    waitTold = iota // nothing: the request may have begun
	toldWaits                 // it has not begun
	toldBegun                 // it may have begun
)

// noteWait takes a waiting or begun frame.
func (cc *clientConn) noteWait(h header) error {
	if h.length > 0 {
		return protocolError("%v frame of %d bytes", h.kind, h.length)
	}
	if st := cc.lookup(h.stream, false); st != nil && !st.noteWait(h.kind) {
		return protocolError("stream %d: %v out of order", h.stream, h.kind)
	}
	return nil
}

// noteWait reports whether the frame was in order: a wait is said once, before any
// answer, and its end once after it.
func (st *clientStream) noteWait(k kind) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.answered || st.interims != nil:
		return false
	case k == kindWaiting && st.told == untold:
		st.told = toldWaits
	case k == kindBegun && st.told == toldWaits:
		st.told = toldBegun
	default:
		return false
	}
	return true
}

// waits reports whether the server has said that the request waits, and nothing
// since.
func (st *clientStream) waits() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.told == toldWaits && !st.answered && st.interims == nil
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

// readOn is for how long a client reads on when it can no longer write.
const readOn = time.Second

// readOut sends nothing more, but reads what the server has said before it ended.
func (cc *clientConn) readOut(err error) {
	cc.draining.Store(true)
	cc.out.close(err)
	_ = cc.nc.SetReadDeadline(time.Now().Add(readOn)) // else the watch ends it
}

// heardAll reports whether the client has read all that the server's kernel had
// taken when the connection ended. It is called when the writer has ended as well.
//
// The end of the stream (FIN) arrives in order, behind all of it. A reset (RST)
// proves nothing, because the server's kernel drops what the reset overtakes. Linux
// reports a reset once, to the reader or to the writer, and the other one then sees
// the end of the stream. Nothing is known if this side or a proxy ended the
// connection; over a proxy the server sees another address than this end has. Under
// TLS nothing is known either: an attacker can end a TCP stream anywhere, and a dead
// server's kernel ends it without authentication.
func (cc *clientConn) heardAll() bool {
	if _, secure := cc.bare.(*tls.Conn); secure || cc.peer.Sees != cc.nc.LocalAddr().String() || cc.in.end != io.EOF {
		return false
	}
	failed := cc.writeErr
	return failed == nil || errors.Is(failed, syscall.EPIPE) || errors.Is(failed, io.ErrClosedPipe)
}
