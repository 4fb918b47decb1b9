package link

import (
	"container/list"
	"context"
	"io"
	"sync"

	"github.com/keyway-go/keyway/internal/wake"
)

// stream is what both ends of a stream have in common: a body coming in,
// which is buffered up to the window that the peer was granted, and the
// credit for a body going out.
type stream struct {
	c  *conn
	id uint64

	mu          sync.Mutex
	streamState // guarded by mu
}

// streamState is the part of a stream that changes; a clientStream resets it before its memory is
// used again. Each direction is open until inErr or over is set. The connection's reader adds chunks
// and credit; the body's reader and writer use them up.
type streamState struct {
	// The body coming in.
	chunks   []*buffer  // received and not yet read
	first    [1]*buffer // memory of chunks: most bodies are one
	off      int        // bytes of chunks[0] that were read
	lent     *buffer    // the chunk that next gave out
	window   int        // bytes that the peer may still send
	owed     int        // bytes read and not yet granted again
	grown    bool       // the window has grown beyond the initial one
	short    bool       // all that will come fits into the initial window
	inErr    error      // what comes after the chunks: io.EOF at the regular end
	trailer  Fields
	complete bool // the regular end has come: the connection's reader is done with it

	// The body going out.
	credit int
	over   error // why nothing can be sent any more

	watched bool // the owner of the waiters' context pokes the stream when that ends

	slow *list.Element // of serverConn.slow, under its mutex

	// Created on the first wait; capacity 1.
	readable chan struct{}
	writable chan struct{}
}

func waiterLocked(ch *chan struct{}) chan struct{} {
	if *ch == nil {
		*ch = make(chan struct{}, 1)
	}
	return *ch
}

// receive buffers p, a part of a data frame that has left bytes to come. With end set it is the last of the body. receive
// reports whether the peer kept to its window.
func (s *stream) receive(p []byte, left int, end bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inErr == nil && !s.bufferLocked(p, left) { // else it is too late, and nobody reads it
		return false
	}
	if end {
		s.finishLocked(nil)
	}
	wake.Up(s.readable)
	return true
}

func (s *stream) bufferLocked(p []byte, left int) bool {
	if len(p) > s.window {
		return false
	}
	s.window -= len(p)
	for len(p) > 0 {
		var tail *buffer
		if n := len(s.chunks); n > 0 {
			tail = s.chunks[n-1]
		}
		if tail == nil || len(tail.b) == cap(tail.b) {
			size := len(p) + left
			if s.grown && size > maxData/2 { // more such frames are likely to follow: their reader takes them as one piece
				size = maxBuffer
			}
			tail = pool.get(size)
			if s.chunks == nil {
				s.chunks = s.first[:0]
			}
			s.chunks = append(s.chunks, tail)
		}
		n := min(len(p), cap(tail.b)-len(tail.b))
		tail.b = append(tail.b, p[:n]...)
		p = p[n:]
	}
	return true
}

// finish records the regular end of the body coming in, which is that of the stream for an answer.
func (s *stream) finish(trailer Fields) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishLocked(trailer)
}

func (s *stream) finishLocked(trailer Fields) {
	s.complete = true
	s.endReceiveLocked(io.EOF, trailer)
	if s.c.last != nil {
		s.stopSendingLocked(ErrClosed)
	}
}

func (s *stream) endReceiveLocked(err error, trailer Fields) {
	if s.inErr == nil {
		s.inErr = err
		s.trailer = trailer
	}
	wake.Up(s.readable)
}

// stop ends both halves; received bytes remain readable.
func (s *stream) stop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endReceiveLocked(err, nil)
	s.stopSendingLocked(err)
}

func (s *stream) stopSending(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopSendingLocked(err)
}

func (s *stream) stopSendingLocked(err error) {
	if s.over == nil {
		s.over = err
	}
	wake.Up(s.writable)
}

// discard frees what was received. Nothing may be read afterwards.
func (s *stream) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discardLocked()
}

func (s *stream) discardLocked() {
	if s.inErr == nil || s.inErr == io.EOF {
		s.inErr = ErrClosed
	}
	s.releaseLocked()
}

func (s *stream) releaseLocked() {
	for i, b := range s.chunks {
		pool.put(b)
		s.chunks[i] = nil
	}
	s.chunks, s.off = nil, 0
	pool.put(s.lent)
	s.lent = nil
}

// read reads body into p.
func (s *stream) read(ctx context.Context, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := s.await(ctx, s.hasReceived); err != nil {
		return 0, err
	}
	n := 0
	for n < len(p) && len(s.chunks) > 0 {
		first := s.chunks[0]
		m := copy(p[n:], first.b[s.off:])
		n += m
		s.off += m
		if s.off == len(first.b) {
			s.shiftLocked()
			pool.put(first)
		}
	}
	grant := s.consumedLocked(n)
	s.mu.Unlock()
	s.grant(grant)
	return n, nil
}

