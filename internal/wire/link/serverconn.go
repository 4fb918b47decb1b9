package link

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// serverConn is the server's end of a connection. It waits for the client's hello (greeting),
// serves, and drains once draining is set. Then the client closes it, or late does. mu guards
// streams to slow; the reader, watch, the handlers and Server.Shutdown change them.
type serverConn struct {
	conn
	srv    *Server
	remote string // the peer's address

	outdated atomic.Bool // it is to be renewed

	greeting *list.Element // in srv.greeting, until the client's hello has come; guarded by srv.mu

	mu       sync.Mutex
	streams  map[uint64]*serverStream // that the client may still send to
	running  int                      // handlers, those of cancelled streams included
	last     uint64                   // highest stream that was taken
	draining bool
	plain    bool        // it is for HTTP/1.1, and handed over unless it fails before
	late     *time.Timer // closes a drained connection; nil while it is not one
	waits    waits
	slow     list.List // of *stream: answers that wait to be read, the longest waiting first

	handlers netutil.Workers[*serverStream]
}

func (sc *serverConn) run() error {
	plain, err := sc.handshake()
	if plain && err == nil {
		return sc.handOver()
	}
	defer sc.nc.Close()
	if err != nil {
		if sc.ended() {
			return sc.cause
		}
		return err
	}
	sc.tick, sc.find = sc.recheck, sc.findStream
	sc.handlers.Run, sc.handlers.Keep = (*serverStream).serve, maxIdle
	sc.start()
	if sc.srv.shut() {
		sc.drain()
	}
	err = sc.readFrames(sc.frame)
	sc.fail(err)
	sc.wg.Wait()
	sc.mu.Lock()
	for id, st := range sc.streams {
		delete(sc.streams, id)
		st.cancel(fmt.Errorf("%w: %w", ErrLost, sc.cause))
	}
	if sc.late != nil {
		sc.late.Stop()
	}
	sc.mu.Unlock()
	sc.handlers.Close()
	sc.handlers.Wait()
	if sc.cause == io.EOF {
		return nil // the client closed between two frames
	}
	return sc.cause
}

// handshake makes sure that both ends are members of one cluster.
func (sc *serverConn) handshake() (plain bool, err error) {
	sc.nc.SetDeadline(time.Now().Add(handshakeTimeout))
	hs := handshake{cfg: sc.cfg, in: sc.in, out: sc.nc, sees: sc.remote}
	if err := hs.asServer(func() { sc.srv.greeted(sc) }); err != nil {
		return false, err
	}
	sc.mine, sc.peer = hs.mine, hs.peer
	return hs.plain, sc.nc.SetDeadline(time.Time{})
}

// Plain is a connection of a member that has switched to HTTP/1.1.
type Plain struct{ netutil.ReadAhead }

// handOver hands the connection to Server.Plain, whose it is from then on.
func (sc *serverConn) handOver() error {
	conn := &Plain{netutil.ReadAhead{Conn: sc.bare, Ahead: bytes.Clone(sc.in.arrived())}}
	sc.mu.Lock()
	sc.plain = true
	draining := sc.draining
	sc.mu.Unlock()
	if draining || sc.srv.Plain == nil || !sc.srv.Plain.Put(conn, sc.done, sc.handed) {
		netutil.CloseNow(conn)
		return ErrClosed
	}
	return nil
}

// handed reports whether the connection is handed over: fail does nothing any more, unless it was
// called before.
func (sc *serverConn) handed() (may bool) {
	sc.failOnce.Do(func() { may = true })
	return may
}

// recheck drains the connection if it is outdated, or if the server's store no longer is the
// client's. In the second case the client learns the reason when it connects again.
func (sc *serverConn) recheck() {
	sc.mine.Store = sc.cfg.Store()
	if sc.outdated.Load() || match(&sc.mine, &sc.peer) != nil {
		sc.drain()
	}
}

// drain tells the client that no further request will start. The client
// closes the connection after its last answer; if it does not, this side
// does, some time later.
func (sc *serverConn) drain() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.draining {
		return
	}
	sc.draining = true
	if sc.plain {
		sc.fail(ErrClosed)
		return
	}
	sc.control(kindGoAway, 0, sc.last)
	if sc.running == 0 {
		sc.closeSoonLocked()
	}
}

// closeSoonLocked closes the connection after pingTimeout, unless the client closes it first. An
// immediate close could lose answers that the client has not read.
func (sc *serverConn) closeSoonLocked() {
	if sc.late == nil && !sc.ended() {
		sc.late = time.AfterFunc(pingTimeout, func() { sc.fail(ErrClosed) })
	}
}

