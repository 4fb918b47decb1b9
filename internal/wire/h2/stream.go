package h2

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
)

var errLate = fmt.Errorf("h2: the client does not read: %w", os.ErrDeadlineExceeded)

// Stream is a request and its answer. Its methods are for its handler, which may read the body on
// one goroutine and answer on another. The handler must not use it after it has returned. err
// is set once, when the stream fails or its handler returns; ended and closed mark the ends of its
// two halves.
type Stream struct {
	Request

	conn   *Conn
	id     uint32
	fields *[]Field // memory of Request.Fields
	ctx    context.Context
	cancel context.CancelFunc

	// The fields below are guarded by conn.mu.

	hook func()    // called when the stream fails
	cond sync.Cond // of those who wait for the client
	err  error     // why the stream is over; nil while it is not

	body        []byte // received and not read yet: body[off:]
	off         int
	memory      Memory // for bytes that nobody has read yet; nil for none
	early       int    // bytes of body[off:] for which there was memory: the connection's window is open for them again
	got         int64  // bytes of the body that were received
	ended       bool   // the client's half has
	trailer     []Field
	receive     int // bytes that the client may send
	owed        int // bytes that were read and not yet granted again
	grown       bool
	interrupted bool
	reading     bool  // Read waits
	patient     bool  // for as long as it takes
	waited      int64 // ticks that it did, of which ClientTicks may pass
	need        int64 // bytes that have to come until then

	credit  int   // bytes that the client takes; may be negative
	headed  bool  // the head of the answer was sent
	closed  bool  // this side's half has ended
	wants   int   // bytes that it wants to send while it waits; 0 for a head
	sending int64 // tick at which it began to wait for the client, plus 1; 0 if it does not
}

// Context returns the stream's context, which ends when the client gives the
// request up, and when the handler has returned.
func (s *Stream) Context() context.Context { return s.ctx }

// OnFail sets what is called when the client gives the request up, or its
// connection ends, before the handler has returned. The function must not
// block, nor call methods of the stream. It is called at once if that has
// happened already.
func (s *Stream) OnFail(f func()) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.hook = f
	if s.err != nil && f != nil {
		f()
	}
}

// failLocked ends the stream on this side.
func (s *Stream) failLocked(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	s.forgetLocked()
	s.cancel()
	if s.hook != nil {
		s.hook()
	}
	s.wakeLocked()
}

func (s *Stream) forgetLocked() {
	c := s.conn
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	if len(c.streams) == 0 {
		c.idleSince = c.tick.Load()
	}
}

func (s *Stream) giveUpLocked(code Code, err error) {
	if s.err == nil {
		s.conn.sendResetLocked(s.id, code)
	}
	s.failLocked(err)
}

// Reset ends the stream unless it has ended regularly. The client can tell that its answer is cut
// off.
func (s *Stream) Reset(code Code) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.overLocked() == nil {
		s.giveUpLocked(code, errEnded)
	}
}

func (s *Stream) overLocked() error {
	if s.err == nil && s.closed {
		return errEnded
	}
	return s.err
}

func (s *Stream) handle() {
	defer s.finish()
	s.conn.handler(s)
}

// finish ends the stream when its handler has returned.
func (s *Stream) finish() {
	c := s.conn
	c.mu.Lock()
	s.hook = nil
	switch {
	case s.err != nil:
	case !s.closed:
		s.giveUpLocked(InternalError, errEnded)
	case !s.ended:
		s.giveUpLocked(NoError, errEnded) // the answer is whole; the rest of the body is not wanted
	default:
		s.failLocked(errEnded)
	}
	c.grantLocked(len(s.body) - s.off - s.early)
	s.memory = nil
	s.body, s.off = nil, 0
	c.running--
	if c.running == 0 {
		c.rest.Broadcast()
	}
	c.mu.Unlock()
	s.cancel()
	freeFields(s.fields)
}

func (s *Stream) wakeLocked() { s.cond.Broadcast() }

func (s *Stream) bufferLocked(p []byte) {
	if s.off > 0 && 2*s.off >= len(s.body) {
		s.body = s.body[:copy(s.body, s.body[s.off:])]
		s.off = 0
	}
	s.body = append(s.body, p...)
}

// endLocked ends the client's half.
func (s *Stream) endLocked() error {
	if s.ContentLength >= 0 && s.got != s.ContentLength {
		return s.conn.breachLocked(s.id, ProtocolError)
	}
	s.ended = true
	if s.closed {
		s.forgetLocked()
	}
	s.wakeLocked()
	return nil
}

// Read reads the request's body. Its error wraps [os.ErrDeadlineExceeded] if
// the client sends nothing for too long, or Interrupt was called.
func (s *Stream) Read(p []byte) (int, error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for s.off == len(s.body) && len(p) > 0 {
		switch {
		case s.interrupted:
			return 0, os.ErrDeadlineExceeded
		case s.ended:
			return 0, io.EOF
		case s.err != nil:
			return 0, s.err
		}
		s.reading = true
		s.cond.Wait()
		s.reading = false
	}
	n := copy(p, s.body[s.off:])
	s.off += n
	s.consumedLocked(n)
	if s.ended && s.off == len(s.body) {
		return n, io.EOF
	}
	return n, nil
}

