package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// clientConn is the client's end of a connection. It takes new requests until it is draining, which
// is final and can begin at either end. mu guards the streams and that change, which Client looks at
// without mu.
type clientConn struct {
	conn
	made     time.Time   // when the hellos were exchanged
	draining atomic.Bool // it takes no new requests

	mu      sync.Mutex
	streams map[uint64]*clientStream
	opened  uint64 // highest stream
}

// usable reports whether cc takes requests, so far as is known.
func (cc *clientConn) usable() bool {
	return cc != nil && !cc.draining.Load() && !cc.stalled.Load() && !cc.ended()
}

// handshake checks that both ends are members of one cluster, for as long as ctx lasts.
func (cc *clientConn) handshake(ctx context.Context, plain bool) error {
	hs := handshake{cfg: cc.cfg, in: cc.in, out: cc.nc, plain: plain}
	disarm := context.AfterFunc(ctx, func() { cc.nc.SetDeadline(netutil.Past) })
	err := hs.asClient()
	cc.mine, cc.peer = hs.mine, hs.peer
	if !disarm() {
		return context.Cause(ctx)
	}
	return err
}

// run reads until the connection ends and then tells every stream.
func (cc *clientConn) run() {
	cc.start()
	err := cc.readFrames(cc.frame)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	cc.fail(err)
	cc.wg.Wait() // the writer has ended: what it handed over is final
	handed := cc.out.handed()
	lost, unsent := cc.abort(handed, cc.heardAll())
	if lost+unsent > 0 && !errors.Is(cc.cause, ErrClosed) {
		cc.cfg.Logger.Warn("link: connection lost", "peer", cc.nc.RemoteAddr(), "local", cc.nc.LocalAddr(),
			"age", time.Since(cc.made).Round(time.Millisecond), "requests", cc.opened, "lost", lost, "not_started", unsent,
			"bytes_sent", handed, "error", cc.cause)
	}
}

// abort ends the requests of a connection of whose bytes the kernel took handed;
// heardAll says that all has come that the server has sent.
// It returns how many may have run, and how many did not start.
func (cc *clientConn) abort(handed int64, heardAll bool) (lost, unsent int) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	for _, st := range cc.streams {
		cc.forgetLocked(st)
		outcome := ErrLost
		switch {
		case st.headEnd > handed: // the head is not complete: nothing started
			outcome = ErrNotStarted
			unsent++
		case heardAll && st.stage == waiting:
			outcome = ErrWaited
			unsent++
		case !st.abandoned:
			lost++
		}
		st.stop(fmt.Errorf("%w: %w", outcome, cc.cause))
	}
	return lost, unsent
}

// do sends req and waits for the head of the answer.
func (cc *clientConn) do(ctx context.Context, req *Request) (*Response, error) {
	st := newClientStream(ctx, cc, req)
	if err := cc.send(ctx, st, req); err != nil {
		return nil, err
	}
	err := st.head(ctx, req.Interims)
	if req.Body != nil && req.Open == nil {
		err = req.detach(err)
	}
	if err != nil {
		return nil, err
	}
	return &st.resp, nil
}

// inlineBody is the longest body that goes out in one piece with the head, so that
// nothing has to wait in between.
const inlineBody = maxData

// send opens st and starts sending the body.
func (cc *clientConn) send(ctx context.Context, st *clientStream, req *Request) error {
	inline := req.small() && req.Trailer == nil && req.ContentLength <= inlineBody
	room := 0
	if inline {
		room = 2 * int(req.ContentLength)
	}
	scratch := pool.get(room)
	defer pool.put(scratch)
	var timeout time.Duration
	if at, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(at), 1)
	}
	b := req.appendHead(openFrame(scratch.b), timeout)
	closeFrame(b, 0, header{kind: kindRequest, end: !req.hasBody()})
	size := len(b) - headerLen
	if int64(size) > cc.peer.Header || size > maxPayload {
		return notStarted(fmt.Errorf("%w: %d bytes, the peer takes %d", ErrHeaderTooLarge, size, cc.peer.Header))
	}
	if inline {
		st.credit -= len(req.up.kept.b)
		b = appendFrame(b, header{kind: kindData, end: true}, req.up.kept.b)
	}
	scratch.b = b
	if err := cc.open(st, b); err != nil {
		return notStarted(err)
	}
	if req.hasBody() && !inline {
		req.attach(st)
	}
	return nil
}

