package sock

import (
	"crypto/tls"
	"io"
	"net"
	"syscall"
)

// NewStream returns nc, read and written with the calls of this package if it
// is a socket itself. It is for one reader and one writer at a time. Deadlines
// and the end of nc hold for it.
func NewStream(nc net.Conn) io.ReadWriter {
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn: // what wraps a socket may do more than that
		if s := Open(nc, nil, nil); s != nil {
			return s
		}
	}
	return nc
}

// Stream is a socket. It is for one reader and one writer at a time.
type Stream struct {
	nc      net.Conn
	raw     syscall.RawConn
	below   *belowTLS // nil without TLS
	in, out side      // what the calls in one direction take and leave

	room func() []byte
	idle func()
}

type side struct {
	try func(fd uintptr) bool // tryRead or tryWrite, made once
	now func(fd uintptr)      // likewise, for what is to be done at once
	b   []byte
	n   int
	err error
}

// Open returns the socket that nc is or wraps, nil if there is none, see Raw. A [tls.Conn] wraps one
// if it is over [BelowTLS]; the stream then carries the bytes inside TLS. Deadlines and the end of
// nc hold for it. room and idle are for Fill.
func Open(nc net.Conn, room func() []byte, idle func()) *Stream {
	s := &Stream{nc: nc, room: room, idle: idle}
	if t, ok := nc.(*tls.Conn); ok {
		s.below, _ = t.NetConn().(*belowTLS)
	}
	switch {
	case s.below == nil:
		s.raw = Raw(nc)
	case s.below.socket != nil:
		s.raw = s.below.socket.raw
	}
	if s.raw == nil {
		return nil
	}
	s.in.try, s.out.try = s.tryRead, s.tryWrite
	s.in.now, s.out.now = func(fd uintptr) { s.tryRead(fd) }, func(fd uintptr) { s.tryWrite(fd) }
	return s
}

// Read implements [io.Reader].
func (s *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.in.b = p
	defer func() { s.in.b = nil }()
	return s.Fill()
}

// Fill reads into what room returns. While nothing has come it holds no memory:
// it calls idle, and room again later.
func (s *Stream) Fill() (int, error) {
	err := s.raw.Read(s.in.try)
	switch {
	case err != nil:
		return 0, err
	case s.in.n == 0 && s.in.err == nil:
		return 0, io.EOF
	}
	return s.in.n, s.in.err
}

// FillNow is Fill without waiting: it reads what has arrived, even after a deadline, and returns 0
// if nothing has.
func (s *Stream) FillNow() int {
	s.in.n = 0
	if s.raw.Control(s.in.now) != nil || s.in.err != nil {
		return 0
	}
	return s.in.n
}

func (s *Stream) tryRead(fd uintptr) bool {
	b := s.in.b
	if b == nil {
		b = s.room()
	}
	if s.below == nil {
		s.in.n, s.in.err = Read(fd, b)
	} else {
		s.in.n, s.in.err = s.below.tryRead(fd, s.nc, b)
	}
	if s.in.err != syscall.EAGAIN {
		return true
	}
	if s.in.b == nil {
		s.idle()
	}
	return false
}

// longWrite is the least size of a write that the scheduler is told about, since it may take long.
const longWrite = 64 << 10

// Write implements [io.Writer].
func (s *Stream) Write(p []byte) (n int, err error) {
	if s.below != nil || len(p) > longWrite {
		return s.nc.Write(p)
	}
	for n < len(p) && err == nil {
		var m int
		m, err = s.WriteSome(p[n:])
		n += m
	}
	return n, err
}

// WriteSome writes what the socket takes of p, and waits until it takes some. With TLS it writes all
// of p.
func (s *Stream) WriteSome(p []byte) (int, error) {
	if s.below != nil {
		return s.nc.Write(p)
	}
	s.out.b, s.out.n, s.out.err = p, 0, nil
	err := s.raw.Write(s.out.try)
	s.out.b = nil
	if err != nil {
		return 0, err
	}
	return s.out.n, s.out.err
}

// WriteNow writes as much of p as the socket takes at once, even after a deadline, and returns that
// length. It reports no error: the next Write does. It is not for TLS.
func (s *Stream) WriteNow(p []byte) int {
	s.out.b, s.out.n = p[:min(len(p), longWrite)], 0
	_ = s.raw.Control(s.out.now) // a closed socket takes nothing
	s.out.b = nil
	return s.out.n
}

func (s *Stream) tryWrite(fd uintptr) bool {
	s.out.n, s.out.err = Write(fd, s.out.b)
	return s.out.err != syscall.EAGAIN
}

// HungUp reports whether the socket is closed, or [HungUp] of it.
func (s *Stream) HungUp() (gone bool) {
	err := s.raw.Control(func(fd uintptr) { gone = HungUp(fd) })
	return gone || err != nil
}
