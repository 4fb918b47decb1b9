package sock

import (
	"io"
	"net"
	"syscall"
)

// NewStream returns nc, read and written with the calls of this package if it
// is a socket itself. It is for one reader and one writer at a time. Deadlines
// and the end of nc hold for it.
func NewStream(nc net.Conn) io.ReadWriter {
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
	default: // what wraps a socket may do more than that
		return nc
	}
	raw := Raw(nc)
	if raw == nil {
		return nc
	}
	s := &stream{nc: nc, raw: raw}
	s.in.try, s.out.try = s.tryRead, s.tryWrite
	return s
}

// stream is a socket. Its two sides are what the calls in one direction take
// and leave.
type stream struct {
	nc      net.Conn
	raw     syscall.RawConn
	in, out side
}

type side struct {
	try func(fd uintptr) bool // tryRead or tryWrite, made once
	b   []byte
	n   int
	err error
}

// Read implements [io.Reader].
func (s *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.in.b = p
	err := s.raw.Read(s.in.try)
	s.in.b = nil
	switch {
	case err != nil:
		return 0, err
	case s.in.n == 0 && s.in.err == nil:
		return 0, io.EOF
	}
	return s.in.n, s.in.err
}

func (s *stream) tryRead(fd uintptr) bool {
	s.in.n, s.in.err = Read(fd, s.in.b)
	return s.in.err != syscall.EAGAIN
}

// longWrite is from which size the scheduler is told of a write: it may take
// long, and others go on meanwhile.
const longWrite = 64 << 10

// Write implements [io.Writer].
func (s *stream) Write(p []byte) (int, error) {
	if len(p) > longWrite {
		return s.nc.Write(p)
	}
	s.out.b, s.out.err = p, nil
	err := s.raw.Write(s.out.try)
	n := len(p) - len(s.out.b)
	s.out.b = nil
	if err == nil {
		err = s.out.err
	}
	return n, err
}

func (s *stream) tryWrite(fd uintptr) bool {
	for len(s.out.b) > 0 {
		n, err := Write(fd, s.out.b)
		if err != nil {
			if err == syscall.EAGAIN {
				return false
			}
			s.out.err = err
			return true
		}
		s.out.b = s.out.b[n:]
	}
	return true
}