// open gives st its number and queues its first frames.
func (cc *clientConn) open(st *clientStream, frames []byte) error {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	if cc.draining.Load() {
		return ErrDraining
	}
	if int64(len(cc.streams)) >= cc.peer.Streams {
		return ErrTooManyStreams
	}
	st.id = cc.opened + 1
	for at := 0; at < len(frames); {
		h := parseHeader(frames[at:])
		h.stream = st.id
		putHeader(frames[at:], h)
		at += headerLen + h.length
	}
	end, err := cc.out.add(frames)
	if err != nil {
		return err
	}
	cc.opened = st.id
	st.headEnd = end - int64(len(frames)-headerLen-parseHeader(frames).length)
	cc.streams[st.id] = st
	return nil
}

// lookup returns a stream, nil if it is over or was abandoned. With last set,
// for the server's last frame on it, it is forgotten.
func (cc *clientConn) lookup(id uint64, last bool) *clientStream {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	st := cc.streams[id]
	if st == nil {
		return nil
	}
	if last {
		cc.forgetLocked(st)
	}
	if st.abandoned {
		return nil
	}
	return st
}

// abandon records that st was given up on this side. It reports false if st is over. st still
// counts until the server's last frame on it, which says that the handler has returned.
func (cc *clientConn) abandon(st *clientStream) bool {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	return cc.abandonLocked(st)
}

func (cc *clientConn) abandonLocked(st *clientStream) bool {
	if cc.streams[st.id] != st || st.abandoned {
		return false
	}
	st.abandoned = true
	if st.account != nil {
		st.ended = st.account.Abandon(int(cc.peer.Streams))
	}
	return true
}

// giveUpRepeatable ends, on a stalled connection, the requests that their callers will repeat.
func (cc *clientConn) giveUpRepeatable() {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	for id, st := range cc.streams {
		if st.repeatable && cc.abandonLocked(st) {
			cc.control(kindReset, id, uint64(CodeCancel))
			st.stop(fmt.Errorf("%w: %w", ErrLost, ErrStalled))
		}
	}
}

// forgetLocked drops a stream; the last one of a draining connection ends it.
func (cc *clientConn) forgetLocked(st *clientStream) {
	delete(cc.streams, st.id)
	if st.ended != nil {
		st.ended()
	}
	if cc.draining.Load() && len(cc.streams) == 0 {
		cc.fail(ErrDraining)
	}
}

// drain opens no streams any more. Streams above last did not start, as the peer
// says; the connection ends with the last of the others.
func (cc *clientConn) drain(last uint64) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	cc.draining.Store(true)
	for id, st := range cc.streams {
		if id > last {
			cc.forgetLocked(st)
			st.stop(notStarted(ErrDraining))
		}
	}
	if len(cc.streams) == 0 {
		cc.fail(ErrDraining)
	}
}

// frame takes one frame from the server.
func (cc *clientConn) frame(h header) error {
	switch h.kind {
	case kindResponse, kindTrailers, kindRefused:
		return cc.head(h)
	case kindWaiting, kindBegun:
		return cc.noteWait(h)
	case kindGoAway, kindReset:
	default:
		return protocolError("%v frame from a server", h.kind)
	}
	n, err := cc.number(h)
	if err != nil {
		return err
	}
	if h.kind == kindGoAway {
		cc.drain(n)
	} else if st := cc.lookup(h.stream, true); st != nil {
		st.stop(&ResetError{Code: Code(n)})
	}
	return nil
}

// findStream is the connection's find.
func (cc *clientConn) findStream(h header) (*stream, error) {
	st := cc.lookup(h.stream, false)
	switch {
	case st == nil:
		return nil, nil
	case h.kind == kindData && st.stage != answered:
		return nil, protocolError("stream %d: a body without a head", h.stream)
	}
	return &st.stream, nil
}

// noteWait takes a waiting or begun frame.
func (cc *clientConn) noteWait(h header) error {
	if h.length > 0 {
		return protocolError("%v frame of %d bytes", h.kind, h.length)
	}
	st := cc.lookup(h.stream, false)
	if st == nil {
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case h.kind == kindWaiting && st.stage == sent:
		st.stage = waiting
	case h.kind == kindBegun && st.stage == waiting:
		st.stage = mayRun
	default:
		return protocolError("stream %d: %v out of order", h.stream, h.kind)
	}
	return nil
}

// head takes a frame whose payload is needed as a whole.
func (cc *clientConn) head(h header) error {
	st := cc.lookup(h.stream, false)
	p, err := cc.payload(h)
	if err != nil || st != nil && st.takeFrame(h, p) {
		return err
	}
	if st != nil {
		st.giveUp(protocolError("stream %d: malformed %v frame", st.id, h.kind), CodeMalformed)
	}
	if h.end || h.kind == kindRefused {
		cc.lookup(h.stream, true)
	}
	return nil
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
