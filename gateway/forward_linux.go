package gateway

import (
	"context"
	"syscall"
)

// Options of tcp(7) that package syscall does not name.
const (
	tcpUserTimeout = 18
	unackedLimit   = 10_000 // milliseconds
)

func limitUnacknowledged(_ context.Context, _, _ string, c syscall.RawConn) error {
	var err error
	control := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, unackedLimit)
	})
	if control != nil {
		return control
	}
	return err
}

// hasEnded reports whether the other side has closed an idle connection, or
// sent something unasked.
func hasEnded(c syscall.RawConn) bool {
	var n int
	var err error
	var b [1]byte
	if c.Control(func(fd uintptr) {
		n, _, err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	}) != nil {
		return true
	}
	return n > 0 || err != syscall.EAGAIN && err != syscall.EINTR
}
