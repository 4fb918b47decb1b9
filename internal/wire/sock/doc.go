// Package sock makes the system calls of non-blocking sockets on Linux, for use under
// [syscall.RawConn]. It does not tell the scheduler of them: that would cost more than a look at an
// empty socket, and would wake the runtime's monitor every 20 µs. On other systems [Raw] returns
// nil, and the connections are used as package net has them.
package sock

import "syscall"

// Raw returns the connection under whose methods Read, Write, Look and HungUp are
// called for c: nil if c is no socket, or the system is not Linux.
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