// Memory says how much of a body may be kept besides what the window of its
// connection allows. Reserve reports whether the first n bytes of it may; it
// must not block.
type Memory interface{ Reserve(n int) bool }

// Keep sets the memory for the unread bytes of a body that fits in a stream's window. Bytes kept
// there do not use up the connection's window, which its other bodies share. nil stops this.
func (s *Stream) Keep(m Memory) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.memory = m
	if unread := len(s.body) - s.off; m != nil && unread > s.early && m.Reserve(int(s.got)) {
		s.conn.grantLocked(unread - s.early)
		s.early = unread
	}
}

// Wait lets Read wait for as long as it takes: the body need not come at a least
// rate. Server.PingTicks then bounds the silence of the client.
func (s *Stream) Wait() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.patient = true
}

// Interrupt makes Read fail when it would have to wait.
func (s *Stream) Interrupt() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.interrupted = true
	s.wakeLocked()
}

// Trailer returns the fields after the body, once Read has returned io.EOF.
func (s *Stream) Trailer() []Field {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.trailer
}

// consumedLocked lets the client send as much as was read.
func (s *Stream) consumedLocked(n int) {
	early := min(n, s.early)
	s.early -= early
	s.conn.grantLocked(n - early)
	if s.ended || s.err != nil {
		return
	}
	s.owed += n
	size := initialReceive
	if s.grown {
		size = grownReceive
	}
	if s.owed < size/2 {
		return
	}
	if !s.grown {
		s.grown = true
		s.owed += grownReceive - initialReceive
	}
	s.receive += s.owed
	s.conn.controlLocked(appendWord(nil, frameWindowUpdate, s.id, uint32(s.owed)))
	s.owed = 0
}

// Answer sends the head of the answer, the beginning of its body, and its end
// if end is set. Names of fields must be in lower case; fields of the connection
// and pseudo fields must not be among them. With a status below 200 it sends an
// interim answer, which has no body and no end; with a status of 0, trailers. It may wait for the
// client.
func (s *Stream) Answer(status int, fields []Field, body []byte, end bool) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.awaitRoomLocked(); err != nil {
		return err
	}
	if status >= 200 {
		s.headed = true
	}
	last := end && len(body) == 0
	c.fieldsLocked(s.id, status, fields, last)
	c.startLocked()
	if last {
		s.closeLocked()
	}
	return s.sendLocked(body, end)
}

// Write sends more of the body, and its end if end is set. It may wait for the
// client.
func (s *Stream) Write(body []byte, end bool) error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.sendLocked(body, end)
}

// End sends the end of the body with trailers.
func (s *Stream) End(trailers []Field) error {
	if len(trailers) == 0 {
		return s.Write(nil, true)
	}
	return s.Answer(0, trailers, nil, true)
}

// Headed reports whether the head of the answer has been sent.
func (s *Stream) Headed() bool {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.headed
}

// closeLocked records that this side's half has ended.
func (s *Stream) closeLocked() {
	s.closed = true
	if s.ended {
		s.forgetLocked()
	}
}

// awaitRoomLocked waits until not too much is queued.
func (s *Stream) awaitRoomLocked() error {
	c := s.conn
	for s.overLocked() == nil && len(c.out.buf) > highWater {
		s.blockLocked(0)
	}
	s.sending = 0
	return s.overLocked()
}

// blockLocked waits for room, or for credit for some of the bytes that it wants
// to send.
func (s *Stream) blockLocked(wants int) {
	c := s.conn
	s.wants = wants
	if s.sending == 0 {
		s.sending = c.tick.Load() + 1
	}
	c.out.blocked++
	s.cond.Wait()
	c.out.blocked--
}

// sendLocked queues body in frames as the client takes them. An end alone needs no credit.
func (s *Stream) sendLocked(body []byte, end bool) error {
	c := s.conn
	if len(body) > 0 {
		defer c.unblockLocked() // what it was woken for, it may not have used
	}
	for len(body) > 0 || end && !s.closed {
		if err := s.overLocked(); err != nil {
			s.sending = 0
			return err
		}
		n := max(min(len(body), maxFrame, c.credit, s.credit), 0)
		if len(c.out.buf) > highWater || n <= 0 && len(body) > 0 {
			s.blockLocked(len(body))
			continue
		}
		s.sending = 0
		s.credit -= n
		c.credit -= n
		f := frame{length: n, kind: frameData, stream: s.id}
		if end && n == len(body) {
			f.flags = flagEndStream
		}
		c.out.borrow()
		c.out.buf = append(appendFrame(c.out.buf, f), body[:n]...)
		c.startLocked()
		if body = body[n:]; f.flags != 0 {
			s.closeLocked()
		}
	}
	return s.err
}
