// Package sock makes the system calls of non-blocking sockets, for use under [syscall.RawConn]. On
// Linux it does not tell the scheduler of them: that would cost more than a look at an empty
// socket, and would wake the runtime's monitor every 20 µs.
package sock

import "syscall"

// Raw returns the connection under whose methods Read, Write, Look and HungUp are
// called for c: nil if c is no socket, or the system has no such calls (Windows).
func Raw(c any) syscall.RawConn {
	if sc, ok := c.(syscall.Conn); ok && supported {
		if raw, err := sc.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// Read reads from a socket. If nothing has arrived, the error is [syscall.EAGAIN]; at the end of
// the stream, n is 0 and the error nil.
func Read(fd uintptr, b []byte) (n int, err error) {
	for {
		if n, err := read(fd, b); err != syscall.EINTR {
			acquire()
			return max(n, 0), err
		}
	}
}

// Write writes to a socket what it takes now. The error is [syscall.EAGAIN] if
// that is nothing; with an error n is 0.
func Write(fd uintptr, b []byte) (n int, err error) {
	release()
	for {
		if n, err := write(fd, b); err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// State is what a look at a socket shows without reading from it.
type State uint8

// The states of a socket.
const (
	Silent  State = iota + 1 // nothing has come
	Pending                  // there is something to read
	Ended                    // the other side has closed it, or it has failed
)

// Look returns the present state of a socket.
func Look(fd uintptr) State {
	for {
		switch n, err := peek(fd); {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return Silent
		case err != nil || n == 0:
			return Ended
		default:
			return Pending
		}
	}
}

// Acknowledge has the kernel acknowledge at once what has come on a TCP socket. On
// systems other than Linux it does nothing.
func Acknowledge(fd uintptr) { acknowledge(fd) }

// RefuseNew makes the kernel ignore new connections to a listening TCP socket; connections that had
// begun before still complete. Ignored clients retry after a second, when the socket is closed or
// has a new owner. On systems other than Linux it does nothing.
func RefuseNew(fd uintptr) { refuseNew(fd) }

// HungUp reports whether the other side of a socket has closed it, or ended its
// sending, or it has failed. On Linux it also does when something that was sent
// before has not been read.
func HungUp(fd uintptr) bool { return hungUp(fd) }

// Acknowledged returns how many bytes the other side of a TCP socket has
// acknowledged since the connection was made, the one of the handshake among them.
// The error is [errors.ErrUnsupported] on systems other than Linux.
func Acknowledged(fd uintptr) (uint64, error) { return acknowledged(fd) }

// Failure returns and clears the error of a socket that was not reported before; nil if there is
// none. On systems other than Linux it is always [errors.ErrUnsupported].
func Failure(fd uintptr) error { return failure(fd) }