// next returns the next piece of the body, valid until the next call.
func (s *stream) next(ctx context.Context) ([]byte, error) {
	if err := s.await(ctx, s.hasReceived); err != nil {
		return nil, err
	}
	pool.put(s.lent)
	s.lent = s.chunks[0]
	p := s.lent.b[s.off:]
	s.shiftLocked()
	grant := s.consumedLocked(len(p))
	s.mu.Unlock()
	s.grant(grant)
	return p, nil
}

func (s *stream) shiftLocked() {
	s.off = 0
	n := copy(s.chunks, s.chunks[1:])
	s.chunks[n] = nil
	s.chunks = s.chunks[:n]
}

func (s *stream) hasReceived() bool { return len(s.chunks) > 0 }

// await waits until ready reports true under s.mu, and then holds that. Nothing becomes ready after
// inErr is set.
func (s *stream) await(ctx context.Context, ready func() bool) error {
	for {
		s.mu.Lock()
		if ready() {
			return nil
		}
		if s.inErr != nil {
			err := s.inErr
			s.mu.Unlock()
			return err
		}
		if err := s.sleepLocked(ctx); err != nil {
			return err
		}
	}
}

// sleepLocked waits until something may have come in, or ctx is done. It releases s.mu, and the piece
// that the reader, who waits, has had before: a stream that is silent lends no memory.
func (s *stream) sleepLocked(ctx context.Context) error {
	pool.put(s.lent)
	s.lent = nil
	ready := waiterLocked(&s.readable)
	if s.watched {
		over := ctx.Err() != nil
		s.mu.Unlock()
		if over {
			return context.Cause(ctx)
		}
		<-ready
		return nil
	}
	s.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *stream) poke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	wake.Up(s.readable)
}

// consumedLocked counts n read bytes and returns how many to grant the peer now: none before half
// of the window has been read, or if the peer needs none.
func (s *stream) consumedLocked(n int) int {
	if s.short || s.inErr != nil {
		return 0
	}
	s.owed += n
	size := initialWindow
	if s.grown {
		size = grownWindow
	}
	if s.owed < size/2 {
		return 0
	}
	grant := s.owed
	if !s.grown {
		s.grown = true
		grant += grownWindow - initialWindow
	}
	s.owed = 0
	s.window += grant
	return grant
}

func (s *stream) grant(n int) {
	if n > 0 {
		s.c.control(kindWindow, s.id, uint64(n))
	}
}

// granted takes a window frame. It reports whether the sum is in bounds.
func (s *stream) granted(n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > maxWindow || s.credit+int(n) > maxWindow {
		return false
	}
	s.credit += int(n)
	wake.Up(s.writable)
	return true
}

// acquire takes up to n bytes of credit. If there is none it waits until there is some, or returns
// 0. With n of 0 it only waits.
func (s *stream) acquire(n int, wait bool) (int, error) {
	for {
		s.mu.Lock()
		if s.over != nil {
			err := s.over
			s.mu.Unlock()
			return 0, err
		}
		if s.credit > 0 || !wait {
			n = min(n, s.credit)
			s.credit -= n
			s.mu.Unlock()
			return n, nil
		}
		ready := waiterLocked(&s.writable)
		s.mu.Unlock()
		if s.c.unread == nil {
			<-ready
			continue
		}
		s.c.unread(s, true)
		<-ready
		s.c.unread(s, false)
	}
}

func (s *stream) restore(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.credit += n
}

func (s *stream) sending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over == nil
}

// write sends p as data frames, as fast as the peer's window and the
// connection take them.
func (s *stream) write(p []byte, end bool) error {
	_, err := s.send(nil, p, end, true)
	return err
}

// send sends p as data frames, the first of them behind head, which may be nil. It returns how much
// of p it has sent: less only without wait, if there is no room for more, or with an error.
func (s *stream) send(head, p []byte, end, wait bool) (sent int, err error) {
	var memory [headerLen]byte
	for {
		n := 0
		if len(p) > sent {
			if n, err = s.acquire(min(len(p)-sent, maxData), wait); n == 0 {
				return sent, err
			}
		}
		if head == nil {
			head = memory[:0]
		}
		head = openFrame(head)
		putHeader(head[len(head)-headerLen:], header{length: n, kind: kindData, end: end && sent+n == len(p), stream: s.id})
		if ok, err := s.c.out.push(head, p[sent:sent+n], wait); !ok {
			s.restore(n)
			return sent, err
		}
		if sent += n; sent == len(p) {
			return sent, nil
		}
		head = nil
	}
}

func (s *stream) writeTrailers(f Fields) error {
	_, err := s.c.out.push(appendFrame(nil, header{kind: kindTrailers, end: true, stream: s.id}, f), nil, true)
	return err
}