// frame takes one frame from the client.
func (sc *serverConn) frame(h header) error {
	switch h.kind {
	case kindRequest:
		return sc.request(h)
	case kindTrailers:
		return sc.trailers(h)
	case kindReset:
		return sc.reset(h)
	}
	return protocolError("%v frame from a client", h.kind)
}

// lookup returns the stream of a frame, nil if it is over.
func (sc *serverConn) lookup(h header) (*serverStream, error) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if h.stream > sc.last && !sc.draining {
		return nil, protocolError("%v frame on stream %d, which was not opened", h.kind, h.stream)
	}
	return sc.streams[h.stream], nil
}

// findStream is the connection's find.
func (sc *serverConn) findStream(h header) (*stream, error) {
	st, err := sc.lookup(h)
	if st == nil {
		return nil, err
	}
	return &st.stream, nil
}

func (sc *serverConn) remove(id uint64) bool {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	_, ok := sc.streams[id]
	delete(sc.streams, id)
	return ok
}

// reset forgets a stream that the client gives up. The client is told when its handler has
// returned.
func (sc *serverConn) reset(h header) error {
	if _, err := sc.number(h); err != nil {
		return err
	}
	st, err := sc.lookup(h)
	if st == nil {
		return err
	}
	sc.mu.Lock()
	st.abandoned = true
	delete(sc.streams, st.id)
	sc.mu.Unlock()
	st.cancel(context.Canceled)
	return nil
}

// request takes the head of a request and starts its handler.
func (sc *serverConn) request(h header) error {
	sc.mu.Lock()
	if h.stream <= sc.last {
		sc.mu.Unlock()
		return protocolError("stream %d opened after %d", h.stream, sc.last)
	}
	if sc.draining {
		sc.mu.Unlock()
		return sc.in.skip(h.length) // the client knows from goaway
	}
	sc.last = h.stream
	full := sc.running >= sc.cfg.MaxStreams
	sc.mu.Unlock()
	if full {
		sc.queue(appendFrame(nil, header{kind: kindRefused, end: true, stream: h.stream}, appendRefusal(nil, &RefusedError{Reason: Busy})))
		return sc.in.skip(h.length)
	}
	p, err := sc.payload(h)
	if err != nil {
		return err
	}
	st, err := newServerStream(sc, h, bytes.Clone(p))
	if err != nil {
		sc.control(kindReset, h.stream, uint64(CodeMalformed))
		return nil
	}
	sc.beginStream(st)
	return nil
}

// maxIdle is how many goroutines of a connection wait for their next request.
const maxIdle = 64

func (sc *serverConn) beginStream(st *serverStream) {
	sc.mu.Lock()
	sc.streams[st.id] = st
	sc.running++
	sc.mu.Unlock()
	sc.handlers.Go(st)
}

// unreadAnswer records that an answer begins to wait for its reader, or has ended.
func (sc *serverConn) unreadAnswer(s *stream, waits bool) {
	sc.mu.Lock()
	if waits {
		s.slow = sc.slow.PushBack(s)
	} else {
		sc.slow.Remove(s.slow)
	}
	sc.mu.Unlock()
	sc.makeRoom()
}

// makeRoom gives the answer up that has waited longest for its reader, if more than three quarters of
// the streams wait, for others to end or for their answer to be read.
func (sc *serverConn) makeRoom() {
	sc.mu.Lock()
	first := sc.slow.Front()
	if first == nil || sc.waits.count+sc.slow.Len() <= (3*sc.cfg.MaxStreams+3)/4 {
		sc.mu.Unlock()
		return
	}
	st := sc.streams[first.Value.(*stream).id]
	sc.mu.Unlock()
	if st != nil {
		sc.cfg.Logger.Debug("link: an answer that is not read was given up", "target", st.req.Target)
		st.reset(CodeAborted)
		st.cancel(errors.New("link: the answer is not read"))
	}
}

func (sc *serverConn) returned(st *serverStream) {
	sc.mu.Lock()
	delete(sc.streams, st.id)
	sc.running--
	if sc.draining && sc.running == 0 {
		sc.closeSoonLocked()
	}
	abandoned := st.abandoned
	sc.mu.Unlock()
	if abandoned {
		sc.control(kindReset, st.id, uint64(CodeCancel))
	}
}

func (sc *serverConn) trailers(h header) error {
	st, err := sc.lookup(h)
	if err != nil {
		return err
	}
	p, err := sc.payload(h)
	if err != nil || st == nil {
		return err
	}
	f := Fields(bytes.Clone(p))
	if !f.valid() {
		st.reset(CodeMalformed)
		st.cancel(protocolError("stream %d: malformed trailers", st.id))
		return nil
	}
	st.finish(f)
	return nil
}
