package netutil

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeSize is how many bytes one end of a pipe may write before the other end reads them.
const pipeSize = 64 << 10

// Pipe returns both ends of a connection within this process. Unlike those of [net.Pipe] they have
// buffers and can be closed for writing, as connections of TCP. A closed end drops what it has not
// read; the other end still reads what was written before.
func Pipe() (net.Conn, net.Conn) {
	there, back := newLane(), newLane()
	return &pipeEnd{in: back, out: there}, &pipeEnd{in: there, out: back}
}

// pipeEnd is one end of a pipe.
type pipeEnd struct{ in, out *lane }

func (p *pipeEnd) Read(b []byte) (int, error)         { return p.in.read(b) }
func (p *pipeEnd) Write(b []byte) (int, error)        { return p.out.write(b) }
func (p *pipeEnd) LocalAddr() net.Addr                { return pipeAddr{} }
func (p *pipeEnd) RemoteAddr() net.Addr               { return pipeAddr{} }
func (p *pipeEnd) SetReadDeadline(t time.Time) error  { return p.in.setDeadline(&p.in.reader, t) }
func (p *pipeEnd) SetWriteDeadline(t time.Time) error { return p.out.setDeadline(&p.out.writer, t) }

func (p *pipeEnd) SetDeadline(t time.Time) error {
	_ = p.SetWriteDeadline(t) // which fails no more than the other one
	return p.SetReadDeadline(t)
}

// CloseWrite ends what the other end reads.
func (p *pipeEnd) CloseWrite() error {
	p.out.end(&p.out.writer)
	return nil
}

func (p *pipeEnd) Close() error {
	p.out.end(&p.out.writer)
	p.in.end(&p.in.reader)
	return nil
}

// pipeAddr is the address of both ends, in the form that servers expect.
type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "127.0.0.1:0" }

// lane carries bytes from one end of a pipe to the other. It is open until one of its sides has
// ended; mu guards all fields.
type lane struct {
	mu             sync.Mutex
	change         sync.Cond
	buf            []byte
	taken          int // bytes of buf that were read
	reader, writer laneSide
}

// laneSide is the state of the end that reads, or writes.
type laneSide struct {
	ended    bool // by its own end
	deadline time.Time
	timer    *time.Timer // wakes it at the deadline; nil for none
}

func newLane() *lane {
	l := new(lane)
	l.change.L = &l.mu
	return l
}

// refusalLocked returns why the side may not go on.
func (s *laneSide) refusalLocked() error {
	switch {
	case s.ended:
		return net.ErrClosed
	case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (l *lane) read(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if err := l.reader.refusalLocked(); err != nil {
			return 0, err
		}
		if n := copy(b, l.buf[l.taken:]); n > 0 || len(b) == 0 {
			if l.taken += n; l.taken == len(l.buf) {
				l.buf, l.taken = l.buf[:0], 0
			}
			l.change.Broadcast()
			return n, nil
		}
		if l.writer.ended {
			return 0, io.EOF
		}
		l.change.Wait()
	}
}

func (l *lane) write(b []byte) (written int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if err := l.writer.refusalLocked(); err != nil {
			return written, err
		}
		if l.reader.ended {
			return written, io.ErrClosedPipe
		}
		n := min(len(b)-written, pipeSize-(len(l.buf)-l.taken))
		if l.taken > 0 && len(l.buf)+n > cap(l.buf) {
			l.buf, l.taken = l.buf[:copy(l.buf, l.buf[l.taken:])], 0
		}
		l.buf = append(l.buf, b[written:written+n]...)
		if n > 0 {
			l.change.Broadcast()
		}
		if written += n; written == len(b) {
			return written, nil
		}
		l.change.Wait()
	}
}

func (l *lane) end(s *laneSide) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.ended = true
	if s == &l.reader {
		l.buf, l.taken = nil, 0
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	l.change.Broadcast()
}

func (l *lane) setDeadline(s *laneSide, t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.ended {
		return net.ErrClosed
	}
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if s.deadline = t; !t.IsZero() {
		s.timer = time.AfterFunc(time.Until(t), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.change.Broadcast()
		})
	}
	l.change.Broadcast()
	return nil
}
